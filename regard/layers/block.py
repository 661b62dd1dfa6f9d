"""A Transformer layer: attention and feed-forward, each in a residual branch.

>>> import torch
>>> EncoderBlock(16, heads=4, hidden=32)(torch.randn(2, 5, 16)).shape
torch.Size([2, 5, 16])
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import START, Mask, Memory, Past
from regard.kernels.dropout import Dropout
from regard.layers.cache import Cache
from regard.layers.feedforward import FeedForward
from regard.layers.multihead import CrossAttention, SelfAttention
from regard.layers.source_memory import SourceMemory


class Residual(nn.Module):
    """x + dropout(f(norm(x))), or norm(x + dropout(f(x))) as the paper first had it.

    Normalising inside the branch (Xiong et al. 2020) trains without warm-up; after the sum is
    Vaswani et al. 2017, section 5.4.
    """

    def __init__(
        self,
        width: int,
        *,
        dropout: float = 0.0,
        norm_first: bool = True,
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=norm_eps)
        self.dropout = Dropout(dropout)
        self.norm_first = norm_first

    def enter(self, x: Tensor) -> Tensor:
        """What the branch is given."""
        entered: Tensor = self.norm(x) if self.norm_first else x
        return entered

    def leave(self, x: Tensor, branch: Tensor) -> Tensor:
        """The sum of what went by and what the branch made."""
        total = self.dropout.add(x, branch)
        left: Tensor = total if self.norm_first else self.norm(total)
        return left

    def forward(self, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Around a branch that takes and gives one tensor."""
        return self.leave(x, branch(self.enter(x)))


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward. With a causal mask, the layer of a decoder-only model."""

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        *,
        dropout: float = 0.0,
        norm_first: bool = True,
        norm_eps: float = 1e-5,
        attention: SelfAttention | None = None,
        feedforward: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention = attention or SelfAttention(width, heads, dropout=dropout)
        self.feedforward = feedforward or FeedForward(width, hidden, dropout=dropout)
        self.around_attention, self.around_feedforward = (
            Residual(width, dropout=dropout, norm_first=norm_first, norm_eps=norm_eps)
            for _ in range(2)
        )

    def forward(
        self, x: Float[Tensor, "B T D"], mask: Mask | None = None
    ) -> Float[Tensor, "B T D"]:
        """The whole sequence at once."""
        x = self.around_attention(x, lambda entered: self.attention(entered, mask))
        return self._fed(x)

    def step(
        self, x: Float[Tensor, "B T D"], cache: Cache, mask: Mask | None = None
    ) -> tuple[Float[Tensor, "B T D"], Cache]:
        """The next positions, after those in the cache."""
        branch, cache = self.attention.step(self.around_attention.enter(x), cache, mask)
        return self._fed(self.around_attention.leave(x, branch)), cache

    def _fed(self, x: Tensor) -> Tensor:
        fed: Tensor = self.around_feedforward(x, self.feedforward)
        return fed


class DecoderBlock(nn.Module):
    """Causal self-attention, attention to a remembered source, then feed-forward."""

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        *,
        dropout: float = 0.0,
        norm_first: bool = True,
        attention: SelfAttention | None = None,
        cross: CrossAttention | None = None,
        feedforward: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention = attention or SelfAttention(width, heads, dropout=dropout)
        self.cross = cross or CrossAttention(width, heads, dropout=dropout)
        self.feedforward = feedforward or FeedForward(width, hidden, dropout=dropout)
        self.around_attention = Residual(width, dropout=dropout, norm_first=norm_first)
        self.around_cross = Residual(width, dropout=dropout, norm_first=norm_first)
        self.around_feedforward = Residual(width, dropout=dropout, norm_first=norm_first)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: Memory,
        mask: Mask | None = None,
        source_mask: Mask | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The whole target at once."""
        x = self.around_attention(x, lambda entered: self.attention(entered, mask))
        x = self.around_cross(x, lambda entered: self.cross(entered, memory, source_mask))
        return self._fed(x)

    def step(
        self,
        x: Float[Tensor, "B T D"],
        memory: Memory,
        cache: Cache,
        mask: Mask | None = None,
        source_mask: Mask | None = None,
        past: Past = START,
    ) -> tuple[Float[Tensor, "B T D"], Cache, Past]:
        """The next positions; the past is that of the attention to the source."""
        branch, cache = self.attention.step(self.around_attention.enter(x), cache, mask)
        x = self.around_attention.leave(x, branch)
        branch, past = self.cross.step(self.around_cross.enter(x), memory, source_mask, past)
        return self._fed(self.around_cross.leave(x, branch)), cache, past

    def step_shared(
        self,
        x: Float[Tensor, "B 1 D"],
        source: SourceMemory,
        layer: int,
        cache: Cache,
        mask: Mask | None = None,
        past: Past = START,
    ) -> tuple[Float[Tensor, "B 1 D"], Cache, Past]:
        """The next position of each row, where several rows may look at one source."""
        branch, cache = self.attention.step(self.around_attention.enter(x), cache, mask)
        x = self.around_attention.leave(x, branch)
        branch, past = self.cross.step_shared(self.around_cross.enter(x), source, layer, past)
        return self._fed(self.around_cross.leave(x, branch)), cache, past

    def _fed(self, x: Tensor) -> Tensor:
        fed: Tensor = self.around_feedforward(x, self.feedforward)
        return fed
