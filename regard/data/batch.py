"""Batches of text whose order is a function of seed, epoch and index alone.

All satisfy core.protocols.Batches: any batch can be asked for at any time, so a run that goes on
after a stop sees exactly what it would have seen. `continues_previous` says whether each batch goes on where
the one before it ended, row by row; `starts(index)` says whether a batch begins anew, so that
nothing may be carried into it. `shard(rank, world)` gives one process of several its rows.

Random numbers come from SHAKE-128 of (seed, epoch, index), which is the same on every machine and
in every version of every library.
"""

import hashlib
from abc import ABC, abstractmethod

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from regard.core.errors import UserError, divides, positive
from regard.core.padding import IGNORE as IGNORE
from regard.core.protocols import Batch

_SAMPLED = 32
"""About how many batches are looked at to know data again."""


def random_integers(count: int, *place: int) -> Int[Tensor, "N"]:
    """Random whole numbers from 0 to 2^63 - 1 that belong to a place, such as (seed, epoch).

    >>> bool((random_integers(3, 1, 2) == random_integers(3, 1, 2)).all()), bool((random_integers(3, 1) == random_integers(3, 2)).any())
    (True, False)
    """
    if not count:
        return torch.zeros(0, dtype=torch.int64)
    named = hashlib.shake_128(",".join(map(str, place)).encode())
    drawn = torch.frombuffer(bytearray(named.digest(8 * count)), dtype=torch.int64)
    return drawn & (2**63 - 1)


def random_permutation(count: int, *place: int) -> Int[Tensor, "N"]:
    """The numbers from 0 to count - 1 in an order that belongs to a place.

    >>> sorted(random_permutation(4, 7).tolist())
    [0, 1, 2, 3]
    """
    return random_integers(count, *place).argsort(stable=True)


def check_index(index: int, count: int) -> int:
    """The index, if an epoch of so many batches has it."""
    if not 0 <= index < count:
        raise UserError(f"index={index} is outside an epoch of {count} batches, from 0")
    return index


def tensor_digest(*tensors: Tensor) -> str:
    """The SHA-256 of what tensors hold, in short.

    >>> tensor_digest(torch.tensor([1, 2])) == tensor_digest(torch.tensor([1]), torch.tensor([2]))
    True
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        plain = torch.empty(tensor.numel(), dtype=tensor.dtype)  # of stride one, always
        digest.update(plain.copy_(tensor.reshape(-1)).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


class ShardableBatches(ABC):
    """Batches of so many rows each, that can be dealt out to several processes."""

    continues_previous = False
    """Does each batch go on where the one before it ended?"""
    prefetchable = False
    """Does a batch take so long to make that it is better begun while the one before is used?"""

    def __init__(self, rows: int) -> None:
        self.rows = positive("batch", rows)

    @abstractmethod
    def __len__(self) -> int:
        """How many batches an epoch has."""

    @abstractmethod
    def batch(self, epoch: int, index: int) -> Batch:
        """One batch; the same one whenever it is asked for."""

    @property
    def digest(self) -> str:
        """What the data are known again by: some of the batches, if there is nothing better."""
        return tensor_digest(*self.sample_tensors())

    def sample_tensors(self) -> list[Tensor]:
        """The tensors of some batches, in the order of their names."""
        some = range(0, len(self), max(1, len(self) // _SAMPLED))
        batches = (sorted(self.batch(0, index).items()) for index in some)
        return [each for batch in batches for _, each in batch]

    def resets_carry(self, index: int) -> bool:
        """Does a batch begin anew, so that nothing is carried into it?"""
        return index == 0 or not self.continues_previous

    def shard(self, rank: int, world: int) -> "Shard":
        """The rows of one process; all processes together see the batch that one would."""
        divides("batch", self.rows, "world", world)
        return Shard(self, rank, world)


class Shard:
    """The rows of one process: every world-th row of every batch, from its rank on."""

    def __init__(self, whole: ShardableBatches, rank: int, world: int) -> None:
        if not 0 <= rank < positive("world", world):
            raise UserError(f"rank={rank} is not among world={world} processes, from 0")
        self.continues_previous = whole.continues_previous
        self.prefetchable = whole.prefetchable
        self._whole = whole
        self._rows = slice(rank, None, world)

    def __len__(self) -> int:
        return len(self._whole)

    def batch(self, epoch: int, index: int) -> Batch:
        """The rows of this process."""
        whole = self._whole.batch(epoch, index)
        return {name: rows[self._rows] for name, rows in whole.items()}

    @property
    def digest(self) -> str:
        """That of the whole batches."""
        return self._whole.digest

    def resets_carry(self, index: int) -> bool:
        """Does a batch begin anew?"""
        return self._whole.resets_carry(index)


class ContinuousBatches(ShardableBatches):
    """A text as parallel streams, read on from batch to batch: for recurrent networks.

    The text is cut into `batch` streams of equal length, the rest is dropped, and each batch is the
    next `window` tokens of all streams; the last one may be shorter. Targets are the tokens one
    later. The state is carried within an epoch and starts anew with the next, as in
    pytorch/examples, word_language_model.

    >>> batches = ContinuousBatches(torch.arange(10), batch=2, window=3)
    >>> [batches.batch(0, index)["tokens"].tolist() for index in range(len(batches))]
    [[[0, 1, 2], [5, 6, 7]], [[3], [8]]]
    """

    continues_previous = True

    def __init__(self, ids: Integer[Tensor, "T"], batch: int, window: int) -> None:
        super().__init__(batch)
        length = len(ids) // batch
        if length < 2:
            raise UserError(
                f"{len(ids)} tokens are too few for batch={batch} streams: at least {2 * batch}"
            )
        self._window = positive("window", window)
        self._targets = length - 1
        self._streams = ids[: length * batch].unflatten(0, (batch, length))  # [B,T]

    def __len__(self) -> int:
        return -(-self._targets // self._window)

    @property
    def digest(self) -> str:
        """The whole text."""
        return tensor_digest(self._streams)

    def batch(self, epoch: int, index: int) -> Batch:
        """The next window of every stream; all epochs are the same."""
        first = check_index(index, len(self)) * self._window
        read = self._streams[:, first : first + self._window + 1].long()  # [B,T+1]
        return {"tokens": read[:, :-1].contiguous(), "targets": read[:, 1:].contiguous()}


class WindowBatches(ShardableBatches):
    """Windows from random places of a text, with replacement: for Transformers.

    An epoch is `steps` batches, by default as many as would cover the text once. As nanoGPT's
    get_batch, but any batch can be asked for.

    >>> batches = WindowBatches(torch.arange(100), batch=2, window=4, seed=1)
    >>> read = batches.batch(0, 0)
    >>> bool((read["targets"] == read["tokens"] + 1).all())
    True
    """

    def __init__(
        self,
        ids: Integer[Tensor, "T"],
        batch: int,
        window: int,
        seed: int,
        steps: int | None = None,
    ) -> None:
        super().__init__(batch)
        self._places = len(ids) - positive("window", window)
        if self._places < 1:
            raise UserError(
                f"{len(ids)} tokens are too few for window={window}: at least {window + 1}"
            )
        self._ids = ids
        self._span = torch.arange(window + 1)
        self._seed = seed
        cover = max(1, (len(ids) - 1) // (batch * window))
        self._steps = cover if steps is None else positive("steps", steps)

    def __len__(self) -> int:
        return self._steps

    @property
    def digest(self) -> str:
        """The whole text."""
        return tensor_digest(self._ids)

    def batch(self, epoch: int, index: int) -> Batch:
        """Windows drawn for this epoch and index."""
        drawn = random_integers(self.rows, self._seed, epoch, check_index(index, len(self)))
        places = (drawn % self._places)[:, None] + self._span  # [B,T+1]
        read = self._ids[places].long()
        return {"tokens": read[:, :-1].contiguous(), "targets": read[:, 1:].contiguous()}


class StridedBatches(ShardableBatches):
    """Windows side by side that cover every target once, in order: for evaluation.

    The last window and the last batch are filled up: with `pad` for tokens and IGNORE for targets,
    so that all batches have one shape and a loss that ignores IGNORE sees each target once.

    >>> batches = StridedBatches(torch.arange(6), batch=2, window=2)
    >>> [batches.batch(0, index)["targets"].tolist() for index in range(len(batches))]
    [[[1, 2], [3, 4]], [[5, -100], [-100, -100]]]
    """

    def __init__(self, ids: Integer[Tensor, "T"], batch: int, window: int, pad: int = 0) -> None:
        super().__init__(batch)
        if len(ids) < 2:
            raise UserError(f"{len(ids)} tokens have nothing to predict: at least 2")
        self._ids = ids
        self._window = positive("window", window)
        self._pad = pad

    def __len__(self) -> int:
        return -(-(len(self._ids) - 1) // (self.rows * self._window))

    def batch(self, epoch: int, index: int) -> Batch:
        """The next windows; all epochs are the same."""
        size = self.rows * self._window
        first = check_index(index, len(self)) * size
        read = self._ids[first : first + size + 1].long()
        tokens = torch.full((size,), self._pad)
        targets = torch.full((size,), IGNORE)
        tokens[: len(read) - 1] = read[:-1]
        targets[: len(read) - 1] = read[1:]
        shape = (self.rows, self._window)
        return {"tokens": tokens.unflatten(0, shape), "targets": targets.unflatten(0, shape)}
