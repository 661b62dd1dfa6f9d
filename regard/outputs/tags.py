"""A tag for each word of a sentence: the loss of tags, their probabilities, and the best ones.

`IndependentTags` decides each word by itself; `ChainTags` (outputs/crf.py) a sentence as a whole.

>>> output = IndependentTags(torch.zeros(1, 2, 3), torch.tensor([2]))
>>> round(output.nll(torch.tensor([[0, 1]])).item() / 2, 4)          # log 3 for each word
1.0986
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.padding import real_positions
from regard.core.protocols import Batch
from regard.outputs.output import ModelOutput


@dataclass(frozen=True)
class LegalTags:
    """Which tags may follow which; true means that it is allowed."""

    pairs: Bool[Tensor, "C C"]
    """The column's tag after the row's."""
    start: Bool[Tensor, "C"]
    end: Bool[Tensor, "C"]


@dataclass(frozen=True)
class Tags(ModelOutput):
    """Tags of the words of some sentences; those at padding mean nothing."""

    scores: Float[Tensor, "B T C"]
    """How well each tag fits each word."""
    lengths: Int[Tensor, "B"]

    @abstractmethod
    def nll(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """-log p of the tags of every sentence, summed."""

    @abstractmethod
    def best(self, legal: LegalTags | None = None) -> Int[Tensor, "B T"]:
        """The likeliest tags; 0 at padding. Where a sentence is decided as a whole, only what is
        legal is considered."""

    @abstractmethod
    def probabilities(self) -> Float[Tensor, "B T C"]:
        """Of every tag at every word, whatever the others are; 0 at padding."""

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Against `tags` [B,T]."""
        return self.with_auxiliary(self.nll(batch["tags"]))


@dataclass(frozen=True)
class IndependentTags(Tags):
    """A softmax at each word."""

    def nll(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """The cross-entropy of the real words."""
        real = real_positions(self.lengths, targets.shape[1])
        return F.cross_entropy(self.scores[real], targets[real], reduction="sum")

    def best(self, legal: LegalTags | None = None) -> Int[Tensor, "B T"]:
        """The best of each word by itself, legal or not."""
        real = real_positions(self.lengths, self.scores.shape[1])
        return torch.where(real, self.scores.argmax(2), 0)

    def probabilities(self) -> Float[Tensor, "B T C"]:
        """The softmax itself."""
        real = real_positions(self.lengths, self.scores.shape[1])
        return self.scores.softmax(2) * real[..., None]
