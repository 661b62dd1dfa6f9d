"""vᵀ tanh(a + k) for all pairs, without the table of all pairs.

Written out with broadcasting, additive attention holds several tensors of `[B,H,Q,K,A]` and streams
each of them through main memory, forward and backward. Here the pairs are visited in tiles that fit
a cache: each tile is computed and reduced to scores in place, in one buffer for all tiles. Nothing
of size Q·K·A is kept for the backward pass, which visits the tiles again.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from regard.core.precision import float32_or_wider
from regard.kernels.switch import enabled

CACHE_ELEMENTS = 2**18
"""Elements of a tile on a CPU: 1 MiB in float32, about the second-level cache of one core."""

_DEVICE_ELEMENTS = 2**24
"""Elements of a tile on other devices: enough to hide the launch of its kernels."""


def additive_scores(
    query: Float[Tensor, "B H Q A"], key: Float[Tensor, "B H K A"], vector: Float[Tensor, "A"]
) -> Float[Tensor, "B H Q K"]:
    """vᵀ tanh(query + key) for every pair of a query and a key.

    >>> additive_scores(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 4), torch.ones(4)).shape
    torch.Size([1, 1, 2, 3])
    """
    if not enabled("additive_tiles"):
        return (query.unsqueeze(3) + key.unsqueeze(2)).tanh() @ vector  # [B,H,Q,K]
    rows = query.flatten(0, 1)  # [B*H,Q,A]
    columns = key.flatten(0, 1)  # [B*H,K,A]
    scores: Tensor = _Tiled.apply(rows, columns, vector)  # type: ignore[no-untyped-call]
    return scores.view(*query.shape[:3], key.shape[2])  # [B,H,Q,K]


def _tiles(rows: Tensor, columns: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Slices of batch items and of query rows, with tanh(rows + columns) of each, `[n,q,K,A]`."""
    items, queries, units = rows.shape
    limit = CACHE_ELEMENTS if rows.device.type == "cpu" else _DEVICE_ELEMENTS
    row_size = max(1, columns.shape[1] * units)
    height = max(1, min(queries, limit // row_size))
    depth = max(1, min(items, limit // (row_size * max(1, height))))
    buffer = rows.new_empty(depth * height * row_size)
    for item in range(0, items, depth):
        items_slice = slice(item, min(item + depth, items))
        for query in range(0, queries, height):
            rows_slice = slice(query, min(query + height, queries))
            shape = (
                items_slice.stop - items_slice.start,
                rows_slice.stop - rows_slice.start,
                columns.shape[1],
                units,
            )
            tile = buffer[: shape[0] * shape[1] * shape[2] * shape[3]].view(shape)
            torch.add(
                rows[items_slice, rows_slice].unsqueeze(2),
                columns[items_slice].unsqueeze(1),
                out=tile,
            )
            yield items_slice, rows_slice, tile.tanh_()


class _Tiled(torch.autograd.Function):
    """The scores, and their gradients, tile by tile."""

    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor, columns: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(rows, columns, vector)
        scores = rows.new_empty(*rows.shape[:2], columns.shape[1])  # [B*H,Q,K]
        for items_slice, rows_slice, tile in _tiles(rows, columns):
            scores[items_slice, rows_slice] = tile @ vector
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, columns, vector = ctx.saved_tensors  # type: ignore[attr-defined]
        # Sums over many tiles: in float32 where the tiles are in half precision.
        grad_rows, grad_columns, grad_vector = (
            torch.zeros_like(each, dtype=float32_or_wider(each.dtype))
            for each in (rows, columns, vector)
        )
        for items_slice, rows_slice, tile in _tiles(rows, columns):
            slope = grad[items_slice, rows_slice]  # [n,q,K]
            grad_vector += slope.reshape(-1) @ tile.flatten(0, 2)
            tile.square_().sub_(1).mul_(slope.unsqueeze(3))  # -(1 - tanh²) · slope
            grad_rows[items_slice, rows_slice] -= tile.sum(2)
            grad_columns[items_slice] -= tile.sum(1)
        return (
            (grad_rows * vector).to(rows.dtype),
            (grad_columns * vector).to(columns.dtype),
            grad_vector.to(vector.dtype),
        )
