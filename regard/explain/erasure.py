"""Erasure: remove the positions with the largest weights, and measure how far the prediction falls.

Comprehensiveness is the fall without these positions, sufficiency the fall with nothing else
(DeYoung et al. 2020, ERASER), each averaged over several shares of the input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.protocols import Batch
from regard.explain.audited_model import AuditedModel

_SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Of the judged positions; at least one is removed."""


@dataclass(frozen=True)
class ErasureScores:
    """Falls of the predicted class's probability, for one ranking of the positions."""

    comprehensiveness: Float[Tensor, "B"]
    """The mean fall without the first positions; large if they matter."""
    sufficiency: Float[Tensor, "B"]
    """The mean fall with only the first positions; small if they are enough."""
    falls: Float[Tensor, "S B"]
    """The fall without the first positions, for each share."""


@torch.no_grad()
def erase(
    model: AuditedModel,
    batch: Batch,
    rankings: Mapping[str, Float[Tensor, "B T"]],
    shares: Sequence[float] = _SHARES,
) -> dict[str, ErasureScores]:
    """The falls for each ranking, in which larger numbers come first."""
    positions = model.positions(batch)
    whole = model.predict(batch).probabilities
    predicted = whole.argmax(1, keepdim=True)

    def fall(keep: Tensor) -> Tensor:
        rest = model.predict(model.select(batch, keep)).probabilities
        return (whole - rest).gather(1, predicted).squeeze(1)

    scores = {}
    for name, numbers in rankings.items():
        without, alone = [], []
        for share in shares:
            first = top_share(numbers, positions, share)
            without.append(fall(positions & ~first))
            alone.append(fall(first))
        falls = torch.stack(without)  # [S,B]
        scores[name] = ErasureScores(falls.mean(0), torch.stack(alone).mean(0), falls)
    return scores


def top_share(
    numbers: Float[Tensor, "B T"], positions: Bool[Tensor, "B T"], share: float
) -> Bool[Tensor, "B T"]:
    """The largest share of the judged positions: at least one, and never all if there are more."""
    counts = positions.sum(1)
    most = (counts - 1).clamp_min(1)
    wanted = (counts * share).round().long().clamp_min(1).minimum(most)
    order = numbers.where(positions, -torch.inf).argsort(dim=1, descending=True, stable=True)
    ranks = order.argsort(1)
    first: Tensor = (ranks < wanted[:, None]) & positions
    return first


def random_ranking(positions: Bool[Tensor, "B T"], seed: int = 0) -> Float[Tensor, "B T"]:
    """A ranking by chance, to compare with."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(positions.shape, generator=generator).to(positions.device)
