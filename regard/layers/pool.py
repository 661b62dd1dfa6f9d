"""Attention pooling: one vector of many, weighted by scores against a learned query.

- additive: e = vᵀ tanh(W h + b), Jain and Wallace's tanh attention (2019, section 3) and Yang et
  al.'s word attention (2016, eq. 5 and 6);
- dot: e = vᵀ h / √D, which Jain and Wallace call scaled dot;
- even: e = 0, the mean, which any of them has to beat (Wiegreffe and Pinter 2019, section 3.2).

Since v is one vector for all texts, a word's score depends on the word alone. It is computed once,
however many queries there are, such as one for each sentence of a document.

>>> pool = AttentionPool("additive", 6)
>>> states = torch.randn(2, 4, 6)
>>> pool(states, padding(torch.tensor([4, 0]))).shape
torch.Size([2, 1, 6])
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import START, Attend, Mask, Past, Score, Weigh
from regard.attention import padding as padding
from regard.attention.tape import AxisPair
from regard.core.errors import positive, unknown

_POOLS = ("additive", "dot", "even")
"""How a word's score is computed, by the name a recipe calls it."""


class Salience(Score):
    """e = k: the key is the score, whatever the query. Keys have width one."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """The keys as scores, the same for every query."""
        return key.transpose(2, 3).expand(*query.shape[:3], key.shape[2])


class AttentionPool(nn.Module):
    """A weighted mean of states, for one query or for several equal ones."""

    def __init__(
        self,
        score: str,
        width: int,
        *,
        hidden: int | None = None,
        weigh: Weigh | None = None,
        axes: AxisPair | None = None,
    ) -> None:
        super().__init__()
        if score not in _POOLS:
            raise unknown("score of pooling", score, _POOLS)
        size = positive("hidden", hidden or width) if score == "additive" else width
        self.scale = width**-0.5 if score == "dot" else 1.0
        self.hidden = nn.Linear(width, size) if score == "additive" else None
        self.tanh = nn.Tanh()  # a module, so that an audit may keep its output
        self.query = None if score == "even" else nn.Parameter(torch.empty(size))
        self.attend = Attend(Salience(), weigh, kind="pool", axes=axes)
        if self.query is not None:
            nn.init.normal_(self.query, std=size**-0.5)

    def forward(
        self, states: Float[Tensor, "B K D"], mask: Mask | None, queries: int = 1
    ) -> Float[Tensor, "B Q D"]:
        """The context of each query; zero where all keys are masked."""
        scores = self.scores(states)[:, None, :, None]  # [B,1,K,1]
        query = scores.new_zeros(()).expand(len(states), 1, queries, 1)  # [B,1,Q,1]
        memory = self.attend.remember(scores, states[:, None])
        read: Tensor = self.attend(query, memory, mask)  # [B,1,Q,D]
        return read.squeeze(1)

    def scores(self, states: Float[Tensor, "B K D"]) -> Float[Tensor, "B K"]:
        """The score of each word."""
        if self.query is None:
            return states.new_zeros(states.shape[:2])
        words = states if self.hidden is None else self.tanh(self.hidden(states))  # [B,K,A]
        return words @ self.query * self.scale
