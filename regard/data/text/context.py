"""Words with the words around them, in batches from which word vectors are learnt.

A batch is the next `words` words of a text. As in word2vec (Mikolov et al. 2013), frequent words
are dropped at random before anything else, so that windows reach over them, and each centre looks a
random distance of 1 to `reach` words to either side; no window reaches into another text. What is
left is cut into rows of `CENTRES` words with `reach` more on either side. Each row has its own
words drawn as noise, in proportion to their counts to the power 3/4.

>>> ids = torch.tensor([4, 5, 6, 3, 4, 5])                  # 3 ends a text
>>> batches = ContextBatches(ids, Counts.of(ids, 7), words=8, reach=2, noise=2, sample=0.0, seed=0)
>>> batch = batches.batch(0, 0)
>>> batch["words"][0, :9].tolist()                          # two before the first word
[0, 0, 4, 5, 6, 0, 4, 5, 0]
>>> batch["near"][0, 0].nonzero().flatten().tolist()        # the centre 4 sees 5 and maybe 6
[3]
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from regard.core.errors import UserError, positive
from regard.core.protocols import Batch
from regard.data.batch import WholeBatches, digest_of, draws, within

CENTRES = 16
"""Centres in a row: few enough that the noise is not the same for too many of them, enough that
their products with it are matrix products."""

NO_WORD, UNKNOWN, END = 0, 1, 3
"""The numbers of padding, of unknown words, which are passed over, and of the end of a text."""

SPECIAL = 4
"""Words begin after the special tokens."""


@dataclass(frozen=True)
class Counts:
    """How often each word of a vocabulary occurs; special tokens never do."""

    counts: Float[Tensor, "V"]

    @staticmethod
    def of(ids: Integer[Tensor, "T"], vocabulary: int) -> "Counts":
        """Those of a text."""
        counts = torch.zeros(vocabulary, dtype=torch.float64)
        for piece in ids.split(1 << 24):
            counts += torch.bincount(piece.int(), minlength=vocabulary)
        counts[:SPECIAL] = 0.0
        if not bool(counts.sum()):
            raise UserError("there are no words in this text to learn vectors from")
        return Counts(counts)

    def kept(self, sample: float) -> Float[Tensor, "V"]:
        """The share of each word that is not dropped: √(t/f) + t/f, as word2vec's code has it.

        >>> Counts(torch.tensor([0.0, 0, 0, 0, 1, 99]).double()).kept(0.01)[4:].tolist()[0]
        1.0
        """
        if sample <= 0:
            return (self.counts > 0).double()
        ratio = sample * self.counts.sum() / self.counts.clamp_min(1)
        return (ratio.sqrt() + ratio).clamp_max(1.0) * (self.counts > 0)

    def noise(self) -> Float[Tensor, "V"]:
        """The probabilities of words drawn as noise, summed up: counts to the power 3/4."""
        summed = self.counts.pow(0.75).cumsum(0)
        return summed / summed[-1]


class ContextBatches(WholeBatches):
    """Rows of centres, what is near each, and noise: `words` [B,K], `near` [B,Q,K], `noise` [B,C].

    Centre q of a row is word `reach` + q of it; `near` is true for what lies in its window.
    """

    def __init__(
        self,
        ids: Integer[Tensor, "T"],
        counts: Counts,
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
        return digest_of(self._ids)

    def batch(self, epoch: int, index: int) -> Batch:
        """The words of one place of the text, anew for every epoch."""
        first = within(index, len(self)) * self._words
        read = self._ids[first : first + self._words].long()
        fate = draws(len(read), self._seed, epoch, index, 0)
        read = read[(fate < self._kept[read]) | (read == END)]
        if not len(read):
            read = torch.tensor([END])
        rows = -(-len(read) // CENTRES)
        words, texts = self._rows(read, rows)
        return {
            "words": words,
            "near": self._near(words, texts, epoch, index),
            **self._drawn_for(rows, epoch, index),
        }

    def _rows(self, read: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """Words cut into rows that share their edges, and the text that each belongs to."""
        flat = torch.zeros(rows * CENTRES + 2 * self._reach, dtype=torch.int64)
        flat[self._reach : self._reach + len(read)] = read
        texts = (flat == END).cumsum(0)
        flat[flat == END] = NO_WORD
        width = CENTRES + 2 * self._reach
        return flat.unfold(0, width, CENTRES), texts.unfold(0, width, CENTRES)

    def _near(self, words: Tensor, texts: Tensor, epoch: int, index: int) -> Tensor:
        """Which words are in the window of which centre."""
        rows, inside = len(words), slice(self._reach, self._reach + CENTRES)
        drawn = draws(rows * CENTRES, self._seed, epoch, index, 1) % self._reach + 1
        reach = drawn.unflatten(0, (rows, CENTRES))[..., None]  # [B,Q,1]
        one_text = texts[:, None] == texts[:, inside, None]
        there = (words[:, None] != NO_WORD) & (words[:, inside, None] != NO_WORD)  # [B,Q,K]
        near: Tensor = one_text & there & (self._distance > 0) & (self._distance <= reach)
        return near

    def _drawn_for(self, rows: int, epoch: int, index: int) -> Batch:
        """Words drawn for each row."""
        drawn = draws(rows * self._drawn, self._seed, epoch, index, 2).double() / 2.0**63
        noise = torch.searchsorted(self._noise, drawn, right=True)
        return {"noise": noise.clamp_max(len(self._noise) - 1).unflatten(0, (rows, self._drawn))}
