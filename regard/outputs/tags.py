"""What a tagger says of each word, as a value: a loss asks it how likely tags are, people the best.

`Apart` decides each word for itself; `Chain` (layers/crf.py) decides a sentence as a whole.

>>> said = Apart(torch.zeros(1, 2, 3), torch.tensor([2]))
>>> round(said.surprise(torch.tensor([[0, 1]])).item() / 2, 4)          # log 3 for each word
1.0986
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.bidirectional import within


@dataclass(frozen=True)
class Tags(ABC):
    """Tags of the words of some sentences; those at padding mean nothing."""

    scores: Float[Tensor, "B T C"]
    """How well each tag fits each word."""
    lengths: Int[Tensor, "B"]

    @abstractmethod
    def surprise(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """-log p of the tags of every sentence, summed."""

    @abstractmethod
    def best(self) -> Int[Tensor, "B T"]:
        """The likeliest tags; 0 at padding."""

    @abstractmethod
    def probabilities(self) -> Float[Tensor, "B T C"]:
        """Of every tag at every word, whatever the others are; 0 at padding."""


@dataclass(frozen=True)
class Apart(Tags):
    """A softmax at each word."""

    def surprise(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """The cross-entropy of the real words."""
        real = within(self.lengths, targets.shape[1])
        return F.cross_entropy(self.scores[real], targets[real], reduction="sum")

    def best(self) -> Int[Tensor, "B T"]:
        """The best of each word."""
        return torch.where(within(self.lengths, self.scores.shape[1]), self.scores.argmax(2), 0)

    def probabilities(self) -> Float[Tensor, "B T C"]:
        """The softmax itself."""
        real = within(self.lengths, self.scores.shape[1])
        return self.scores.softmax(2) * real[..., None]
