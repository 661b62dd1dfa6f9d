"""The distribution of the next token at each position, as a value that a model returns.

A loss asks it how likely the targets are, a search asks it for logits; neither needs to know how
the model came by it, and the table of all logits is never held where only the targets matter.

>>> import torch
>>> words = Vocabulary(torch.zeros(1, 2, 4), torch.randn(10, 4))
>>> round(words.surprise(torch.tensor([[3, 5]])).item() / 2, 4)      # log 10 for each of two
2.3026
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.precision import in_float32

IGNORED = -100
"""The target of a position that is not to be predicted."""

PIECE = 2**24
"""Logits that are held at a time, 64 MiB: more would not fit a cache either way ..."""

ROWS = 512
"""... but the words of a large vocabulary are read and their gradient written once a piece, so that
one has this many positions, if there is room."""

ROOM = 2**26
"""The most logits of a piece: 256 MiB."""


class Prediction(ABC):
    """What a language model says of the next token, at each position of each sequence."""

    @abstractmethod
    def surprise(
        self, targets: Int[Tensor, "B T"], *, smoothing: float = 0.0, never: int | None = None
    ) -> Float[Tensor, ""]:
        """-log p of the targets, summed over all that are not `IGNORED`.

        A part of it, `smoothing`, is the mean over all words; but for the one that is `never` a
        target, padding say, which would otherwise learn to be a little likely everywhere.
        """

    @abstractmethod
    def log_probability(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Log p of each target; zero where it is `IGNORED`."""

    @abstractmethod
    def logits(self) -> Float[Tensor, "B T V"]:
        """Log-probabilities of all tokens, up to a constant for each position."""


@dataclass(frozen=True)
class Vocabulary(Prediction):
    """softmax(W h + b): the usual output layer."""

    states: Float[Tensor, "B T D"]
    weight: Float[Tensor, "V D"]
    bias: Float[Tensor, "V"] | None = None

    def surprise(
        self, targets: Int[Tensor, "B T"], *, smoothing: float = 0.0, never: int | None = None
    ) -> Float[Tensor, ""]:
        """Projection and cross-entropy in one, a few positions at a time.

        A part of the smoothing spreads over all words: -(1-s) log p(y) - s mean log p. That is
        -log p(y) and s times what the target's logit is above the mean one; and since logits are
        linear in the weights, the mean logit is that of the mean word.
        """
        states, words = self._asked(targets)
        total = self._cross_entropy(states, words, "sum")
        if smoothing == 0.0:
            return total
        above = F.embedding(words.clamp_min(0), self.weight) - _mean_but(self.weight, never)
        gain = (states * above).sum(1)
        if self.bias is not None:
            gain = gain + self.bias[words.clamp_min(0)] - _mean_but(self.bias, never)
        return total + smoothing * (gain * (words != IGNORED)).sum()

    def log_probability(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """The same, position by position."""
        states = self.states.flatten(0, 1)
        return -self._cross_entropy(states, targets.flatten(), "none").view_as(targets)

    def _asked(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """States and words one under another; on a processor without those that are `IGNORED`.

        A tenth of a batch is padding, whose logits cost as much as any. Elsewhere it would cost
        more to wait for how many there are.
        """
        states, words = self.states.flatten(0, 1), targets.flatten()
        if words.device.type != "cpu":
            return states, words
        real = (words != IGNORED).nonzero().squeeze(1)
        if len(real) in (0, len(words)):
            return states, words
        return states.index_select(0, real), words.index_select(0, real)

    def _cross_entropy(self, states: Tensor, words: Tensor, reduction: str) -> Tensor:
        pieces = self._pieces(len(words))
        return F.linear_cross_entropy(
            # In pieces the loss has the dtype of the states: a sum in bfloat16 has three digits.
            states if pieces is None else in_float32(states),
            self.weight,
            words,
            linear_bias=self.bias,
            reduction=reduction,
            ignore_index=IGNORED,
            options=pieces,
        )

    def _pieces(self, positions: int) -> nn.LinearCrossEntropyOptions | None:
        """How many positions at a time; all at once where they are few."""
        words = self.weight.shape[0]
        if positions * words <= PIECE:
            return None
        rows = max(16, PIECE // words, min(ROWS, ROOM // words))
        return nn.LinearCrossEntropyOptions(
            batch_chunk_size=rows, chunking_method=None, allow_retain_graph=True
        )

    def logits(self) -> Float[Tensor, "B T V"]:
        """W h + b."""
        return F.linear(self.states, self.weight, self.bias)


def _mean_but(rows: Float[Tensor, "V ..."], never: int | None) -> Float[Tensor, "..."]:
    """The mean of all rows but one.

    >>> import torch
    >>> _mean_but(torch.tensor([7.0, 1.0, 3.0]), 0)
    tensor(2.)
    """
    return rows.mean(0) if never is None else (rows.sum(0) - rows[never]) / (len(rows) - 1)
