"""Batches grouped by length, so that little of a batch is padding.

Sentences are shuffled, put into buckets whose widths grow by a tenth (as in tensor2tensor), and
split into batches; then the batches are shuffled. Both orders depend on seed and epoch.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import UserError, divides, positive
from regard.core.protocols import Batch
from regard.data.batch import (
    IGNORE,
    Shard,
    ShardableBatches,
    check_index,
    random_permutation,
    tensor_digest,
)

_NARROWEST = 8
"""The width of the first bucket."""

EMPTY_ROW = -1
"""The index of a missing sentence: its row is all padding."""

Collate = Callable[[Int[Tensor, "B"]], Batch]
"""Builds a batch of the sentences with these indices; EMPTY_ROW is a row of padding."""


def pad_rows(rows: Sequence[Sequence[int]], fill: int) -> Int[Tensor, "B T"]:
    """Rows of different lengths as one padded tensor.

    >>> pad_rows([[5, 6], [7]], fill=0).tolist()
    [[5, 6], [7, 0]]
    """
    table = torch.full((len(rows), max((len(row) for row in rows), default=0)), fill)
    for place, row in enumerate(rows):
        table[place, : len(row)] = torch.tensor(row, dtype=torch.int64)
    return table


def next_token_collate(sentences: Sequence[Sequence[int]], pad: int) -> Collate:
    """Collates all but the last token of sentences, with the next tokens as targets.

    >>> gather = next_token_collate([[2, 5, 3], [2, 6, 7, 3]], pad=0)
    >>> gather(torch.tensor([0, 1]))["targets"].tolist()
    [[5, 3, -100], [6, 7, 3]]
    """

    def gather(numbers: Int[Tensor, "B"]) -> Batch:
        rows = [() if number == EMPTY_ROW else sentences[number] for number in numbers.tolist()]
        return {
            "tokens": pad_rows([row[:-1] for row in rows], pad),
            "targets": pad_rows([row[1:] for row in rows], IGNORE),
        }

    return gather


def bucket_widths(longest: int) -> list[int]:
    """The widths of buckets up to the longest sentence: each about a tenth wider.

    >>> bucket_widths(14)
    [8, 9, 10, 11, 12, 13, 14]
    """
    widths = [_NARROWEST]
    while widths[-1] < longest:
        widths.append(max(widths[-1] + 1, int(widths[-1] * 1.1)))
    return [*widths[:-1], longest]


def _cuts(widths: list[int], rows: int | None, tokens: int | None) -> list[int]:
    """The boundaries of batches among sentences in the order of these widths."""
    if (rows is None) == (tokens is None):
        raise UserError(f"set either batch or tokens_per_batch, got {rows} and {tokens}")
    cuts = [0]
    if rows is not None:
        return [*range(0, len(widths), positive("batch", rows)), len(widths)]
    assert tokens is not None
    if positive("tokens_per_batch", tokens) < widths[-1]:
        raise UserError(
            f"tokens_per_batch={tokens} is less than the longest sentence, {widths[-1]} tokens"
        )
    while (first := cuts[-1]) < len(widths):
        cuts.append(first + _fits(widths[first : first + tokens], tokens))
    return cuts


def _fits(widths: list[int], tokens: int) -> int:
    """The number of sentences, from the first, that fit into a batch of `tokens` tokens."""
    # Widths are sorted, so the last sentence of a batch determines the width of its rows.
    return bisect_right(range(len(widths)), tokens, key=lambda last: (last + 1) * widths[last])


class BucketBatches(ShardableBatches):
    """Batches grouped by length: `batch` sentences each, or up to `tokens_per_batch` tokens.

    Each sentence occurs once per epoch. `lengths` are the lengths of the sentences; `gather` builds
    the tensors of a batch.

    >>> sentences = [[1] * (length + 1) for length in (9, 20, 9, 20)]
    >>> batches = BucketBatches([9, 20, 9, 20], next_token_collate(sentences, 0), batch=2, seed=0)
    >>> sorted(batches.batch(0, index)["tokens"].shape[1] for index in range(len(batches)))
    [9, 20]
    >>> batches.padding_fraction(epoch=0)
    0.0
    """

    def __init__(
        self,
        lengths: Sequence[int],
        gather: Collate,
        *,
        seed: int,
        batch: int | None = None,
        tokens_per_batch: int | None = None,
    ) -> None:
        super().__init__(1 if batch is None else batch)
        for number, length in enumerate(lengths):
            positive(f"the length of sentence {number}", length)
        if not lengths:
            raise UserError("there are no sentences to build batches from")
        widths = bucket_widths(max(lengths))
        self._lengths = torch.tensor(lengths)
        self._buckets = torch.searchsorted(torch.tensor(widths), self._lengths)
        ordered = [widths[bucket] for bucket in self._buckets.sort().values.tolist()]
        self._cuts = _cuts(ordered, batch, tokens_per_batch)
        self.gather = gather
        self._even = batch is not None
        self._seed = seed
        self._multiple = 1
        self._known: tuple[int, list[Tensor]] | None = None

    def __len__(self) -> int:
        return len(self._cuts) - 1

    @property
    def digest(self) -> str:
        """The digest of all lengths and some of the batches."""
        return tensor_digest(self._lengths, *self.sample_tensors())

    def numbers(self, epoch: int, index: int) -> Int[Tensor, "B"]:
        """The indices of the sentences of a batch."""
        return self._plan(epoch)[check_index(index, len(self))]

    def _plan(self, epoch: int) -> list[Tensor]:
        """The sentences of every batch of an epoch; the last epoch is cached."""
        known = self._known
        if known is None or known[0] != epoch:
            order = random_permutation(len(self._lengths), self._seed, epoch, 0)
            order = order[self._buckets[order].argsort(stable=True)]
            cut = [order[first:last] for first, last in pairwise(self._cuts)]
            turn = random_permutation(len(cut), self._seed, epoch, 1).tolist()
            known = self._known = (epoch, [cut[place] for place in turn])
        return known[1]

    def batch(self, epoch: int, index: int) -> Batch:
        """The sentences of a batch as tensors."""
        numbers = self.numbers(epoch, index)
        lacking = -len(numbers) % self._multiple
        return self.gather(torch.cat([numbers, torch.full((lacking,), EMPTY_ROW)]))

    def padding_fraction(self, epoch: int) -> float:
        """The fraction of padding in the batches of an epoch."""
        cells = sum(
            len(numbers) * int(self._lengths[numbers].max()) for numbers in self._plan(epoch)
        )
        return 1.0 - int(self._lengths.sum()) / cells

    def shard(self, rank: int, world: int) -> Shard:
        """The sentences of one process; batches are padded with empty rows to a common size."""
        if self._even:
            divides("batch", self.rows, "world", world)
        filled = copy(self)
        filled._multiple = positive("world", world)
        return Shard(filled, rank, world)
