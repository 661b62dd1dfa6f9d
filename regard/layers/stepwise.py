"""A decoder one position at a time, in as few tensor calls as there can be.

What a small model computes for one token takes less time than finding the way through its modules,
so the layers are taken apart once, when a search begins: those of a language model, and those that
look at a source too. The keys and values of all layers lie on one shelf. The beams of a sentence
ask its source together. `record` and `intervene` are heard as ever.

>>> import torch
>>> from regard.layers.cache import Cache
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

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import Attend, Dot, Mask, Memory, Past, ScaledDot, WeightedSum, padding
from regard.attention.tape import Heard, heard
from regard.core.precision import autocast_is_on
from regard.kernels.packed_linear import product
from regard.kernels.single_query import hiding, read_single, read_together
from regard.layers.block import DecoderBlock, EncoderBlock, Residual
from regard.layers.embedding import TokenEmbedding
from regard.layers.key_value_store import Shelf, Written
from regard.layers.multihead import CrossAttention, SelfAttention
from regard.layers.position import Learned, Sinusoidal
from regard.layers.source_memory import Source

MANY, SHORT = 256, 768
"""For so many queries, each with keys of no more elements than that, plain products take less time
than a fused kernel, which begins anew with each of them."""


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


class Now:
    """What all layers know of a step: where it stands, what was written, and what may be seen."""

    __slots__ = ("allowed", "first", "length", "mask", "past", "shelf")

    def __init__(self, written: Written, shelf: Shelf) -> None:
        self.length, self.first, self.shelf = written.length, written.first, shelf
        self.past = Past(first=written.length)
        self.mask: Mask | None = None
        self.allowed: Tensor | None = None
        if written.empty is not None:
            places = torch.arange(written.length + 1, device=written.empty.device)
            there = places >= written.empty[:, None]  # [B,T]
            self.mask, self.allowed = padding(there), there[:, None, None]


class Branch:
    """What goes around a branch; dropout does nothing here."""

    __slots__ = ("first", "norm")

    def __init__(self, residual: Residual) -> None:
        self.norm, self.first = product(residual.norm), residual.norm_first

    def enter(self, x: Tensor) -> Tensor:
        """What the branch is given."""
        return self.norm(x) if self.first else x

    def leave(self, x: Tensor, branch: Tensor) -> Tensor:
        """The sum of what went by and what the branch made, which is not needed after this."""
        total = branch.add_(x)
        return total if self.first else self.norm(total)


class Back:
    """Self-attention of the next position, whose key and value are put on the shelf."""

    __slots__ = ("attend", "grouped", "heads", "merge", "own", "plain", "project", "scale", "shape")

    def __init__(self, layer: SelfAttention) -> None:
        self.attend, self.own = layer.attend, layer.rotary
        self.project, self.merge = product(layer.project), product(layer.merge)
        self.heads, self.shape = layer.heads, (2, layer.key_heads, layer.head_width)
        self.grouped = layer.heads != layer.key_heads
        self.plain, self.scale = _fused(layer.attend), scale(layer.attend)

    def __call__(self, x: Tensor, number: int, now: Now) -> Tensor:
        """What each row takes home from what it has written."""
        rows, heads = x.shape[0], self.heads
        query, new = self._asked(self.project(x), rows, now)
        now.shelf.put(number, now.length, new)
        key = now.shelf.keys[number].narrow(2, 0, now.length + 1)  # [B,G,T,E]
        value = now.shelf.values[number].narrow(2, 0, now.length + 1)
        wanted = heard(self.attend)
        if not self.plain or (wanted is not None and wanted.edits):
            read = self.attend.forward(query, Memory(key, value), now.mask, now.past)
        elif self._many(rows * heads, key, now):
            read, weights = read_single(query, key, value, scale=self.scale)
            if wanted is not None:
                self.attend.note(weights.unsqueeze(2), now.past, wanted)
        else:
            if wanted is not None:
                self.attend.told(query, Memory(key, value), now.mask, now.past, wanted)
            read = F.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=now.allowed,
                scale=self.scale,
                enable_gqa=self.grouped,
            )  # [B,H,1,E]
        return self.merge(read.reshape(rows, heads * self.shape[2]))

    def _asked(self, joined: Tensor, rows: int, now: Now) -> tuple[Tensor, Tensor]:
        """The query `[B,H,1,E]`, and the key and value `[B,2,G,E]`."""
        _, groups, width = self.shape
        asks = self.heads * width
        query = joined.narrow(1, 0, asks).view(rows, self.heads, 1, width)
        new = joined.narrow(1, asks, 2 * groups * width).view(rows, 2, groups, width)
        if self.plain and self.own is None:
            return query, new
        key, value = new.unsqueeze(3).unbind(1)  # [B,G,1,E]
        if self.own is not None:
            query, key = self.own(query, now.first), self.own(key, now.first)
        key = self.attend.score.prepare(key)
        return query, torch.stack((key, value), 1).squeeze(3)

    def _many(self, queries: int, key: Tensor, now: Now) -> bool:
        short = key.shape[2] * key.shape[3] <= SHORT
        return queries >= MANY and short and not self.grouped and now.allowed is None


class Across:
    """Attention of the next position to its source."""

    __slots__ = ("asks", "attend", "heads", "merge", "scale")

    def __init__(self, layer: CrossAttention) -> None:
        self.attend, self.heads, self.scale = layer.attend, layer.heads, scale(layer.attend)
        self.asks, self.merge = product(layer.query), product(layer.merge)

    def __call__(self, x: Tensor, number: int, now: Now, asked: Asked) -> Tensor:
        """What each row takes home from its source."""
        rows, width = x.shape
        source, heads = asked.source, self.heads
        beams, memory = source.beams, source.memories[number]
        shape = (rows // beams, beams, heads, width // heads)
        query = self.asks(x).view(shape).transpose(1, 2)  # [N,H,Q,E]
        wanted, past = heard(self.attend), now.past
        if wanted is not None and wanted.edits:
            read = self.attend.forward(query, memory, source.mask, past)
        elif beams > 1:
            read = self._together(query, number, past, asked, wanted)
        elif rows * heads >= MANY and memory.key.shape[2] * memory.key.shape[3] <= SHORT:
            single, weights = read_single(
                query, memory.key, memory.value, scale=self.scale, bias=asked.bias
            )
            read = single.unsqueeze(2)
            if wanted is not None:
                self.attend.note(weights.unsqueeze(2), past, wanted)
        else:
            if wanted is not None:
                self.attend.told(query, memory, source.mask, past, wanted)
            read = F.scaled_dot_product_attention(
                query, memory.key, memory.value, attn_mask=asked.bias, scale=self.scale
            )
        return self.merge(read.transpose(1, 2).reshape(rows, width))

    def _together(
        self, query: Tensor, number: int, past: Past, asked: Asked, wanted: Heard | None
    ) -> Tensor:
        """What the beams of each sentence take home from its source, `[N,H,Q,E]`."""
        (key, value), shape = asked.flat[number], query.shape
        read, weights = read_together(
            query.reshape(key.shape[0], shape[2], shape[3]),
            key,
            value,
            scale=self.scale,
            bias=asked.flat_bias,
            biased=asked.bias is not None,
        )  # [N·H,Q,E] and [N·H,Q,S]
        if wanted is not None:
            self.attend.note(weights.unflatten(0, shape[:2]), past, wanted)
        return read.view(shape)


class Layer:
    """A block, taken apart; one that looks at a source does so in between."""

    __slots__ = ("across", "around", "back", "feed")

    def __init__(self, block: EncoderBlock | DecoderBlock) -> None:
        self.back, self.feed = Back(block.attention), product(block.feedforward)
        self.across: tuple[Branch, Across] | None = None
        if isinstance(block, DecoderBlock):
            self.across = Branch(block.around_cross), Across(block.cross)
        self.around = Branch(block.around_attention), Branch(block.around_feedforward)

    def __call__(self, x: Tensor, number: int, now: Now, asked: Asked | None) -> Tensor:
        """The state of the position."""
        first, last = self.around
        x = first.leave(x, self.back(first.enter(x), number, now))
        if self.across is not None and asked is not None:
            around, across = self.across
            x = around.leave(x, across(around.enter(x), number, now, asked))
        return last.leave(x, self.feed(last.enter(x)))


class Stepwise:
    """The layers of a decoder, taken apart."""

    __slots__ = ("heads", "layers", "width")

    def __init__(self, blocks: "list[EncoderBlock | DecoderBlock]") -> None:
        self.heads = tuple(block.attention.key_heads for block in blocks)
        self.width = blocks[0].attention.head_width
        self.layers = tuple(Layer(block) for block in blocks)

    @staticmethod
    def of(blocks: "Iterable[EncoderBlock | DecoderBlock]") -> "Stepwise | None":
        """None where modules have to be called: for gradients, in training, for other attention."""
        every = list(blocks)
        device = next(every[0].parameters()).device.type
        if torch.is_grad_enabled() or autocast_is_on(device):
            return None
        return Stepwise(every) if all(_usual(block) for block in every) else None

    def __call__(
        self, x: Float[Tensor, "B D"], written: Written, asked: Asked | None = None
    ) -> tuple[Float[Tensor, "B D"], Written]:
        """The state of the next position of each row, and what has then been written."""
        shelf = written.opened(x, heads=self.heads, width=self.width)
        now = Now(written, shelf)
        for number, layer in enumerate(self.layers):
            x = layer(x, number, now, asked)
        return x, written.grown(shelf)


def entered(
    tokens: Int[Tensor, "B"],
    embed: TokenEmbedding,
    position: Sinusoidal | Learned | None,
    first: int | Int[Tensor, "B"],
) -> Float[Tensor, "B D"]:
    """The vectors of tokens, each marked with where it stands."""
    if position is not None and (isinstance(first, Tensor) or first >= len(position.table)):
        far: Tensor = position(embed(tokens[:, None]), first).squeeze(1)
        return far
    found = F.embedding(tokens, embed.table.weight)  # [B,D]
    if position is None:
        return found * embed.scale
    assert isinstance(first, int)
    return torch.add(position.table[first], found, alpha=embed.scale)


def _usual(block: EncoderBlock | DecoderBlock) -> bool:
    """Is it as Layer takes it to be, with nobody waiting to be called?"""
    if block.training or not block.attention.attend.by_content:
        return False
    if any(each._forward_hooks or each._forward_pre_hooks for each in block.modules()):
        return False
    if isinstance(block, EncoderBlock):
        return True
    cross = block.cross
    return cross.heads == cross.key_heads and _fused(cross.attend)


def _fused(attend: Attend) -> bool:
    """Products of queries and keys as they are, softmax, and a sum."""
    plain = type(attend.score) in (Dot, ScaledDot) and type(attend.read) is WeightedSum
    return plain and attend.weigh.temperature is not None


def scale(attend: Attend) -> float:
    """What products are multiplied by before the softmax."""
    assert attend.weigh.temperature is not None
    return attend.score.scale / attend.weigh.temperature
