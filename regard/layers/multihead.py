"""Multi-head attention: of a sequence to itself, and of one sequence to another.

Both are projections around one Attend, so any score and any weighing of the tables serves, and
`record` finds them. Vaswani et al. 2017, section 3.2.2; heads that share keys and values, Ainslie
et al. 2023.

>>> import torch
>>> from regard.attention import causal
>>> layer = SelfAttention(16, heads=4)
>>> layer(torch.randn(2, 5, 16), causal()).shape
torch.Size([2, 5, 16])
"""

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import (
    START,
    Attend,
    Mask,
    Memory,
    Past,
    score_named,
    weigh_named,
)
from regard.attention.tape import AxisPair
from regard.core.errors import UserError, divides, positive
from regard.kernels.linear import Linear
from regard.layers.cache import Cache
from regard.layers.position import Rotary
from regard.layers.source_memory import SourceMemory


class SelfAttention(nn.Module):
    """Self-attention. Queries, keys and values come from one projection.

    `head_width` is the width of each head where some heads were pruned.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_heads: int | None = None,
        head_width: int | None = None,
        score: str = "scaled_dot",
        weigh: str = "softmax",
        rotary: Rotary | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        axes: AxisPair | None = None,
    ) -> None:
        super().__init__()
        self.width = width
        self.heads = heads
        self.head_width = head_width or divides("width", width, "heads", heads)
        self.key_heads = heads if key_heads is None else key_heads
        divides("heads", heads, "key_heads", self.key_heads)
        if rotary is not None and rotary.width != self.head_width:
            raise UserError(
                f"the rotary position is for heads of width {rotary.width}, but width={width} and "
                f"heads={heads} make {self.head_width}"
            )
        self.rotary = rotary
        self.project = Linear(width, (heads + 2 * self.key_heads) * self.head_width, bias=bias)
        self.attend = Attend(
            score_named(score, self.head_width, heads=heads),
            weigh_named(weigh, self.head_width),
            dropout=dropout,
            kind="self",
            axes=axes,
        )
        self.merge = Linear(heads * self.head_width, width, bias=bias)

    def forward(
        self, x: Float[Tensor, "B T D"], mask: Mask | None = None
    ) -> Float[Tensor, "B T D"]:
        """The whole sequence at once."""
        query, memory = self._asked(x, 0)
        return self._merged(self.attend(query, memory, mask))

    def step(
        self, x: Float[Tensor, "B T D"], cache: Cache, mask: Mask | None = None
    ) -> tuple[Float[Tensor, "B T D"], Cache]:
        """The next positions, after those in the cache."""
        query, memory = self._asked(x, cache.first)
        past = replace(cache.past, first=cache.length)
        cache = cache.append(memory)
        if not self.attend.carries:
            return self._merged(self.attend(query, cache.memory, mask, past)), cache
        read, past = self.attend.step(query, cache.memory, mask, past)
        return self._merged(read), replace(cache, past=past)

    def _asked(self, x: Tensor, first: int | Tensor) -> tuple[Tensor, Memory]:
        _check_width(x, self.width, "the sequence")
        parts = (self.heads, self.key_heads, self.key_heads)
        joined = _split_heads(self.project(x), sum(parts))  # [B,H,T,E]
        query, key, value = joined.split(parts, dim=1)
        if self.rotary is not None:
            query, key = self.rotary(query, first), self.rotary(key, first)
        return query, self.attend.remember(key, value)

    def _merged(self, read: Tensor) -> Tensor:
        merged: Tensor = self.merge(read.transpose(1, 2).flatten(2))  # [B,T,D]
        return merged


class CrossAttention(nn.Module):
    """Cross-attention: the keys and values of the other sequence are computed once."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_width: int | None = None,
        value_width: int | None = None,
        key_heads: int | None = None,
        score: str = "scaled_dot",
        weigh: str = "softmax",
        dropout: float = 0.0,
        bias: bool = True,
        kind: str = "cross",
        axes: AxisPair | None = None,
    ) -> None:
        super().__init__()
        self.width = width
        self.heads = heads
        self.head_width = divides("width", width, "heads", heads)
        self.key_heads = heads if key_heads is None else key_heads
        divides("heads", heads, "key_heads", self.key_heads)
        self.key_width = width if key_width is None else positive("key_width", key_width)
        self.value_width = (
            self.key_width if value_width is None else positive("value_width", value_width)
        )
        self.query = Linear(width, width, bias=bias)
        self.key = Linear(self.key_width, self.key_heads * self.head_width, bias=bias)
        self.value = Linear(self.value_width, self.key_heads * self.head_width, bias=bias)
        self.attend = Attend(
            score_named(score, self.head_width, heads=heads),
            weigh_named(weigh, self.head_width),
            dropout=dropout,
            kind=kind,
            axes=axes,
        )
        self.merge = Linear(width, width, bias=bias)

    def remember(
        self, source: Float[Tensor, "B S C"], values: Float[Tensor, "B S W"] | None = None
    ) -> Memory:
        """The source, projected once; values of their own where they are given."""
        _check_width(source, self.key_width, "the source of keys")
        values = source if values is None else values
        _check_width(values, self.value_width, "the source of values")
        return self.attend.remember(
            _split_heads(self.key(source), self.key_heads),
            _split_heads(self.value(values), self.key_heads),
        )

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: Memory,
        mask: Mask | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B T D"]:
        """What each position takes home from the source."""
        return self._merged(self.attend(self._asked(x), memory, mask, past))

    def step(
        self,
        x: Float[Tensor, "B T D"],
        memory: Memory,
        mask: Mask | None = None,
        past: Past = START,
    ) -> tuple[Float[Tensor, "B T D"], Past]:
        """The same, with the past for the positions that follow."""
        if not self.attend.carries:
            return self(x, memory, mask, past), replace(past, first=past.first + x.shape[1])
        read, past = self.attend.step(self._asked(x), memory, mask, past)
        return self._merged(read), past

    def step_shared(
        self, x: Float[Tensor, "B 1 D"], source: SourceMemory, layer: int = 0, past: Past = START
    ) -> tuple[Float[Tensor, "B 1 D"], Past]:
        """The same of a source that several rows may share, which has a memory for each layer."""
        read, past = source.step(self.attend, self._asked(x), layer, past)
        return self._merged(read), past

    def _asked(self, x: Tensor) -> Tensor:
        _check_width(x, self.width, "the sequence")
        return _split_heads(self.query(x), self.heads)

    def _merged(self, read: Tensor) -> Tensor:
        merged: Tensor = self.merge(read.transpose(1, 2).flatten(2))  # [B,T,D]
        return merged


def _split_heads(x: Float[Tensor, "B T D"], heads: int) -> Float[Tensor, "B H T E"]:
    """The last axis cut into heads; a view."""
    return x.view(*x.shape[:2], heads, x.shape[2] // heads).transpose(1, 2)


def heads_by_layer(heads: int, layers: int, left: tuple[int, ...] | None) -> tuple[int, ...]:
    """How many heads each layer has: all, or those that were left.

    >>> heads_by_layer(4, 2, None), heads_by_layer(4, 2, (1, 4))
    ((4, 4), (1, 4))
    """
    if left is None:
        return (heads,) * layers
    if len(left) != layers or max(left) > heads:
        raise UserError(
            f"heads_left={list(left)} must have a number up to heads={heads} for each of {layers} "
            "layers"
        )
    return left


def _check_width(x: Tensor, width: int, what: str) -> None:
    """Refuse a sequence of another width than the layer was built for."""
    if x.dim() != 3 or x.shape[2] != width:
        raise UserError(f"{what} must be [batch, positions, {width}], not {list(x.shape)}")
