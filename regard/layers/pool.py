"""Attention that makes one vector of many: a learned query asks every word how much it says.

- additive: e = vᵀ tanh(W h + b), Jain and Wallace's tanh attention (2019, section 3) and Yang et
  al.'s word attention (2016, eq. 5 and 6);
- dot: e = vᵀ h / √D, which Jain and Wallace call scaled dot;
- even: e = 0, the mean, which any of them has to beat (Wiegreffe and Pinter 2019, section 3.2).

Since v is one vector for all texts, tanh(W h + b) is a key like any other and the score a product:
a fused kernel does it.

>>> pool = AttentionPool("additive", 6)
>>> states = torch.randn(2, 4, 6)
>>> pool(states, padding(torch.tensor([4, 0]))).shape
torch.Size([2, 1, 6])
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Attend, Dot, Even, Mask, ScaledDot, Score, Weigh
from regard.attention import padding as padding
from regard.core.errors import choose, positive


class AttentionPool(nn.Module):
    """A weighted mean of states, for one query or for several that ask the same."""

    def __init__(
        self, score: str, width: int, *, hidden: int | None = None, weigh: Weigh | None = None
    ) -> None:
        super().__init__()
        kind = choose("score of pooling", score, POOLS)
        asked = positive("hidden", hidden or width) if score == "additive" else width
        self.hidden = nn.Linear(width, asked) if score == "additive" else None
        self.query = None if score == "even" else nn.Parameter(torch.empty(asked))
        self.attend = Attend(kind(asked), weigh, kind="pool")
        if self.query is not None:
            nn.init.normal_(self.query, std=asked**-0.5)

    def forward(
        self, states: Float[Tensor, "B K D"], mask: Mask | None, queries: int = 1
    ) -> Float[Tensor, "B Q D"]:
        """What each query takes home; one with nothing to look at reads zero."""
        keys = states if self.hidden is None else self.hidden(states).tanh()  # [B,K,A]
        one = keys.new_zeros(keys.shape[2]) if self.query is None else self.query  # [A]
        asked = one.expand(len(keys), 1, queries, keys.shape[2])  # [B,1,Q,A]
        memory = self.attend.remember(keys[:, None], states[:, None])
        read: Tensor = self.attend(asked, memory, mask)  # [B,1,Q,D]
        return read.squeeze(1)


POOLS: dict[str, type[Score]] = {"additive": Dot, "dot": ScaledDot, "even": Even}
"""The score between the query and what it asks, by the name a recipe calls the pooling."""
