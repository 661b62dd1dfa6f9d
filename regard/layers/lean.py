"""One position through a Transformer layer, without modules that call modules.

A small model writes a token in less time than Python needs to find its way through thirty modules
and their checks. So a decoder takes the layers apart once, when it starts, and then steps with
nothing but the tensor calls themselves. The parameters stay where they are; the attention is still
the layer's own Attend, so `record` and `intervene` see it as ever.

>>> import torch
>>> from regard.layers.block import EncoderBlock
>>> from regard.layers.cache import Cache
>>> block = EncoderBlock(16, heads=4, hidden=32).eval()
>>> x = torch.randn(2, 16)
>>> y, _ = LeanBlock(block)(x, Cache())
>>> torch.allclose(y, block.step(x[:, None], Cache())[0][:, 0], atol=1e-6)
True
"""

from collections.abc import Callable, Iterable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Mask, Memory, Past
from regard.layers.block import EncoderBlock, Residual
from regard.layers.cache import Cache
from regard.layers.feedforward import FeedForward
from regard.layers.multihead import SelfAttention

Bare = Callable[[Tensor], Tensor]
"""What a module computes, as a plain function."""


def taken_apart(blocks: Iterable[nn.Module]) -> "tuple[LeanBlock, ...] | None":
    """Causal layers for single steps; None in training, or if attention minds where keys stand."""
    lean = []
    for block in blocks:
        assert isinstance(block, EncoderBlock)
        if block.training or not block.attention.attend.by_content:
            return None
        lean.append(LeanBlock(block))
    return tuple(lean)


def bare(module: nn.Module) -> Bare:
    """What a module computes; one that has hooks, or that is not known here, is called as it is."""
    if module._forward_hooks or module._forward_pre_hooks:
        return module
    if type(module) is nn.Linear:
        weight, bias = module.weight, module.bias
        return lambda x: F.linear(x, weight, bias)
    if type(module) is nn.LayerNorm:
        shape, scale, shift, eps = (
            list(module.normalized_shape),
            module.weight,
            module.bias,
            module.eps,
        )
        return lambda x: F.layer_norm(x, shape, scale, shift, eps)
    if type(module) is FeedForward:
        widen, activation, narrow = bare(module.widen), module.activation, bare(module.narrow)
        return lambda x: narrow(activation(widen(x)))
    return module


class LeanBranch:
    """What goes around a branch; dropout does nothing here."""

    __slots__ = ("first", "norm")

    def __init__(self, residual: Residual) -> None:
        self.norm, self.first = bare(residual.norm), residual.norm_first

    def enter(self, x: Tensor) -> Tensor:
        """What the branch is given."""
        return self.norm(x) if self.first else x

    def leave(self, x: Tensor, branch: Tensor) -> Tensor:
        """The sum of what went by and what the branch made."""
        return x + branch if self.first else self.norm(x + branch)


class LeanSelf:
    """Self-attention of the next position."""

    __slots__ = ("attend", "merge", "parts", "project", "rotary", "shape", "width")

    def __init__(self, layer: SelfAttention) -> None:
        self.project, self.merge, self.attend = bare(layer.project), bare(layer.merge), layer.attend
        self.parts = [layer.heads, layer.key_heads, layer.key_heads]
        self.shape, self.width = (sum(self.parts), 1, layer.head_width), layer.width
        self.rotary = layer.rotary

    def __call__(self, x: Tensor, cache: Cache, mask: Mask | None) -> tuple[Tensor, Cache]:
        """What the position takes home, and the cache with it."""
        batch = x.shape[0]
        joined = self.project(x).view(batch, *self.shape)  # [B,H,1,E]
        query, key, value = joined.split_with_sizes(self.parts, 1)
        if self.rotary is not None:
            query, key = self.rotary(query, cache.first), self.rotary(key, cache.first)
        past = Past(first=cache.length)
        cache = cache.append(Memory(self.attend.score.prepare(key), value))
        read = self.attend.forward(query, cache.memory, mask, past)
        return self.merge(read.reshape(batch, self.width)), cache


class LeanBlock:
    """An EncoderBlock for the next position of a causal model."""

    __slots__ = ("around_attention", "around_feedforward", "attention", "feedforward")

    def __init__(self, block: EncoderBlock) -> None:
        self.attention, self.feedforward = LeanSelf(block.attention), bare(block.feedforward)
        self.around_attention = LeanBranch(block.around_attention)
        self.around_feedforward = LeanBranch(block.around_feedforward)

    def __call__(
        self, x: Float[Tensor, "B D"], cache: Cache, mask: Mask | None = None
    ) -> tuple[Float[Tensor, "B D"], Cache]:
        """The state of the next position; without a mask it may look at all there is."""
        branch, cache = self.attention(self.around_attention.enter(x), cache, mask)
        x = self.around_attention.leave(x, branch)
        around = self.around_feedforward
        return around.leave(x, self.feedforward(around.enter(x))), cache
