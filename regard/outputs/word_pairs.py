"""Scores of pairs of words, for models that learn word vectors.

Negative sampling (Mikolov et al. 2013, eq. 4) separates neighbours from random words, the noise:

    -log σ(u·v) for a neighbour, and -log σ(-u·v) for each of k noise words

>>> scores = torch.zeros(1, 1, 3)
>>> positive, negative = torch.tensor([[[1.0, 0, 0]]]), torch.tensor([[[0.0, 2, 3]]])
>>> output = NegativeSampling(scores, positive, negative)
>>> round(output.loss({}).item(), 3), output.items           # log 2 for each of 1 + 2 + 3
(4.159, 1)
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch as torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core.precision import in_float32
from regard.core.protocols import Batch
from regard.outputs.output import ModelOutput


@dataclass(frozen=True)
class WordPairs(ModelOutput):
    """What a model of word vectors predicts for the pairs of a batch."""

    @property
    @abstractmethod
    def items(self) -> int:
        """How many predictions the loss is summed over."""


@dataclass(frozen=True)
class NegativeSampling(WordPairs):
    """Scores of words beside centres, and how much each counts as neighbour and as noise."""

    scores: Float[Tensor, "B Q K"]
    positive: Float[Tensor, "B Q K"]
    negative: Float[Tensor, "B Q K"]

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """-log σ(s) where positive, -log σ(-s) where negative; the batch adds nothing to it."""
        # softplus(-s) = softplus(s) - s, so that one pass over the scores does for both.
        each = (self.scores, self.positive, self.negative)
        scores, positive, negative = (in_float32(tensor) for tensor in each)
        total = (F.softplus(scores) * (positive + negative)).sum() - (scores * positive).sum()
        return self.with_auxiliary(total)

    @property
    def items(self) -> int:
        """Pairs."""
        return int(in_float32(self.positive).sum())


@dataclass(frozen=True)
class LogCounts(WordPairs):
    """Predicted logarithms of counts, by weighted squares (Pennington et al. 2014, eq. 8)."""

    predicted: Float[Tensor, "B"]
    x_max: float
    """The count from which all weigh the same."""

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Σ f(x) (predicted - log x)², f(x) = min(1, (x / x_max)^(3/4)), for `counts` x [B]."""
        counts = batch["counts"]
        weights = (counts / self.x_max).clamp_max(1.0).pow(0.75)
        total = (weights * (self.predicted - counts.log()).square()).sum()
        return self.with_auxiliary(total)

    @property
    def items(self) -> int:
        """Cells."""
        return len(self.predicted)
