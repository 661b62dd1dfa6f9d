"""The interface of a model under audit: predictions whose attention weights can be replaced.

The tests of an audit use these methods and nothing else. `AuditedSite` (audited_site.py) has them
for any model whose attention is an `Attend`. For a model of your own, write a class with the four
abstract ones; docs/audit.md shows one for plain torch.nn.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.protocols import Batch


@dataclass(frozen=True)
class WeightedPrediction:
    """The predictions for some examples, and the attention weights they were made with."""

    probabilities: Float[Tensor, "B C"]
    weights: Float[Tensor, "B T"]
    """The attention weight of each position; a row sums to one over the allowed positions."""


class AuditedModel(ABC):
    """A model that can be audited.

    Each row of a batch is an example. Its positions are tokens, patches or frames.
    """

    @abstractmethod
    def positions(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """The positions whose weights are judged: no padding, and no special tokens."""

    @abstractmethod
    def embed(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The vectors of the positions, before any layer mixes them."""

    @abstractmethod
    def predict(
        self,
        batch: Batch,
        *,
        weights: Float[Tensor, "B T"] | None = None,
        vectors: Float[Tensor, "B T D"] | None = None,
    ) -> WeightedPrediction:
        """The predictions, with these attention weights or vectors in place of the model's own."""

    @abstractmethod
    def select(self, batch: Batch, keep: Bool[Tensor, "B T"]) -> Batch:
        """The batch without the judged positions that are not in `keep`."""

    def groups(self, batch: Batch) -> Int[Tensor, "B T"]:
        """The number of each position's group; the weights of a group sum to a constant.

        By default all positions are one group. The words of a document whose sentences are read
        one by one are grouped by sentence.
        """
        return torch.zeros_like(self.positions(batch), dtype=torch.int64)

    def reuse(self, batch: Batch) -> AbstractContextManager[None]:
        """A context in which `predict` is called with this batch and other weights only.

        A model may compute what does not depend on the weights once. By default it does not.
        """
        return nullcontext()
