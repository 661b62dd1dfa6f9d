"""Answers as spans of a passage: a score for each token as the first and as the last of a span.

>>> output = Spans(torch.tensor([[0.0, 3.0, 1.0]]), torch.tensor([[5.0, 0.0, 2.0]]))
>>> places, scores = output.best(torch.ones(1, 3, dtype=torch.bool), longest=2)
>>> places.tolist(), scores.tolist()
([[0, 0]], [5.0])
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.padding import IGNORE
from regard.core.protocols import Batch
from regard.outputs.output import ModelOutput


@dataclass(frozen=True)
class Spans(ModelOutput):
    """Scores of tokens as the two ends of an answer."""

    first: Float[Tensor, "B T"]
    last: Float[Tensor, "B T"]

    def nll(self, first: Int[Tensor, "B"], last: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """-log p of both ends, summed; an end that is `IGNORE` does not count."""
        ends = ((self.first, first), (self.last, last))
        losses = [
            F.cross_entropy(scores, end, ignore_index=IGNORE, reduction="sum")
            for scores, end in ends
        ]
        return losses[0] + losses[1]

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """The mean over both ends, against `first` [B] and `last` [B]."""
        return self.with_auxiliary(self.nll(batch["first"], batch["last"]) / 2)

    def best(
        self, allowed: Bool[Tensor, "B T"], longest: int
    ) -> tuple[Int[Tensor, "B 2"], Float[Tensor, "B"]]:
        """The span with the best sum of scores, and that sum; it has at most `longest` tokens.

        Both ends are `allowed`, and the last does not come before the first. Where there is no such
        span the score is minus infinity.
        """
        positions = self.first.shape[1]
        pairs = self.first[:, :, None] + self.last[:, None, :]  # [B,T,T]
        shape = torch.ones(positions, positions, dtype=torch.bool, device=pairs.device)
        near = shape.triu() & ~shape.triu(longest)
        fits = allowed[:, :, None] & allowed[:, None, :] & near  # [B,T,T]
        scores, place = pairs.where(fits, float("-inf")).flatten(1).max(1)
        return torch.stack((place // positions, place % positions), dim=1), scores
