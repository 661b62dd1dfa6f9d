"""Batches of text that depend only on seed, epoch and index.

All satisfy core.protocols.Batches: any batch can be built at any time, so a resumed training gets
exactly the batches of an uninterrupted one. In batches with
`continues_previous` each row continues that of the previous batch; `resets_carry(index)` is true of
batches that start without a carry. `shard(rank, world)` returns the rows of one process.

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
"""About how many batches the digest of the data is computed from."""


def random_integers(count: int, *place: int) -> Int[Tensor, "N"]:
    """Random integers from 0 to 2^63 - 1, determined by `place`, such as (seed, epoch).

    >>> torch.equal(random_integers(3, 1, 2), random_integers(3, 1, 2))
    True
    >>> torch.equal(random_integers(3, 1), random_integers(3, 2))
    False
    """
    if not count:
        return torch.zeros(0, dtype=torch.int64)
    named = hashlib.shake_128(",".join(map(str, place)).encode())
    drawn = torch.frombuffer(bytearray(named.digest(8 * count)), dtype=torch.int64)
    return drawn & (2**63 - 1)


def random_permutation(count: int, *place: int) -> Int[Tensor, "N"]:
    """A permutation of the numbers from 0 to count - 1, determined by `place`.

    >>> sorted(random_permutation(4, 7).tolist())
    [0, 1, 2, 3]
    """
    return random_integers(count, *place).argsort(stable=True)


def check_index(index: int, count: int) -> int:
    """The index; raises a UserError if an epoch of `count` batches does not have it."""
    if not 0 <= index < count:
        raise UserError(f"index={index} is outside an epoch of {count} batches, from 0")
    return index


def tensor_digest(*tensors: Tensor) -> str:
    """A short SHA-256 of the contents of tensors.

    >>> tensor_digest(torch.tensor([1, 2])) == tensor_digest(torch.tensor([1]), torch.tensor([2]))
    True
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        plain = torch.empty(tensor.numel(), dtype=tensor.dtype)  # of stride one, always
        digest.update(plain.copy_(tensor.reshape(-1)).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


class ShardableBatches(ABC):
    """Batches of a fixed number of rows, which can be divided among several processes."""

    continues_previous = False
    """Does each batch continue the rows of the previous one?"""
    prefetchable = False
    """Is a batch slow to build, so that a thread should build it in advance?"""

    def __init__(self, rows: int) -> None:
        self.rows = positive("batch", rows)

    @abstractmethod
    def __len__(self) -> int:
        """The number of batches in an epoch."""

    @abstractmethod
    def batch(self, epoch: int, index: int) -> Batch:
        """One batch; always the same for the same epoch and index."""

    @property
    def digest(self) -> str:
        """A digest that identifies the data, by default of a sample of the batches."""
        return tensor_digest(*self.sample_tensors())

    def sample_tensors(self) -> list[Tensor]:
        """The tensors of some batches, in the order of their names."""
        some = range(0, len(self), max(1, len(self) // _SAMPLED))
        batches = (sorted(self.batch(0, index).items()) for index in some)
        return [each for batch in batches for _, each in batch]

    def resets_carry(self, index: int) -> bool:
        """Does a batch start without the carry of the previous one?"""
        return index == 0 or not self.continues_previous

    def shard(self, rank: int, world: int) -> "Shard":
        """The rows of one process; together, the processes have the rows of the whole batch."""
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
        """The digest of the whole batches."""
        return self._whole.digest

    def resets_carry(self, index: int) -> bool:
        """Does a batch start without the carry of the previous one?"""
        return self._whole.resets_carry(index)


class ContinuousBatches(ShardableBatches):
    """A text as parallel streams that continue from batch to batch, for recurrent networks.

    The text is split into `batch` streams of equal length; the rest is dropped. Each batch is the
    next `window` tokens of all streams; the last one may be shorter. Targets are the next tokens.
    The state is carried within an epoch and reset at its end, as in pytorch/examples,
    word_language_model.

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
        """The digest of the text."""
        return tensor_digest(self._streams)

    def batch(self, epoch: int, index: int) -> Batch:
        """The next window of every stream; all epochs are the same."""
        first = check_index(index, len(self)) * self._window
        read = self._streams[:, first : first + self._window + 1].long()  # [B,T+1]
        return {"tokens": read[:, :-1].contiguous(), "targets": read[:, 1:].contiguous()}


class WindowBatches(ShardableBatches):
    """Windows at random positions of a text, with replacement, for Transformers.

    An epoch is `steps` batches, by default as many as cover the text once. As nanoGPT's get_batch,
    but any batch can be built again.

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
        """The digest of the text."""
        return tensor_digest(self._ids)

    def batch(self, epoch: int, index: int) -> Batch:
        """Random windows of this epoch and index."""
        drawn = random_integers(self.rows, self._seed, epoch, check_index(index, len(self)))
        places = (drawn % self._places)[:, None] + self._span  # [B,T+1]
        read = self._ids[places].long()
        return {"tokens": read[:, :-1].contiguous(), "targets": read[:, 1:].contiguous()}


class StridedBatches(ShardableBatches):
    """Consecutive windows that have every target once, in order, for evaluation.

    The last window and the last batch are padded with `pad` for tokens and IGNORE for targets, so
    that all batches have the same shape.

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
