"""Bits for each step of a sequence, each with a probability of its own.

>>> output = Bits(torch.zeros(1, 2, 3))
>>> batch = {"bits": torch.ones(1, 2, 3), "scored": torch.tensor([[False, True]])}
>>> round(output.loss(batch).item(), 4)                                 # 3 log 2
2.0794
"""

from dataclasses import dataclass

import torch as torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.protocols import Batch
from regard.outputs.output import ModelOutput


@dataclass(frozen=True)
class Bits(ModelOutput):
    """A sigmoid for each bit."""

    logits: Float[Tensor, "B T C"]

    def nll(self, bits: Float[Tensor, "B T C"], scored: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
        """-log p of the bits at the steps that are scored, summed."""
        each = F.binary_cross_entropy_with_logits(self.logits, bits, reduction="none")
        return (each * scored.unsqueeze(2)).sum()

    def wrong(
        self, bits: Float[Tensor, "B T C"], scored: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B"]:
        """The number of wrong bits of each sequence, at the steps that are scored."""
        missed = ((self.logits > 0) != (bits > 0.5)) & scored.unsqueeze(2)
        return missed.sum((1, 2)).to(self.logits.dtype)

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Against `bits` [B,T,C] where `scored` [B,T] is true."""
        return self.with_auxiliary(self.nll(batch["bits"], batch["scored"]))
