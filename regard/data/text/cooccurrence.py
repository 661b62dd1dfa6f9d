"""How often words stand near each other, counted sparsely: what GloVe learns from.

A pair d words apart counts 1/d, up to `reach` words apart and within one text (Pennington et al.
2014, section 4.2); both orders count. Pairs are sorted and added up a block of the text at a time,
so that memory grows with the different pairs and not with the text.

>>> ids = torch.tensor([4, 5, 4, 3, 4])                     # 3 ends a text
>>> cells = cooccurrences(ids, vocabulary=6, reach=2)
>>> sorted(zip(cells.rows.tolist(), cells.columns.tolist(), cells.counts.tolist()))
[(4, 4, 1.0), (4, 5, 2.0), (5, 4, 2.0)]
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from regard.core.errors import UserError, positive
from regard.core.protocols import Batch
from regard.data.batch import WholeBatches, shuffled, within
from regard.data.text.context import END, SPECIAL, UNKNOWN

BLOCK = 1 << 19
"""How many words are counted at a time."""


@dataclass(frozen=True)
class Cells:
    """The cells of the table of co-occurrences that are not zero."""

    rows: Int[Tensor, "N"]
    columns: Int[Tensor, "N"]
    counts: Float[Tensor, "N"]

    def chosen(self, which: Integer[Tensor, "M"]) -> "Cells":
        """Some of them."""
        return Cells(self.rows[which], self.columns[which], self.counts[which])


def cooccurrences(ids: Integer[Tensor, "T"], vocabulary: int, reach: int) -> Cells:
    """Count a text."""
    keys, sums = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64)
    positive("reach", reach)
    known = ids[ids.int() != UNKNOWN]
    for first in range(0, len(known), BLOCK):
        # With what its last words still reach: a pair counts in the block of its left word.
        found = _pairs_in(known[first : first + BLOCK + reach].long(), vocabulary, reach, BLOCK)
        keys, sums = _added_up(torch.cat((keys, found[0])), torch.cat((sums, found[1])))
    if not len(keys):
        raise UserError("no two words of this text stand near each other; give more text")
    one, other = keys // vocabulary, keys % vocabulary
    apart = one != other
    return Cells(
        rows=torch.cat((one, other[apart])),
        columns=torch.cat((other, one[apart])),
        counts=torch.cat((sums * (2 - apart.double()), sums[apart])),
    )


def _pairs_in(
    block: Int[Tensor, "T"], vocabulary: int, reach: int, lefts: int
) -> tuple[Int[Tensor, "N"], Float[Tensor, "N"]]:
    """The pairs of a block whose left word is among the first so many; the smaller number first."""
    text = (block == END).cumsum(0)
    keys, weights = [], []
    for apart in range(1, reach + 1):
        left, right = block[:-apart][:lefts], block[apart:][:lefts]
        real = (left >= SPECIAL) & (right >= SPECIAL) & (text[:-apart] == text[apart:])[:lefts]
        left, right = left[real], right[real]
        keys.append(torch.minimum(left, right) * vocabulary + torch.maximum(left, right))
        weights.append(torch.full((len(left),), 1 / apart, dtype=torch.float64))
    return _added_up(torch.cat(keys), torch.cat(weights))


def _added_up(
    keys: Int[Tensor, "N"], weights: Float[Tensor, "N"]
) -> tuple[Int[Tensor, "M"], Float[Tensor, "M"]]:
    """Each key once, with the sum of its weights.

    >>> [each.tolist() for each in _added_up(torch.tensor([7, 5, 7]), torch.tensor([1.0, 2, 3]))]
    [[5, 7], [2.0, 4.0]]
    """
    found, place = keys.unique(return_inverse=True)
    return found, weights.new_zeros(len(found)).index_add_(0, place, weights)


class CellBatches(WholeBatches):
    """Cells in batches, each once an epoch: `rows`, `columns` and `counts`, all [B]."""

    def __init__(self, cells: Cells, batch: int, seed: int) -> None:
        super().__init__(batch)
        self._cells = cells
        self._seed = seed
        self._known: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        return -(-len(self._cells.counts) // self.rows)

    def batch(self, epoch: int, index: int) -> Batch:
        """The next cells of an epoch's order."""
        if self._known is None or self._known[0] != epoch:
            self._known = (epoch, shuffled(len(self._cells.counts), self._seed, epoch))
        first = within(index, len(self)) * self.rows
        found = self._cells.chosen(self._known[1][first : first + self.rows])
        return {"rows": found.rows, "columns": found.columns, "counts": found.counts.float()}
