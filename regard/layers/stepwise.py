"""A decoder one position at a time, in as few tensor calls as possible.

For one token, a small model spends more time in Python between modules than in computing. So when
a search starts, the layers are turned into plain functions once: those of a language model, and
those with attention to a source. The keys and values of all layers are in one tensor. The beams of
a sentence attend to its source together.

Attention is computed here, outside `Attend`, by kernels for one query. `record` gets its weights
through `Attend.record_weights` and `Attend.record_elsewhere`, and a site with an active edit goes
through `Attend` itself. tests/layers/test_stepwise.py compares outputs, records and edits with
those of the modules.

>>> import torch
>>> from regard.layers.cache import Cache
>>> block = DecoderBlock(16, heads=4, hidden=32).eval()
>>> memory = block.cross.remember(torch.randn(2, 5, 16))
>>> source = SourceMemory.of(memory, torch.tensor([5, 3]), attends=[block.cross.attend])
>>> x = torch.randn(2, 16)
>>> with torch.no_grad():
...     decoder = StepwiseDecoder.build([block])
...     y, store = decoder(x, KeyValueStore(), StepSource.prepare(source))
...     same, _, _ = block.step_shared(x[:, None], source, 0, Cache())
>>> torch.allclose(y, same[:, 0], atol=1e-6), store.length
(True, 1)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attend, Dot, Mask, Memory, Past, ScaledDot, WeightedSum, padding
from regard.attention.tape import OpenContexts, open_contexts
from regard.core.precision import autocast_is_on
from regard.kernels.linear import is_linear
from regard.kernels.packed_linear import pack_linear
from regard.kernels.single_query import attend_beams, attend_single_query, mask_bias
from regard.kernels.switch import enabled
from regard.layers.block import DecoderBlock, EncoderBlock, Residual
from regard.layers.embedding import TokenEmbedding
from regard.layers.feedforward import FeedForward
from regard.layers.key_value_store import KeyValueBuffer, KeyValueStore
from regard.layers.multihead import CrossAttention, SelfAttention
from regard.layers.position import Learned, Sinusoidal
from regard.layers.source_memory import SourceMemory

MANY_QUERIES, SHORT_KEYS = 256, 768
"""With at least this many queries, and keys of at most this many elements for each, plain products
take less time than a fused kernel, which starts again for each query."""

_RowFunction = Callable[[Tensor], Tensor]
"""A module as a function of rows `[B,D]`; the result is a new tensor."""


def row_function(module: nn.Module) -> _RowFunction:
    """A module without hooks as a function of rows; one of another kind is called as it is."""
    if is_linear(module):
        return pack_linear(module, module.weight, module.bias)
    if type(module) is nn.LayerNorm:
        shape, eps = list(module.normalized_shape), module.eps
        gain, shift = module.weight, module.bias
        return lambda x: torch.layer_norm(x, shape, gain, shift, eps)
    if type(module) is FeedForward:
        widen, narrow = row_function(module.widen), row_function(module.narrow)
        plain: _RowFunction = module.activation
        # The result of `widen` is a new tensor, so it may be changed in place.
        activation = torch.relu_ if plain is F.relu else plain
        return lambda x: narrow(activation(widen(x)))
    return module


def logits_function(
    embed: TokenEmbedding, output: nn.Module | None, bias: Tensor | None = None
) -> _RowFunction:
    """Logits of states: by an output layer, or, where that is None, by the embedding table."""
    if output is None:
        return pack_linear(embed.table, embed.table.weight, bias)
    logits = row_function(output)
    return logits if bias is None else lambda x: logits(x) + bias


def embed_step(
    tokens: Int[Tensor, "B"],
    embed: TokenEmbedding,
    position: Sinusoidal | Learned | None,
    first: int | Int[Tensor, "B"],
) -> Float[Tensor, "B D"]:
    """The vectors of tokens with their positions."""
    if position is not None and (isinstance(first, Tensor) or first >= len(position.table)):
        far: Tensor = position(embed(tokens[:, None]), first).squeeze(1)
        return far
    vectors = F.embedding(tokens, embed.table.weight)  # [B,D]
    if position is None:
        return vectors * embed.scale
    assert isinstance(first, int)
    return torch.add(position.table[first], vectors, alpha=embed.scale)


@dataclass(frozen=True)
class StepSource:
    """A source prepared for steps: its memories split into heads, and the bias of padding."""

    source: SourceMemory
    flat: tuple[tuple[Tensor, Tensor], ...]
    """For each layer the keys `[N·H,E,S]` and values `[N·H,S,E]`, for beams of one sentence."""
    bias: Float[Tensor, "N 1 1 S"] | None
    """-∞ where there is padding."""
    flat_bias: Float[Tensor, "M 1 S"]
    """The same with batch and heads as one axis."""

    @staticmethod
    def prepare(source: SourceMemory) -> "StepSource":
        """The source, with memories that can be flattened without a copy."""
        memories = tuple(
            Memory(each.key.contiguous(), each.value.contiguous()) for each in source.memories
        )
        first = memories[0].key
        heads, keys = first.shape[1:3]
        bias = None
        if source.mask is not None:
            allowed = source.mask.table(1, keys, device=first.device)  # [N,1,1,S]
            bias = mask_bias(allowed, first.dtype)
        return StepSource(
            SourceMemory(
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

    def select(self, rows: Int[Tensor, "B"]) -> "StepSource":
        """The source of the chosen rows, in that order."""
        chosen = self.source.select(rows)
        if chosen is self.source:
            return self
        if chosen.memories is self.source.memories:  # only more or fewer rows for each sentence
            return StepSource(chosen, self.flat, self.bias, self.flat_bias)
        return StepSource.prepare(chosen)


class _Step:
    """What all layers share in a step: the position, the buffer, and which keys are allowed."""

    __slots__ = ("allowed", "buffer", "first", "length", "mask", "past")

    def __init__(self, store: KeyValueStore, buffer: KeyValueBuffer) -> None:
        self.length, self.first, self.buffer = store.length, store.first, buffer
        self.past = Past(first=store.length)
        self.mask: Mask | None = None
        self.allowed: Tensor | None = None
        if store.empty is not None:
            places = torch.arange(store.length + 1, device=store.empty.device)
            real = places >= store.empty[:, None]  # [B,T]
            self.mask, self.allowed = padding(real), real[:, None, None]


class _ResidualStep:
    """The residual connection around a branch, without dropout."""

    __slots__ = ("norm", "norm_first")

    def __init__(self, residual: Residual) -> None:
        self.norm, self.norm_first = row_function(residual.norm), residual.norm_first

    def enter(self, x: Tensor) -> Tensor:
        """The input of the branch."""
        return self.norm(x) if self.norm_first else x

    def leave(self, x: Tensor, branch: Tensor) -> Tensor:
        """The sum of the input and the branch; `branch` is overwritten."""
        total = branch.add_(x)
        return total if self.norm_first else self.norm(total)


class _SelfAttentionStep:
    """Self-attention of the next position, whose key and value go into the buffer."""

    __slots__ = (
        "attend", "fusable", "grouped", "heads", "merge", "project", "rotary", "scale", "shape",
    )  # fmt: skip

    def __init__(self, layer: SelfAttention) -> None:
        self.attend, self.rotary = layer.attend, layer.rotary
        self.project, self.merge = row_function(layer.project), row_function(layer.merge)
        self.heads, self.shape = layer.heads, (2, layer.key_heads, layer.head_width)
        self.grouped = layer.heads != layer.key_heads
        self.fusable, self.scale = _is_fusable(layer.attend), _softmax_scale(layer.attend)

    def __call__(self, x: Tensor, number: int, step: _Step) -> Tensor:
        """What each row reads from its own positions so far."""
        rows, heads = x.shape[0], self.heads
        query, new = self._split(self.project(x), rows, step)
        step.buffer.write(number, step.length, new)
        key = step.buffer.keys[number].narrow(2, 0, step.length + 1)  # [B,G,T,E]
        value = step.buffer.values[number].narrow(2, 0, step.length + 1)
        contexts = open_contexts(self.attend)
        edited = contexts is not None and bool(contexts.edits)
        if self.fusable and not edited and self._has_many_queries(rows * heads, key, step):
            read, weights = attend_single_query(query, key, value, scale=self.scale)
            if contexts is not None:
                self.attend.record_weights(weights.unsqueeze(2), step.past, contexts)
        elif self.fusable and not edited and enabled("fused_attention"):
            if contexts is not None:
                memory = Memory(key, value)
                self.attend.record_elsewhere(query, memory, step.mask, step.past, contexts)
            read = F.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=step.allowed,
                scale=self.scale,
                enable_gqa=self.grouped,
            )  # [B,H,1,E]
        else:
            read = self.attend.forward(query, Memory(key, value), step.mask, step.past)
        return self.merge(read.reshape(rows, heads * self.shape[2]))

    def _split(self, joined: Tensor, rows: int, step: _Step) -> tuple[Tensor, Tensor]:
        """The query `[B,H,1,E]`, and the key and value `[B,2,G,E]`."""
        _, groups, width = self.shape
        size = self.heads * width
        query = joined.narrow(1, 0, size).view(rows, self.heads, 1, width)
        new = joined.narrow(1, size, 2 * groups * width).view(rows, 2, groups, width)
        if self.fusable and self.rotary is None:
            return query, new
        key, value = new.unsqueeze(3).unbind(1)  # [B,G,1,E]
        if self.rotary is not None:
            query, key = self.rotary(query, step.first), self.rotary(key, step.first)
        key = self.attend.score.prepare(key)
        return query, torch.stack((key, value), 1).squeeze(3)

    def _has_many_queries(self, queries: int, key: Tensor, step: _Step) -> bool:
        short = key.shape[2] * key.shape[3] <= SHORT_KEYS
        plain = short and not self.grouped and step.allowed is None
        return queries >= MANY_QUERIES and plain and enabled("single_query")


class _CrossAttentionStep:
    """Attention of the next position to its source."""

    __slots__ = ("attend", "heads", "merge", "query", "scale")

    def __init__(self, layer: CrossAttention) -> None:
        self.attend, self.heads, self.scale = (
            layer.attend,
            layer.heads,
            _softmax_scale(layer.attend),
        )
        self.query, self.merge = row_function(layer.query), row_function(layer.merge)

    def __call__(self, x: Tensor, number: int, step: _Step, prepared: StepSource) -> Tensor:
        """What each row reads from its source."""
        rows, width = x.shape
        source, heads = prepared.source, self.heads
        beams, memory = source.beams, source.memories[number]
        shape = (rows // beams, beams, heads, width // heads)
        query = self.query(x).view(shape).transpose(1, 2)  # [N,H,Q,E]
        contexts, past = open_contexts(self.attend), step.past
        edited = contexts is not None and bool(contexts.edits)
        single = not edited and enabled("single_query")
        short = memory.key.shape[2] * memory.key.shape[3] <= SHORT_KEYS
        if single and beams > 1:
            read = self._attend_beams(query, number, past, prepared, contexts)
        elif single and rows * heads >= MANY_QUERIES and short:
            sums, weights = attend_single_query(
                query, memory.key, memory.value, scale=self.scale, bias=prepared.bias
            )
            read = sums.unsqueeze(2)
            if contexts is not None:
                self.attend.record_weights(weights.unsqueeze(2), past, contexts)
        elif not edited and enabled("fused_attention"):
            if contexts is not None:
                self.attend.record_elsewhere(query, memory, source.mask, past, contexts)
            read = F.scaled_dot_product_attention(
                query, memory.key, memory.value, attn_mask=prepared.bias, scale=self.scale
            )
        else:
            read = self.attend.forward(query, memory, source.mask, past)
        return self.merge(read.transpose(1, 2).reshape(rows, width))

    def _attend_beams(
        self,
        query: Tensor,
        number: int,
        past: Past,
        prepared: StepSource,
        contexts: OpenContexts | None,
    ) -> Tensor:
        """What the beams of each sentence read from its source, `[N,H,Q,E]`."""
        (key, value), shape = prepared.flat[number], query.shape
        read, weights = attend_beams(
            query.reshape(key.shape[0], shape[2], shape[3]),
            key,
            value,
            scale=self.scale,
            bias=prepared.flat_bias,
            biased=prepared.bias is not None,
        )  # [N·H,Q,E] and [N·H,Q,S]
        if contexts is not None:
            self.attend.record_weights(weights.unflatten(0, shape[:2]), past, contexts)
        return read.view(shape)


class _LayerStep:
    """A block as a function of one position; attention to a source comes second."""

    __slots__ = ("cross", "feedforward", "residuals", "self_attention")

    def __init__(self, block: EncoderBlock | DecoderBlock) -> None:
        self.self_attention = _SelfAttentionStep(block.attention)
        self.feedforward = row_function(block.feedforward)
        self.cross: tuple[_ResidualStep, _CrossAttentionStep] | None = None
        if isinstance(block, DecoderBlock):
            self.cross = _ResidualStep(block.around_cross), _CrossAttentionStep(block.cross)
        around = block.around_attention, block.around_feedforward
        self.residuals = _ResidualStep(around[0]), _ResidualStep(around[1])

    def __call__(self, x: Tensor, number: int, step: _Step, source: StepSource | None) -> Tensor:
        """The state of the position."""
        first, last = self.residuals
        x = first.leave(x, self.self_attention(first.enter(x), number, step))
        if self.cross is not None and source is not None:
            residual, cross = self.cross
            x = residual.leave(x, cross(residual.enter(x), number, step, source))
        return last.leave(x, self.feedforward(last.enter(x)))


class StepwiseDecoder:
    """The layers of a decoder as functions of one position."""

    __slots__ = ("heads", "layers", "width")

    def __init__(self, blocks: "list[EncoderBlock | DecoderBlock]") -> None:
        self.heads = tuple(block.attention.key_heads for block in blocks)
        self.width = blocks[0].attention.head_width
        self.layers = tuple(_LayerStep(block) for block in blocks)

    @staticmethod
    def build(blocks: "Iterable[EncoderBlock | DecoderBlock]") -> "StepwiseDecoder | None":
        """None where modules must be called: with gradients, in training, for other attention."""
        every = list(blocks)
        device = next(every[0].parameters()).device.type
        if torch.is_grad_enabled() or autocast_is_on(device) or not enabled("stepwise"):
            return None
        return StepwiseDecoder(every) if all(_is_supported(block) for block in every) else None

    def __call__(
        self, x: Float[Tensor, "B D"], store: KeyValueStore, source: StepSource | None = None
    ) -> tuple[Float[Tensor, "B D"], KeyValueStore]:
        """The state of the next position of each row, and the store with that position."""
        buffer = store.reserve(x, heads=self.heads, width=self.width)
        step = _Step(store, buffer)
        for number, layer in enumerate(self.layers):
            x = layer(x, number, step, source)
        return x, store.advance(buffer)


def _is_supported(block: EncoderBlock | DecoderBlock) -> bool:
    """Is the block of the kind that `_LayerStep` computes, and without hooks?"""
    if block.training or not block.attention.attend.by_content:
        return False
    if any(each._forward_hooks or each._forward_pre_hooks for each in block.modules()):
        return False
    if isinstance(block, EncoderBlock):
        return True
    cross = block.cross
    return cross.heads == cross.key_heads and _is_fusable(cross.attend)


def _is_fusable(attend: Attend) -> bool:
    """Is it softmax of plain products of queries and keys, and a weighted sum?"""
    plain = type(attend.score) in (Dot, ScaledDot) and type(attend.read) is WeightedSum
    return plain and attend.weigh.temperature is not None


def _softmax_scale(attend: Attend) -> float:
    """The factor on products before the softmax."""
    assert attend.weigh.temperature is not None
    return attend.score.scale / attend.weigh.temperature
