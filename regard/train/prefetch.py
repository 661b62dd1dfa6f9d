"""Ahead: the next batch is made while the model is busy with this one.

A batch is a function of epoch and index alone, so it does not matter when it is made, nor whether
it was made for nothing: a training that stops and goes on sees the same ones. Batches that take
time say so with `worth_a_thread`.

>>> from regard.data.batch import WindowBatches
>>> import torch
>>> batches = WindowBatches(torch.arange(100), batch=2, window=4, seed=1)
>>> ahead = Ahead(batches)
>>> bool((ahead.batch(0, 3)["tokens"] == batches.batch(0, 3)["tokens"]).all())
True
"""

from concurrent.futures import Future, ThreadPoolExecutor

from regard.core.protocols import Batch, Batches
from regard.train.evaluate import begins_anew


class Ahead:
    """Batches, each made before it is asked for if they are asked for in order."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._worker = ThreadPoolExecutor(1, "batches")  # ends when nobody holds it any more
        self._next: tuple[tuple[int, int], Future[Batch]] | None = None

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, epoch: int, index: int) -> Batch:
        """One batch; the one after it is begun."""
        place, held = (epoch, index), self._next
        if held is None or held[0] != place:
            held = (place, self._begun(*place))
        made = held[1].result()
        after = (epoch, index + 1) if index + 1 < len(self) else (epoch + 1, 0)
        self._next = (after, self._begun(*after))
        return made

    def starts(self, index: int) -> bool:
        """Does a batch begin anew?"""
        return begins_anew(self._batches, index)

    def _begun(self, epoch: int, index: int) -> "Future[Batch]":
        return self._worker.submit(self._batches.batch, epoch, index)


def ahead(batches: Batches) -> Batches:
    """The batches, made ahead if they say that it is worth a thread."""
    return Ahead(batches) if getattr(batches, "worth_a_thread", False) else batches
