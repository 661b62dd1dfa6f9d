"""A Transformer decoder one position at a time, in as few tensor calls as there can be.

What a small model computes for one token takes less time than finding the way through its modules,
so the weights are taken out of them once, when a search begins. The keys and values of all layers
lie in one tensor, row by row, so that a beam which changes places is copied by one call. The beams
of a sentence ask its source together. `record` and `intervene` are heard as ever.

>>> import torch
>>> from regard.layers.block import DecoderBlock
>>> block = DecoderBlock(16, heads=4, hidden=32).eval()
>>> memory = block.cross.remember(torch.randn(2, 5, 16))
>>> source = Source.of(memory, torch.tensor([5, 3]), attends=[block.cross.attend])
>>> x = torch.randn(2, 16)
>>> with torch.no_grad():
...     decoder = Stepwise.of([block])
...     y, written = decoder(x, Written.begun(), Asked.of(source))
...     same, _, _ = block.step_shared(x[:, None], source, 0, Cache())
>>> torch.allclose(y, same[:, 0], atol=1e-6), written.length
(True, 1)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attend, Dot, Memory, Past, ScaledDot, WeightedSum
from regard.attention.single import hiding, read_single, read_together
from regard.attention.tape import Heard, heard
from regard.layers.block import DecoderBlock, Residual
from regard.layers.cache import Cache, Room
from regard.layers.feedforward import FeedForward
from regard.layers.source import Source

ROOM = 32
"""Positions that are set aside at first; they double when they are used up."""


MANY, SHORT = 256, 768
"""For so many queries, each with keys of no more elements than that, plain products take less time
than a fused kernel, which begins anew with each of them."""


class Shelf:
    """Keys and values of all layers for some positions of each row, `[B,R,2L,D]`, and views of it.

    Several values of Written may share one, as long as only one of them grows.
    """

    __slots__ = ("keys", "places", "tensor", "values", "written")

    def __init__(self, tensor: Tensor, heads: int, written: int) -> None:
        self.tensor, self.written = tensor, written
        twice, width = tensor.shape[2:]
        views = tensor.unflatten(3, (heads, width // heads)).permute(2, 0, 3, 1, 4).unbind(0)
        self.keys, self.values = views[::2], views[1::2]  # each [B,H,R,E]
        self.places = tensor.unflatten(2, (twice // 2, 2)).flatten(3).unbind(2)  # each [B,R,2D]


@dataclass(frozen=True)
class Written:
    """What the decoder has seen: so many positions of a shelf."""

    length: int
    shelf: Shelf | None

    @staticmethod
    def begun() -> "Written":
        """Nothing yet."""
        return Written(0, None)

    def opened(self, rows: int, layers: int, heads: int, like: Tensor) -> Shelf:
        """A shelf with a place for the next position, which nobody else has written."""
        shelf, width = self.shelf, like.shape[1]
        if shelf is None:
            return Shelf(like.new_empty(rows, ROOM, 2 * layers, width), heads, 0)
        room = shelf.tensor.shape[1]
        if shelf.written == self.length < room:
            return shelf
        fresh = shelf.tensor.new_empty(rows, max(room, 2 * self.length), 2 * layers, width)
        fresh[:, : self.length] = shelf.tensor[:, : self.length]
        return Shelf(fresh, heads, self.length)

    def select(self, rows: Int[Tensor, "N"]) -> "Written":
        """That of the chosen batch rows, in that order."""
        if self.shelf is None:
            return self
        old = self.shelf.tensor
        fresh = old.new_empty(len(rows), *old.shape[1:])
        used = self.length * old.shape[2] * old.shape[3]  # in each row, one after another
        flat = old.flatten(1).narrow(1, 0, used)
        torch.index_select(flat, 0, rows, out=fresh.flatten(1).narrow(1, 0, used))
        return Written(self.length, Shelf(fresh, self.shelf.keys[0].shape[1], self.length))

    def caches(self) -> tuple[Cache, ...]:
        """The same as a cache for each layer."""
        if self.shelf is None:
            return ()
        pairs = zip(self.shelf.keys, self.shelf.values, strict=True)
        return tuple(
            Cache(length=self.length, store=Room(key, value, self.shelf.written))
            for key, value in pairs
        )


@dataclass(frozen=True)
class Asked:
    """A source as the steps ask it: its memories cut into heads, and what hides padding."""

    source: Source
    flat: tuple[tuple[Tensor, Tensor], ...]
    """For each layer the keys `[N·H,E,S]` and values `[N·H,S,E]`, for rows that ask together."""
    bias: Float[Tensor, "N 1 1 S"] | None
    """-∞ where there is padding."""
    flat_bias: Float[Tensor, "M 1 S"]
    """The same for all heads one under another."""

    @staticmethod
    def of(source: Source) -> "Asked":
        """The source, with memories that can be flattened without a copy."""
        memories = tuple(
            Memory(each.key.contiguous(), each.value.contiguous()) for each in source.memories
        )
        first = memories[0].key
        heads, keys = first.shape[1:3]
        bias = None
        if source.mask is not None:
            allowed = source.mask.table(1, keys, device=first.device)  # [N,1,1,S]
            bias = hiding(allowed, first.dtype)
        return Asked(
            Source(
                memories=memories,
                lengths=source.lengths,
                mask=source.mask,
                shared=source.shared,
                beams=source.beams,
            ),
            tuple((m.key.flatten(0, 1).transpose(1, 2), m.value.flatten(0, 1)) for m in memories),
            bias,
            first.new_zeros(1, 1, 1)
            if bias is None
            else bias.expand(-1, heads, -1, -1).flatten(0, 1).contiguous(),
        )

    def select(self, rows: Int[Tensor, "B"]) -> "Asked":
        """The source of the chosen rows, in that order."""
        chosen = self.source.select(rows)
        if chosen is self.source:
            return self
        if chosen.memories is self.source.memories:  # only more or fewer rows for each sentence
            return Asked(chosen, self.flat, self.bias, self.flat_bias)
        return Asked.of(chosen)


class Branch:
    """What goes around a branch: LayerNorm before it or after the sum."""

    __slots__ = ("bias", "eps", "first", "shape", "weight")

    def __init__(self, residual: Residual) -> None:
        norm = residual.norm
        self.first, self.shape, self.eps = residual.norm_first, [*norm.normalized_shape], norm.eps
        self.weight, self.bias = norm.weight, norm.bias

    def enter(self, x: Tensor) -> Tensor:
        """What the branch is given."""
        return self._norm(x) if self.first else x

    def leave(self, x: Tensor, branch: Tensor) -> Tensor:
        """The sum of what went by and what the branch made, which is not needed after this."""
        total = branch.add_(x)
        return total if self.first else self._norm(total)

    def _norm(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class Layer:
    """The weights of a DecoderBlock, for the next position of every row."""

    __slots__ = (
        "activation",
        "around",
        "asks",
        "attend",
        "cross",
        "heads",
        "merge",
        "merge_cross",
        "narrow",
        "project",
        "scale",
        "scale_cross",
        "widen",
    )

    def __init__(self, block: DecoderBlock) -> None:
        own, cross, feed = block.attention, block.cross, block.feedforward
        assert isinstance(feed, FeedForward)
        self.around = tuple(
            Branch(each)
            for each in (block.around_attention, block.around_cross, block.around_feedforward)
        )
        self.heads, self.attend, self.cross = own.heads, own.attend, cross.attend
        self.project, self.merge = parameters_of(own.project), parameters_of(own.merge)
        self.asks, self.merge_cross = parameters_of(cross.query), parameters_of(cross.merge)
        self.widen, self.narrow = parameters_of(feed.widen), parameters_of(feed.narrow)
        self.scale, self.scale_cross = scale(own.attend), scale(cross.attend)
        # The sums before it are nobody else's, so they may be changed where they are.
        plain: Callable[[Tensor], Tensor] = feed.activation
        self.activation = torch.relu_ if plain is F.relu else plain

    def __call__(self, x: Tensor, number: int, length: int, shelf: Shelf, asked: Asked) -> Tensor:
        """The state of the position; its key and value are put on the shelf."""
        around, across, last = self.around
        read = self._looked_back(around.enter(x), number, length, shelf)
        x = around.leave(x, F.linear(read, *self.merge))
        read = self._looked_across(across.enter(x), number, length, asked)
        x = across.leave(x, F.linear(read, *self.merge_cross))
        hidden = self.activation(F.linear(last.enter(x), *self.widen))
        return last.leave(x, F.linear(hidden, *self.narrow))

    def _looked_back(self, x: Tensor, number: int, length: int, shelf: Shelf) -> Tensor:
        """What each row takes home from what it has written."""
        rows, width = x.shape
        joined = F.linear(x, *self.project)  # [B,3D]
        shelf.places[number].select(1, length).copy_(joined.narrow(1, width, 2 * width))
        key = shelf.keys[number].narrow(2, 0, length + 1)  # [B,H,T,E]
        value = shelf.values[number].narrow(2, 0, length + 1)
        query = joined.narrow(1, 0, width).view(rows, self.heads, 1, width // self.heads)
        wanted, past = heard(self.attend), Past(first=length)
        if wanted is not None and wanted.edits:
            read = self.attend.forward(query, Memory(key, value), None, past)
        elif rows * self.heads >= MANY and key.shape[2] * key.shape[3] <= SHORT:
            read, weights = read_single(query, key, value, scale=self.scale)
            if wanted is not None:
                self.attend.note(weights.unsqueeze(2), past, wanted)
        else:
            if wanted is not None:
                self.attend.told(query, Memory(key, value), None, past, wanted)
            read = F.scaled_dot_product_attention(query, key, value, scale=self.scale)  # [B,H,1,E]
        return read.reshape(rows, width)

    def _looked_across(self, x: Tensor, number: int, length: int, asked: Asked) -> Tensor:
        """What each row takes home from its source."""
        rows, width = x.shape
        source, heads = asked.source, self.heads
        beams, memory = source.beams, source.memories[number]
        shape = (rows // beams, beams, heads, width // heads)
        query = F.linear(x, *self.asks).view(shape).transpose(1, 2)  # [N,H,Q,E]
        wanted, past = heard(self.cross), Past(first=length)
        if wanted is not None and wanted.edits:
            read = self.cross.forward(query, memory, source.mask, past)
        elif beams > 1:
            read = self._asked_together(query, number, past, asked, wanted)
        elif rows * heads >= MANY and memory.key.shape[2] * memory.key.shape[3] <= SHORT:
            read, weights = read_single(
                query, memory.key, memory.value, scale=self.scale_cross, bias=asked.bias
            )
            if wanted is not None:
                self.cross.note(weights.unsqueeze(2), past, wanted)
            return read.reshape(rows, width)
        else:
            if wanted is not None:
                self.cross.told(query, memory, source.mask, past, wanted)
            read = F.scaled_dot_product_attention(
                query, memory.key, memory.value, attn_mask=asked.bias, scale=self.scale_cross
            )
        return read.transpose(1, 2).reshape(rows, width)

    def _asked_together(
        self, query: Tensor, number: int, past: Past, asked: Asked, wanted: Heard | None
    ) -> Tensor:
        """What the beams of each sentence take home from its source, `[N,H,Q,E]`."""
        (key, value), shape = asked.flat[number], query.shape
        read, weights = read_together(
            query.reshape(key.shape[0], shape[2], shape[3]),
            key,
            value,
            scale=self.scale_cross,
            bias=asked.flat_bias,
            biased=asked.bias is not None,
        )  # [N·H,Q,E] and [N·H,Q,S]
        if wanted is not None:
            self.cross.note(weights.unflatten(0, shape[:2]), past, wanted)
        return read.view(shape)


class Stepwise:
    """The layers of a decoder, taken apart."""

    __slots__ = ("layers",)

    def __init__(self, blocks: Sequence[DecoderBlock]) -> None:
        self.layers = tuple(Layer(block) for block in blocks)

    @staticmethod
    def of(blocks: Sequence[DecoderBlock]) -> "Stepwise | None":
        """None where modules have to be called: for gradients, in training, for other attention."""
        device = next(blocks[0].parameters()).device.type
        if torch.is_grad_enabled() or torch.is_autocast_enabled(device):
            return None
        return Stepwise(blocks) if all(usual(block) for block in blocks) else None

    def __call__(
        self, x: Float[Tensor, "B D"], written: Written, asked: Asked
    ) -> tuple[Float[Tensor, "B D"], Written]:
        """The state of the next position of each row, and what has then been written."""
        length = written.length
        shelf = written.opened(x.shape[0], len(self.layers), self.layers[0].heads, x)
        for number, layer in enumerate(self.layers):
            x = layer(x, number, length, shelf, asked)
        shelf.written = length + 1
        return x, Written(length + 1, shelf)


def usual(block: DecoderBlock) -> bool:
    """Is it as Layer takes it to be, with nobody waiting to be called?"""
    own, cross, feed = block.attention, block.cross, block.feedforward
    linears = (own.project, own.merge, cross.query, cross.merge)
    return (
        not block.training
        and own.rotary is None
        and own.heads == own.key_heads == cross.heads == cross.key_heads
        and fused(own.attend)
        and fused(cross.attend)
        and type(feed) is FeedForward
        and all(type(each) is nn.Linear for each in (*linears, feed.widen, feed.narrow))
        and not any(each._forward_hooks or each._forward_pre_hooks for each in block.modules())
    )


def fused(attend: Attend) -> bool:
    """Products of queries and keys as they are, softmax, and a sum."""
    plain = type(attend.score) in (Dot, ScaledDot) and type(attend.read) is WeightedSum
    return plain and attend.weigh.temperature is not None


def scale(attend: Attend) -> float:
    """What products are multiplied by before the softmax."""
    assert attend.weigh.temperature is not None
    return attend.score.scale / attend.weigh.temperature


def parameters_of(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """What F.linear is given."""
    return linear.weight, linear.bias
