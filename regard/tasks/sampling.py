"""Rows of a split for an audit: a few positions of each row, and a limited number of rows."""

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.protocols import Batch, Batches
from regard.data import Tokeniser
from regard.data.text.pipeline import BOS, EOS, UNK

AUDIT_ROWS = 32
"""Rows of a batch in an audit."""

_POSITIONS = 3
"""The most positions of one row: words of a sentence, steps of a translation."""


def sample_positions(
    counts: Int[Tensor, "B"], generator: torch.Generator, most: int = _POSITIONS
) -> tuple[Int[Tensor, "N"], Int[Tensor, "N"]]:
    """At most so many random positions of each row: their rows, and their places in the row.

    >>> [each.tolist() for each in sample_positions(torch.tensor([1, 0]), torch.Generator())]
    [[0], [0]]
    """
    pairs = [
        (row, place)
        for row, count in enumerate(counts.tolist())
        for place in torch.randperm(count, generator=generator)[:most].sort().values.tolist()
    ]
    both = torch.tensor(pairs, dtype=torch.int64).reshape(len(pairs), 2)
    return both[:, 0], both[:, 1]


def every_batch(batches: Batches) -> Iterator[Batch]:
    """All batches of the first epoch, in order."""
    return (batches.batch(0, index) for index in range(len(batches)))


def take_rows(batches: Iterable[Batch], most: int) -> Iterator[Batch]:
    """The first rows of some batches, in batches of at most `AUDIT_ROWS`.

    >>> [len(each["x"]) for each in take_rows([{"x": torch.zeros(40)}, {"x": torch.zeros(9)}], 45)]
    [32, 8, 5]
    """
    left = most
    for batch in batches:
        rows = len(next(iter(batch.values())))
        for first in range(0, min(rows, left), AUDIT_ROWS):
            some = slice(first, min(first + AUDIT_ROWS, left))
            yield {name: value[some] for name, value in batch.items()}
        left -= rows
        if left <= 0:
            return


def special_tokens(tokeniser: Tokeniser) -> tuple[int, ...]:
    """The tokens that stand for no text, such as the start and the end; not the unknown word."""
    special = set(tokeniser.special.nonzero()[:, 0].tolist())
    special |= {tokeniser.bos} if tokeniser.special_token(BOS) else set()
    special |= {tokeniser.eos} if tokeniser.special_token(EOS) else set()
    return tuple(sorted(special - ({tokeniser.unk} if tokeniser.special_token(UNK) else set())))
