"""Prefetching: a thread builds the next batch while the model computes.

A batch depends only on epoch and index, so prefetching does not change a training, nor one that is
stopped and resumed. Batches that are slow to build set `prefetchable = True`.

>>> from regard.data.batch import WindowBatches
>>> import torch
>>> batches = WindowBatches(torch.arange(100), batch=2, window=4, seed=1)
>>> prefetched = PrefetchedBatches(batches)
>>> bool((prefetched.batch(0, 3)["tokens"] == batches.batch(0, 3)["tokens"]).all())
True
"""

from concurrent.futures import Future, ThreadPoolExecutor

from regard.core.protocols import Batch, Batches
from regard.train.evaluate import carry_resets


class PrefetchedBatches:
    """Batches, of which the next in order is built in advance."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._worker = ThreadPoolExecutor(1, "batches")  # ends with the last reference to it
        self._next: tuple[tuple[int, int], Future[Batch]] | None = None

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, epoch: int, index: int) -> Batch:
        """One batch; the thread starts to build the one after it."""
        position, pending = (epoch, index), self._next
        if pending is None or pending[0] != position:
            pending = (position, self._submit(*position))
        batch = pending[1].result()
        after = (epoch, index + 1) if index + 1 < len(self) else (epoch + 1, 0)
        self._next = (after, self._submit(*after))
        return batch

    def resets_carry(self, index: int) -> bool:
        """Does a batch start without a carry?"""
        return carry_resets(self._batches, index)

    def _submit(self, epoch: int, index: int) -> "Future[Batch]":
        return self._worker.submit(self._batches.batch, epoch, index)


def prefetch(batches: Batches) -> Batches:
    """The batches, prefetched if they are `prefetchable`."""
    return PrefetchedBatches(batches) if getattr(batches, "prefetchable", False) else batches
