"""How well a model of words fits what stands in a text: values that know their own loss.

Negative sampling (Mikolov et al. 2013, eq. 4) tells real neighbours from words drawn as noise:

    -log σ(u·v) for a neighbour, and -log σ(-u·v) for each of k noise words

A row of centres shares its noise (as in Ji et al. 2016), so scores are products of matrices. A row
has n words drawn, a centre with m neighbours owes k·m terms to the noise: each drawn word stands
for k·m/n of them. A noise word that happens to be the neighbour is left out, pair by pair.

>>> scores = torch.zeros(1, 1, 3)
>>> fit = Contrast(scores, torch.tensor([[[1.0, 0, 0]]]), torch.tensor([[[0.0, 2, 3]]]))
>>> round(fit.surprise().item(), 3), fit.items           # log 2 for each of 1 + 2 + 3
(4.159, 1)
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.errors import UserError
from regard.core.precision import in_float32


class Fit(ABC):
    """What a model of words makes of a batch."""

    @abstractmethod
    def surprise(self) -> Float[Tensor, ""]:
        """The loss, summed over items."""

    @property
    @abstractmethod
    def items(self) -> int:
        """How many predictions the sum is over."""


@dataclass(frozen=True)
class Contrast(Fit):
    """Scores of words beside centres, and how much each counts as neighbour and as noise."""

    scores: Float[Tensor, "B Q K"]
    true: Float[Tensor, "B Q K"]
    noise: Float[Tensor, "B Q K"]

    def surprise(self) -> Float[Tensor, ""]:
        """-log σ(s) where true, -log σ(-s) where noise."""
        # softplus(-s) = softplus(s) - s, so that one pass over the scores does for both.
        scores, true, noise = (in_float32(each) for each in (self.scores, self.true, self.noise))
        return (F.softplus(scores) * (true + noise)).sum() - (scores * true).sum()

    @property
    def items(self) -> int:
        """Pairs."""
        return int(in_float32(self.true).sum())


@dataclass(frozen=True)
class LogCounts(Fit):
    """Predicted logarithms of counts, by weighted squares (Pennington et al. 2014, eq. 8)."""

    predicted: Float[Tensor, "B"]
    counts: Float[Tensor, "B"]
    most: float
    """The count from which all weigh the same: x_max."""

    def surprise(self) -> Float[Tensor, ""]:
        """Σ f(x) (predicted - log x)², f(x) = min(1, (x / x_max)^(3/4))."""
        weights = (self.counts / self.most).clamp_max(1.0).pow(0.75)
        return (weights * (self.predicted - self.counts.log()).square()).sum()

    @property
    def items(self) -> int:
        """Cells."""
        return len(self.counts)


def noise_weights(
    pairs: Float[Tensor, "B Q K"],
    words: Int[Tensor, "B K"],
    drawn: Int[Tensor, "B C"],
    negatives: int,
) -> Float[Tensor, "B Q C"]:
    """For how many terms each drawn word stands beside each centre.

    `pairs` is how often a centre is paired with each of `words`; a drawn word is no noise to a pair
    with that very word.

    >>> pairs = torch.tensor([[[1.0, 1.0]]])                   # one centre, neighbours 7 and 8
    >>> noise_weights(pairs, torch.tensor([[7, 8]]), torch.tensor([[8, 9]]), 5).tolist()
    [[[2.5, 5.0]]]
    """
    same = (words[:, :, None] == drawn[:, None, :]).to(pairs.dtype)  # [B,K,C]
    owed = pairs.sum(2, keepdim=True) - pairs @ same  # [B,Q,C]
    return owed * (negatives / drawn.shape[1])


def centred(words: Int[Tensor, "B K"], near: Bool[Tensor, "B Q K"]) -> Int[Tensor, "B Q"]:
    """The centres of rows that have as many words more on either side."""
    side = (near.shape[2] - near.shape[1]) // 2
    return words[:, side : side + near.shape[1]]


def spread_evenly(table: Float[Tensor, "V D"]) -> None:
    """word2vec's beginning: uniform between ±1/2D; row 0 is no word and stays zero."""
    torch.nn.init.uniform_(table, -0.5 / table.shape[1], 0.5 / table.shape[1])
    with torch.no_grad():
        table[0] = 0.0


def whole_words(name: str, buckets: int) -> None:
    """Raise if there are n-grams for a model that knows none."""
    if buckets:
        raise UserError(f"{name} takes words whole: set data.buckets = 0, not {buckets}")
