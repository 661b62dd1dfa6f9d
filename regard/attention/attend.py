"""score -> mask -> weigh -> read: the attention of every model.

All models attend through `Attend`. For speed, kernels compute the same elsewhere when a decoder
takes single steps, regard/layers/stepwise.py and regard/kernels/single_query.py, and when a memory
machine does, regard/kernels/ntm_step.py, dnc_step.py and regard/models/memory/sam.py. They pass
their weights to `record` through `Attend`, and a site with an active edit is computed by `Attend`.

>>> import torch
>>> attend = Attend(ScaledDot(8))
>>> memory = attend.remember(torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8))
>>> attend(torch.randn(2, 4, 3, 8), memory).shape
torch.Size([2, 4, 3, 8])
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from regard.attention.mask import Mask, describe_value
from regard.attention.past import START, Past
from regard.attention.read import Read, WeightedSum
from regard.attention.score import ProductScore, Score
from regard.attention.score import ScaledDot as ScaledDot
from regard.attention.tape import AxisPair, Call, OpenContexts, Site, apply_edits, open_contexts
from regard.attention.weigh import Softmax, Weigh
from regard.core.errors import UserError, fraction
from regard.core.precision import float32_or_wider
from regard.kernels.switch import enabled

CHUNK_ELEMENTS = 2**19
"""Weights of a fused attention that are computed at a time for a record: 2 MiB."""


@dataclass(frozen=True)
class Memory:
    """Prepared keys and their values. It is a value: no module keeps any of it."""

    key: Float[Tensor, "B H K F"]
    value: Shaped[Tensor, "B H K W"]

    def select(self, rows: Tensor) -> "Memory":
        """The memory of the chosen batch rows, in that order."""
        return Memory(self.key.index_select(0, rows), self.value.index_select(0, rows))


class Attend(Site):
    """Attention of queries to a memory; the slots decide which mechanism it is."""

    def __init__(
        self,
        score: Score,
        weigh: Weigh | None = None,
        read: Read | None = None,
        *,
        dropout: float = 0.0,
        kind: str = "self",
        axes: AxisPair | None = None,
    ) -> None:
        super().__init__(kind, axes)
        self.score = score
        self.weigh = Softmax() if weigh is None else weigh
        self.read = WeightedSum() if read is None else read
        self.dropout = nn.Dropout(fraction("dropout", dropout))

    @property
    def sequential(self) -> bool:
        """Does each row need the weights of the row before it?"""
        return self.score.sequential or self.weigh.sequential

    @property
    def carries(self) -> bool:
        """Does a step need more of the step before than its position? Then use `step`."""
        return self.sequential or self.weigh.carries

    @property
    def by_content(self) -> bool:
        """Do the weights depend on queries and keys alone, and not on their positions?

        True where a fused kernel applies; False for all others, to be safe.
        """
        return isinstance(self.score, ProductScore) and self.weigh.temperature is not None

    def remember(self, key: Float[Tensor, "B H K E"], value: Shaped[Tensor, "B H K W"]) -> Memory:
        """Prepare keys and values, once for all queries that follow."""
        if key.dim() != 4 or key.shape[3] != self.score.key_width:
            raise UserError(
                f"keys must be [batch, heads, keys, {self.score.key_width}] for "
                f"{type(self.score).__name__}, not {list(key.shape)}"
            )
        if value.dim() != 4 or value.shape[:3] != key.shape[:3]:
            raise UserError(
                "values must be [batch, heads, keys, width], alike in the first three: "
                f"keys are {list(key.shape)}, values {list(value.shape)}"
            )
        return Memory(self.score.prepare(key), value)

    def forward(
        self,
        query: Float[Tensor, "B H Q E"],
        memory: Memory,
        mask: Mask | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q ..."]:
        """What each query reads; with a fused kernel where the slots allow one."""
        self._check(query, memory, mask, past)
        contexts = open_contexts(self)
        fused_query = self._fusable(query)
        if fused_query is None or (contexts is not None and contexts.edits):
            weights = self._weights(query, memory, mask, past, contexts)
            return self._read(weights, memory.value)
        if contexts is not None:
            self._record_fused(fused_query, memory, mask, past, contexts)
        return self._fused(fused_query, memory, mask, past)

    def record_elsewhere(
        self,
        query: Float[Tensor, "B H Q E"],
        memory: Memory,
        mask: Mask | None,
        past: Past,
        contexts: OpenContexts,
    ) -> None:
        """Record an attention that layers/stepwise.py computes without its weights."""
        fused_query = self._fusable(query)
        assert fused_query is not None
        self._record_fused(fused_query, memory, mask, past, contexts)

    def weights(
        self,
        query: Float[Tensor, "B H Q E"],
        memory: Memory,
        mask: Mask | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The attention weights, for models that point or copy rather than read."""
        self._check(query, memory, mask, past)
        return self._weights(query, memory, mask, past, open_contexts(self))

    def step(
        self,
        query: Float[Tensor, "B H Q E"],
        memory: Memory,
        mask: Mask | None = None,
        past: Past = START,
    ) -> tuple[Float[Tensor, "B H Q ..."], Past]:
        """What each query reads, and the past for the next step."""
        weights = self.weights(query, memory, mask, past)
        return self._read(weights, memory.value), self.after(query, weights, past)

    def _fusable(self, query: Tensor) -> Tensor | None:
        """The queries for a fused kernel; None unless score, weighing and read allow one."""
        if self.weigh.temperature is None or not self.read.fusable:
            return None
        if not enabled("fused_attention"):
            return None
        return self.score.product(query)

    def _fused(self, fused_query: Tensor, memory: Memory, mask: Mask | None, past: Past) -> Tensor:
        queries, keys = fused_query.shape[2], memory.key.shape[2]
        lowered = (
            None
            if mask is None
            else mask.lower(queries, keys, first=past.first, device=fused_query.device)
        )
        assert self.weigh.temperature is not None
        return F.scaled_dot_product_attention(
            fused_query,
            memory.key,
            memory.value,
            attn_mask=lowered.table if lowered else None,
            is_causal=lowered.is_causal if lowered else False,
            dropout_p=self.dropout.p if self.training else 0.0,
            scale=self.score.scale / self.weigh.temperature,
            enable_gqa=fused_query.shape[1] != memory.key.shape[1],
        )  # [B,H,Q,W]

    def _weights(
        self,
        query: Tensor,
        memory: Memory,
        mask: Mask | None,
        past: Past,
        contexts: OpenContexts | None,
    ) -> Tensor:
        """The attention weights, recorded; row by row where a row needs the one before."""
        key = repeat_heads(memory.key, query.shape[1])
        if self.sequential and query.shape[2] > 1:
            rows, now = [], past
            for row in query.split(1, dim=2):
                rows.append(self._edited_weights(row, key, mask, now, contexts))
                now = self.after(row, rows[-1], now)
            weights = torch.cat(rows, dim=2)
        else:
            weights = self._edited_weights(query, key, mask, past, contexts)
        if contexts is not None:
            self.record_weights(weights, past, contexts)
        return weights

    def record_weights(
        self, weights: Float[Tensor, "B H Q K"], past: Past, contexts: OpenContexts
    ) -> None:
        """Record weights that were computed here or by another kernel (layers/stepwise.py)."""
        for name, tape in contexts.tapes:
            heads = tape.chosen_heads(name, weights.shape[1])
            rows = tape.chosen_rows(name, weights.shape[2])
            kept = _select_along(_select_along(weights.detach(), 1, heads), 2, rows)
            tape.add(self._call(name, kept, heads, rows, past))

    def _edited_weights(
        self,
        query: Tensor,
        key: Tensor,
        mask: Mask | None,
        past: Past,
        contexts: OpenContexts | None,
    ) -> Tensor:
        """score, mask, weigh, and the active edits."""
        queries, keys = query.shape[2], key.shape[2]
        past = past.pad_to(keys)
        scores = self.score(query, key, past)  # [B,H,Q,K]
        allowed = (
            None
            if mask is None
            else mask.table(queries, keys, first=past.first, device=query.device)
        )
        weights: Tensor = self.weigh(scores, allowed, query, past)  # [B,H,Q,K]
        if contexts is None or not contexts.edits:
            return weights
        return apply_edits(weights, contexts, self.kind, past.first, allowed)

    def after(self, query: Tensor, weights: Tensor, past: Past) -> Past:
        """The past of the next query."""
        state = self.weigh.advance(query, past)
        total = weights.sum(2, keepdim=True, dtype=float32_or_wider(weights.dtype))
        before = past.pad_to(weights.shape[3]).total
        return replace(
            past,
            first=past.first + query.shape[2],
            weights=weights[:, :, -1:],
            total=total if before is None else before + total,
            state=None if state is None else state[:, :, -1:],
        )

    def _read(self, weights: Tensor, value: Tensor) -> Tensor:
        out: Tensor = self.read(self.dropout(weights), repeat_heads(value, weights.shape[1]))
        return out

    @torch.no_grad()
    def _record_fused(
        self,
        fused_query: Tensor,
        memory: Memory,
        mask: Mask | None,
        past: Past,
        contexts: OpenContexts,
    ) -> None:
        """Compute the weights of the sites, heads and rows of the open tapes, and only those."""
        group = fused_query.shape[1] // memory.key.shape[1]
        for name, tape in contexts.tapes:
            heads = tape.chosen_heads(name, fused_query.shape[1])
            rows = tape.chosen_rows(name, fused_query.shape[2])
            query = (
                _select_along(_select_along(fused_query, 1, heads), 2, rows) * self.score.scale
            )  # [B,N,Q,E]
            key = _select_along(memory.key, 1, tuple(head // group for head in heads))  # [B,N,K,E]
            kept = self._chosen_weights(query, key.transpose(2, 3), mask, past.first, heads, rows)
            tape.add(self._call(name, kept, heads, rows, past))

    def _chosen_weights(
        self,
        query: Tensor,
        key: Tensor,
        mask: Mask | None,
        first: int,
        heads: Sequence[int],
        rows: Sequence[int],
    ) -> Tensor:
        """The weights of chosen heads and rows, in pieces that fit a cache."""
        batch, keys = query.shape[0], key.shape[3]
        weights = query.new_empty(*query.shape[:3], keys)  # [B,N,Q,K]
        row_size = max(1, len(heads) * keys)
        height = max(1, min(len(rows), CHUNK_ELEMENTS // row_size))
        depth = max(1, CHUNK_ELEMENTS // (row_size * height))
        positions = torch.tensor(rows, device=query.device) + first
        for rows_slice in (slice(start, start + height) for start in range(0, len(rows), height)):
            allowed = None if mask is None else mask.rows(positions[rows_slice], keys)
            if allowed is not None and allowed.shape[1] > 1:
                allowed = _select_along(allowed, 1, heads)
            for items_slice in (slice(start, start + depth) for start in range(0, batch, depth)):
                scores = query[items_slice, :, rows_slice] @ key[items_slice]
                visible = (
                    allowed if allowed is None or allowed.shape[0] == 1 else allowed[items_slice]
                )
                weights[items_slice, :, rows_slice] = self.weigh(scores, visible)
        return weights

    def _call(
        self, site: str, weights: Tensor, heads: Sequence[int], rows: Sequence[int], past: Past
    ) -> Call:
        positions = tuple(past.first + row for row in rows)
        return Call(
            site=site,
            kind=self.kind,
            weights=weights,
            heads=tuple(heads),
            rows=positions,
            axes=self.axes,
        )

    def _check(self, query: Tensor, memory: Memory, mask: Mask | None, past: Past) -> None:
        """Raise for shapes that do not fit, before anything broadcasts."""
        key = memory.key
        if query.dim() != 4 or query.shape[3] != self.score.width:
            raise UserError(
                f"queries must be [batch, heads, queries, {self.score.width}] for "
                f"{type(self.score).__name__}, not {list(query.shape)}"
            )
        if query.shape[0] != key.shape[0]:
            raise UserError(
                f"the query has a batch of {query.shape[0]}, the memory one of {key.shape[0]}"
            )
        if query.shape[1] % key.shape[1]:
            raise UserError(
                f"{query.shape[1]} query heads cannot share {key.shape[1]} key-value heads evenly"
            )
        if mask is None:
            return
        if not isinstance(mask, Mask):
            raise UserError(
                "mask must be a Mask such as causal() or padding(lengths), not "
                f"{describe_value(mask)}; wrap booleans, True where a query may attend, in "
                "regard.attention.table(...)"
            )
        mask.check(query.shape[0], query.shape[1], past.first + query.shape[2], key.shape[2])


def repeat_heads(shared: Tensor, heads: int) -> Tensor:
    """Key-value heads repeated for the query heads that share them: `[B,G,K,E]` to `[B,H,K,E]`."""
    group = heads // shared.shape[1]
    if group > 1 and shared.shape[1] == 1:
        return shared.expand(-1, heads, -1, -1)
    return shared if group == 1 else shared.repeat_interleave(group, dim=1)


def _select_along(tensor: Tensor, dim: int, indices: Sequence[int]) -> Tensor:
    """The chosen entries along one axis: a view where they are neighbours, else a copy."""
    start, count = indices[0] if indices else 0, len(indices)
    if tuple(indices) == tuple(range(start, start + count)):
        return tensor.narrow(dim, start, count)
    return tensor.index_select(dim, torch.tensor(indices, device=tensor.device))
