"""Readers whose truth is known, because it was planted."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.protocols import Batch
from regard.explain.reader import Read, Reader


class Planted(Reader):
    """Tokens are numbers; a reader of plain tensors, as a user would write one."""

    def judged(self, batch: Batch) -> Bool[Tensor, "B T"]:
        return torch.arange(batch["tokens"].shape[1]) < batch["lengths"][:, None]

    def embed(self, batch: Batch) -> Float[Tensor, "B T D"]:
        return batch["tokens"][:, :, None].double()

    def kept(self, batch: Batch, keep: Bool[Tensor, "B T"]) -> Batch:
        keep = keep & self.judged(batch)
        order = (~keep).to(torch.uint8).argsort(dim=1, stable=True)
        counts = keep.sum(1)
        closed = batch["tokens"].gather(1, order)[:, : max(1, int(counts.max()))]
        real = torch.arange(closed.shape[1]) < counts[:, None]
        return {"tokens": closed * real, "lengths": counts}

    def weighed(self, scores: Tensor, batch: Batch) -> Tensor:
        masked = scores.masked_fill(~self.judged(batch), -1e9)
        return masked.softmax(1) * self.judged(batch)


class AllAttention(Planted):
    """What it says is the value of the token it looks at, and it looks at the highest."""

    def read(
        self,
        batch: Batch,
        *,
        weights: Float[Tensor, "B T"] | None = None,
        embedded: Float[Tensor, "B T D"] | None = None,
    ) -> Read:
        values = (self.embed(batch) if embedded is None else embedded)[:, :, 0]
        own = self.weighed(8 * values, batch) if weights is None else weights
        said = torch.sigmoid(6 * ((own * values).sum(1) - 0.5))
        return Read(torch.stack((1 - said, said), 1), own)


class NoAttention(Planted):
    """It looks here and there, and what it says is the mean of all it was given."""

    def read(
        self,
        batch: Batch,
        *,
        weights: Float[Tensor, "B T"] | None = None,
        embedded: Float[Tensor, "B T D"] | None = None,
    ) -> Read:
        values = (self.embed(batch) if embedded is None else embedded)[:, :, 0]
        noise = torch.frac(1e3 * torch.sin(1e4 * self.embed(batch)[:, :, 0]))  # of the token alone
        own = self.weighed(3 * noise, batch) if weights is None else weights
        real = self.judged(batch)
        said = torch.sigmoid(6 * ((values * real).sum(1) / real.sum(1).clamp_min(1) - 0.5))
        said = said + 0 * own.sum(1)  # in the graph, yet without effect
        return Read(torch.stack((1 - said, said), 1), own)


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
