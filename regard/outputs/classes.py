"""Scores of classes for each item of a batch, or of labels that are independent, or numbers.

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

    def binary_nll(self, targets: Float[Tensor, "B C"]) -> Float[Tensor, ""]:
        """-log p of independent labels, averaged over labels and summed over items.

        Targets of items that do not count are not numbers (NaN).

        >>> zeros = Classes(torch.zeros(2, 4))
        >>> targets = torch.tensor([[1.0, 0.0, 1.0, 0.0], [torch.nan] * 4])
        >>> round(zeros.binary_nll(targets).item(), 4)                     # log 2
        0.6931
        """
        real = ~targets.isnan().any(1)
        given = targets[real].to(self.logits)
        each = F.binary_cross_entropy_with_logits(self.logits[real], given, reduction="none")
        return each.mean(1).sum()

    def squared_error(self, targets: Float[Tensor, "B C"]) -> Float[Tensor, ""]:
        """Squared differences, averaged over the numbers of an item and summed over items.

        Targets of items that do not count are not numbers (NaN).

        >>> Classes(torch.tensor([[1.0], [5.0]])).squared_error(torch.tensor([[3.0], [torch.nan]]))
        tensor(4.)
        """
        real = ~targets.isnan().any(1)
        return (self.logits[real] - targets[real].to(self.logits)).square().mean(1).sum()

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Against `classes`, [B] or more axes that make B rows."""
        return self.with_auxiliary(self.nll(batch["classes"].flatten()))
