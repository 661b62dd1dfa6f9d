"""Scores of classes for each item of a batch.

>>> output = Classes(torch.zeros(2, 4))
>>> round(output.nll(torch.tensor([3, IGNORE])).item(), 4)             # log 4 for the first
1.3863
"""

from dataclasses import dataclass

import torch as torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.padding import IGNORE
from regard.core.protocols import Batch
from regard.outputs.output import ModelOutput


@dataclass(frozen=True)
class Classes(ModelOutput):
    """A softmax over classes."""

    logits: Float[Tensor, "B C"]

    def nll(
        self,
        targets: Int[Tensor, "B"],
        *,
        weight: Float[Tensor, "C"] | None = None,
        smoothing: float = 0.0,
    ) -> Float[Tensor, ""]:
        """-log p of the targets, summed; `weight` is that of each class in the sum."""
        return F.cross_entropy(
            self.logits,
            targets,
            weight=None if weight is None else weight.to(self.logits),
            ignore_index=IGNORE,
            reduction="sum",
            label_smoothing=smoothing,
        )

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Against `classes` [B]."""
        return self.with_auxiliary(self.nll(batch["classes"]))
