"""Words and their contexts, for training word vectors: windows of words, and co-occurrence counts.

A batch of word2vec (Mikolov et al. 2013) is the next `words` words of a text. Frequent words are
first dropped at random, so that windows reach over them. The window of each word has a random size
of 1 to `reach` words on either side, within one text. The remaining words are split into rows of
`CENTRES` words, with `reach` more on either side. Each row has its own noise words, sampled in
proportion to their counts to the power 3/4.

>>> ids = torch.tensor([4, 5, 6, 3, 4, 5])                  # 3 ends a text
>>> counts = WordCounts.of(ids, 7)
>>> batches = ContextBatches(ids, counts, words=8, reach=2, noise=2, sample=0.0, seed=0)
>>> batch = batches.batch(0, 0)
>>> batch["words"][0, :9].tolist()                          # two before the first word
[0, 0, 4, 5, 6, 0, 4, 5, 0]
>>> batch["near"][0, 0].nonzero().flatten().tolist()        # the centre 4 sees 5 and maybe 6
[3]
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from regard.core.errors import UserError, positive
from regard.core.protocols import Batch
from regard.data.batch import (
    ShardableBatches,
    check_index,
    random_integers,
    random_permutation,
    tensor_digest,
)

CENTRES = 16
"""The number of centre words in a row: few, so that not too many share their noise words, but
enough for efficient matrix products."""

NO_WORD, _UNKNOWN_WORD, TEXT_END = 0, 1, 3
"""The ids of padding, of unknown words, which are skipped, and of the end of a text."""

FIRST_WORD = 4
"""The id of the first word, after the special tokens."""


@dataclass(frozen=True)
class WordCounts:
    """The count of each word of a vocabulary; those of special tokens are 0."""

    counts: Float[Tensor, "V"]

    @staticmethod
    def of(ids: Integer[Tensor, "T"], vocabulary: int) -> "WordCounts":
        """The counts of a text."""
        counts = torch.zeros(vocabulary, dtype=torch.float64)
        for piece in ids.split(1 << 24):
            counts += torch.bincount(piece.int(), minlength=vocabulary)
        counts[:FIRST_WORD] = 0.0
        if not bool(counts.sum()):
            raise UserError("there are no words in this text to learn vectors from")
        return WordCounts(counts)

    def kept(self, sample: float) -> Float[Tensor, "V"]:
        """The probability to keep each word: √(t/f) + t/f, as in the code of word2vec.

        >>> WordCounts(torch.tensor([0.0, 0, 0, 0, 1, 99]).double()).kept(0.01)[4:].tolist()[0]
        1.0
        """
        if sample <= 0:
            return (self.counts > 0).double()
        ratio = sample * self.counts.sum() / self.counts.clamp_min(1)
        return (ratio.sqrt() + ratio).clamp_max(1.0) * (self.counts > 0)

    def noise(self) -> Float[Tensor, "V"]:
        """The cumulative probabilities of noise words: counts to the power 3/4."""
        summed = self.counts.pow(0.75).cumsum(0)
        return summed / summed[-1]


class ContextBatches(ShardableBatches):
    """Rows of words, their windows, and noise words: `words` [B,K], `near` [B,Q,K], `noise` [B,C].

    Centre q of a row is its word `reach` + q; `near` is true for the words in its window.
    """

    def __init__(
        self,
        ids: Integer[Tensor, "T"],
        counts: WordCounts,
        *,
        words: int,
        reach: int,
        noise: int,
        sample: float,
        seed: int,
    ) -> None:
        super().__init__(max(1, positive("words", words) // CENTRES))
        if not len(ids):
            raise UserError("there are no words in this text to learn vectors from")
        self._ids = ids
        self._words = words
        self._reach = positive("reach", reach)
        self._drawn = positive("noise", noise)
        self._seed = seed
        self._kept = (counts.kept(sample) * 2.0**63).clamp_max(2.0**63 - 1024).long()
        self._noise = counts.noise()
        place = torch.arange(CENTRES + 2 * reach)
        self._distance = (place - reach - torch.arange(CENTRES)[:, None]).abs()  # [Q,K]

    def __len__(self) -> int:
        return -(-len(self._ids) // self._words)

    @property
    def digest(self) -> str:
        """The whole text."""
        return tensor_digest(self._ids)

    def batch(self, epoch: int, index: int) -> Batch:
        """The words of one part of the text, sampled again in every epoch."""
        first = check_index(index, len(self)) * self._words
        read = self._ids[first : first + self._words].long()
        fate = random_integers(len(read), self._seed, epoch, index, 0)
        read = read[(fate < self._kept[read]) | (read == TEXT_END)]
        if not len(read):
            read = torch.tensor([TEXT_END])
        rows = -(-len(read) // CENTRES)
        words, texts = self._rows(read, rows)
        return {
            "words": words,
            "near": self._near(words, texts, epoch, index),
            **self._drawn_for(rows, epoch, index),
        }

    def _rows(self, read: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """Words in overlapping rows, and the index of the text of each."""
        flat = torch.zeros(rows * CENTRES + 2 * self._reach, dtype=torch.int64)
        flat[self._reach : self._reach + len(read)] = read
        texts = (flat == TEXT_END).cumsum(0)
        flat[flat == TEXT_END] = NO_WORD
        width = CENTRES + 2 * self._reach
        return flat.unfold(0, width, CENTRES), texts.unfold(0, width, CENTRES)

    def _near(self, words: Tensor, texts: Tensor, epoch: int, index: int) -> Tensor:
        """Which words are in the window of each centre."""
        rows, inside = len(words), slice(self._reach, self._reach + CENTRES)
        drawn = random_integers(rows * CENTRES, self._seed, epoch, index, 1) % self._reach + 1
        reach = drawn.unflatten(0, (rows, CENTRES))[..., None]  # [B,Q,1]
        one_text = texts[:, None] == texts[:, inside, None]
        there = (words[:, None] != NO_WORD) & (words[:, inside, None] != NO_WORD)  # [B,Q,K]
        near: Tensor = one_text & there & (self._distance > 0) & (self._distance <= reach)
        return near

    def _drawn_for(self, rows: int, epoch: int, index: int) -> Batch:
        """The noise words of each row."""
        drawn = random_integers(rows * self._drawn, self._seed, epoch, index, 2).double() / 2.0**63
        noise = torch.searchsorted(self._noise, drawn, right=True)
        return {"noise": noise.clamp_max(len(self._noise) - 1).unflatten(0, (rows, self._drawn))}


COUNT_BLOCK = 1 << 19
"""The number of words that are counted at a time."""


@dataclass(frozen=True)
class CooccurrenceCells:
    """The non-zero cells of the table of co-occurrences."""

    rows: Int[Tensor, "N"]
    columns: Int[Tensor, "N"]
    counts: Float[Tensor, "N"]

    def select(self, which: Integer[Tensor, "M"]) -> "CooccurrenceCells":
        """The cells with these indices."""
        return CooccurrenceCells(self.rows[which], self.columns[which], self.counts[which])


def cooccurrences(ids: Integer[Tensor, "T"], vocabulary: int, reach: int) -> CooccurrenceCells:
    """Sparse counts of words near each other, for GloVe.

    A pair of words at distance d counts 1/d, up to distance `reach` and within one text (Pennington
    et al. 2014, section 4.2); both orders count. Pairs are sorted and summed one block of the text
    at a time, so that memory grows with the number of different pairs, not with the text.

    >>> ids = torch.tensor([4, 5, 4, 3, 4])                     # 3 ends a text
    >>> cells = cooccurrences(ids, vocabulary=6, reach=2)
    >>> sorted(zip(cells.rows.tolist(), cells.columns.tolist(), cells.counts.tolist()))
    [(4, 4, 1.0), (4, 5, 2.0), (5, 4, 2.0)]
    """
    keys, sums = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64)
    positive("reach", reach)
    known = ids[ids.int() != _UNKNOWN_WORD]
    for first in range(0, len(known), COUNT_BLOCK):
        # Including the words near the last ones: a pair counts in the block of its left word.
        found = _pairs_in(
            known[first : first + COUNT_BLOCK + reach].long(), vocabulary, reach, COUNT_BLOCK
        )
        keys, sums = _added_up(torch.cat((keys, found[0])), torch.cat((sums, found[1])))
    if not len(keys):
        raise UserError("no two words of this text are near each other; add more text")
    one, other = keys // vocabulary, keys % vocabulary
    apart = one != other
    return CooccurrenceCells(
        rows=torch.cat((one, other[apart])),
        columns=torch.cat((other, one[apart])),
        counts=torch.cat((sums * (2 - apart.double()), sums[apart])),
    )


def _pairs_in(
    block: Int[Tensor, "T"], vocabulary: int, reach: int, lefts: int
) -> tuple[Int[Tensor, "N"], Float[Tensor, "N"]]:
    """The pairs of a block whose left word is among the first so many; the smaller number first."""
    text = (block == TEXT_END).cumsum(0)
    keys, weights = [], []
    for apart in range(1, reach + 1):
        left, right = block[:-apart][:lefts], block[apart:][:lefts]
        real = (
            (left >= FIRST_WORD) & (right >= FIRST_WORD) & (text[:-apart] == text[apart:])[:lefts]
        )
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


class CooccurrenceBatches(ShardableBatches):
    """Batches of cells, each once per epoch: `rows`, `columns` and `counts`, all [B]."""

    def __init__(self, cells: CooccurrenceCells, batch: int, seed: int) -> None:
        super().__init__(batch)
        self._cells = cells
        self._seed = seed
        self._known: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        return -(-len(self._cells.counts) // self.rows)

    def batch(self, epoch: int, index: int) -> Batch:
        """The next cells in the order of the epoch."""
        if self._known is None or self._known[0] != epoch:
            self._known = (epoch, random_permutation(len(self._cells.counts), self._seed, epoch))
        first = check_index(index, len(self)) * self.rows
        found = self._cells.select(self._known[1][first : first + self.rows])
        return {"rows": found.rows, "columns": found.columns, "counts": found.counts.float()}
