"""Erasure: take the tokens out that were looked at most, and see how fast the prediction falls.

Comprehensiveness is what is lost without them, sufficiency what is lost with nothing but them
(DeYoung et al. 2020, ERASER), each averaged over several shares of the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.protocols import Batch
from regard.explain.reader import Reader

_SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Of the judged tokens; at least one is taken."""


@dataclass(frozen=True)
class Erased:
    """What taking out and leaving alone did to p of the likeliest class, for one order."""

    comprehensiveness: Float[Tensor, "B"]
    """The mean fall without the first tokens; large if they mattered."""
    sufficiency: Float[Tensor, "B"]
    """The mean fall with the first tokens alone; small if they were enough."""
    falls: Float[Tensor, "S B"]
    """Without the first tokens, for each share."""


@torch.no_grad()
def erased(
    reader: Reader,
    batch: Batch,
    orders: Mapping[str, Float[Tensor, "B T"]],
    shares: Sequence[float] = _SHARES,
) -> dict[str, Erased]:
    """For each order, by falling numbers: what happens without and with the first of them."""
    judged = reader.judged(batch)
    whole = reader.read(batch).probabilities
    said = whole.argmax(1, keepdim=True)

    def fall(keep: Tensor) -> Tensor:
        left = reader.read(reader.kept(batch, keep)).probabilities
        return (whole - left).gather(1, said).squeeze(1)

    found = {}
    for name, numbers in orders.items():
        without, alone = [], []
        for share in shares:
            first = top(numbers, judged, share)
            without.append(fall(judged & ~first))
            alone.append(fall(first))
        falls = torch.stack(without)  # [S,B]
        found[name] = Erased(falls.mean(0), torch.stack(alone).mean(0), falls)
    return found


def top(
    numbers: Float[Tensor, "B T"], judged: Bool[Tensor, "B T"], share: float
) -> Bool[Tensor, "B T"]:
    """The highest share of the judged tokens; at least one, and never all if there are several."""
    counts = judged.sum(1)
    most = (counts - 1).clamp_min(1)
    wanted = (counts * share).round().long().clamp_min(1).minimum(most)
    order = numbers.where(judged, -torch.inf).argsort(dim=1, descending=True, stable=True)
    places = order.argsort(1)  # where each token stands in the order
    first: Tensor = (places < wanted[:, None]) & judged
    return first


def random_order(judged: Bool[Tensor, "B T"], seed: int = 0) -> Float[Tensor, "B T"]:
    """An order that means nothing, to compare with."""
    draws = torch.Generator().manual_seed(seed)
    return torch.rand(judged.shape, generator=draws).to(judged.device)
