"""Models under audit for which the right verdict is known."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.protocols import Batch
from regard.explain.audited_model import AuditedModel, WeightedPrediction


class Planted(AuditedModel):
    """Tokens are numbers; a model of plain tensors, as a user would write one."""

    def positions(self, batch: Batch) -> Bool[Tensor, "B T"]:
        return torch.arange(batch["tokens"].shape[1]) < batch["lengths"][:, None]

    def embed(self, batch: Batch) -> Float[Tensor, "B T D"]:
        return batch["tokens"][:, :, None].double()

    def select(self, batch: Batch, keep: Bool[Tensor, "B T"]) -> Batch:
        keep = keep & self.positions(batch)
        order = (~keep).to(torch.uint8).argsort(dim=1, stable=True)
        counts = keep.sum(1)
        closed = batch["tokens"].gather(1, order)[:, : max(1, int(counts.max()))]
        real = torch.arange(closed.shape[1]) < counts[:, None]
        return {"tokens": closed * real, "lengths": counts}

    def attention_weights(self, scores: Tensor, batch: Batch) -> Tensor:
        masked = scores.masked_fill(~self.positions(batch), -1e9)
        return masked.softmax(1) * self.positions(batch)


class AllAttention(Planted):
    """It predicts the value of the token it attends to, which is the largest."""

    def predict(
        self,
        batch: Batch,
        *,
        weights: Float[Tensor, "B T"] | None = None,
        vectors: Float[Tensor, "B T D"] | None = None,
    ) -> WeightedPrediction:
        values = (self.embed(batch) if vectors is None else vectors)[:, :, 0]
        own = self.attention_weights(8 * values, batch) if weights is None else weights
        p = torch.sigmoid(6 * ((own * values).sum(1) - 0.5))
        return WeightedPrediction(torch.stack((1 - p, p), 1), own)


class NoAttention(Planted):
    """Its weights are noise, and it predicts the mean of all tokens."""

    def predict(
        self,
        batch: Batch,
        *,
        weights: Float[Tensor, "B T"] | None = None,
        vectors: Float[Tensor, "B T D"] | None = None,
    ) -> WeightedPrediction:
        values = (self.embed(batch) if vectors is None else vectors)[:, :, 0]
        noise = torch.frac(1e3 * torch.sin(1e4 * self.embed(batch)[:, :, 0]))  # of the token alone
        own = self.attention_weights(3 * noise, batch) if weights is None else weights
        real = self.positions(batch)
        p = torch.sigmoid(6 * ((values * real).sum(1) / real.sum(1).clamp_min(1) - 0.5))
        p = p + 0 * own.sum(1)  # in the graph, yet without effect
        return WeightedPrediction(torch.stack((1 - p, p), 1), own)


def texts(seed: int, count: int = 24, longest: int = 12) -> Batch:
    """Texts of several lengths; each has one token that stands out."""
    draws = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, longest + 1, (count,), generator=draws)
    tokens = 0.6 * torch.rand(count, longest, generator=draws, dtype=torch.float64)
    first = torch.rand(count, longest, generator=draws)
    best = first.masked_fill(torch.arange(longest) >= lengths[:, None], -1.0).argmax(1)
    highest = 0.95 + 0.05 * torch.rand(count, generator=draws, dtype=torch.float64)
    tokens[torch.arange(count), best] = highest
    return {"tokens": tokens * (torch.arange(longest) < lengths[:, None]), "lengths": lengths}
