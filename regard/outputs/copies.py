"""Classes from several copies of a model that train side by side.

>>> output = Copies.of_all(torch.zeros(3, 2, 4), chosen=1)              # three copies
>>> output.logits.shape, round(output.nll(torch.tensor([3, 0])).item(), 4)
(torch.Size([2, 4]), 8.3178)
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.padding import IGNORE
from regard.outputs.classes import Classes


@dataclass(frozen=True)
class Copies(Classes):
    """The logits of one copy are the prediction; the loss is the sum over all copies."""

    every: Float[Tensor, "R B C"]

    @classmethod
    def of_all(cls, every: Float[Tensor, "R B C"], chosen: int) -> "Copies":
        """The output of all copies; one is chosen to predict."""
        return cls(every[chosen], every)

    def nll(
        self,
        targets: Int[Tensor, "B"],
        *,
        weight: Float[Tensor, "C"] | None = None,
        smoothing: float = 0.0,
    ) -> Float[Tensor, ""]:
        """-log p of the targets, summed over items and copies."""
        copies = [
            Classes(each).nll(targets, weight=weight, smoothing=smoothing) for each in self.every
        ]
        return torch.stack(copies).sum()


def losses_of_copies(
    every: Float[Tensor, "R B C"], targets: Int[Tensor, "B"]
) -> Float[Tensor, "R"]:
    """The mean -log p of the targets for each copy."""
    repeated = targets.repeat(len(every), 1)  # [R,B]
    losses = F.cross_entropy(
        every.flatten(0, 1), repeated.flatten(), ignore_index=IGNORE, reduction="none"
    )
    real = (targets != IGNORE).sum().clamp_min(1)
    mean: Tensor = losses.unflatten(0, repeated.shape).sum(1) / real
    return mean
