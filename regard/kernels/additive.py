"""vᵀ tanh(a + k) for all pairs, without the table of all pairs.

Written out with broadcasting, additive attention holds several tensors of `[B,H,Q,K,A]` and streams
each of them through main memory, forward and backward. Here the pairs are visited in tiles that fit
a cache: each tile is added, squashed and reduced to scores where it lies, in one buffer that serves
all tiles. Nothing of size Q·K·A is kept for the backward pass, which visits the tiles again.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from regard.core.precision import float32_or_wider

CACHE_ELEMENTS = 2**18
"""Elements of a tile on a CPU: 1 MiB in float32, about the second-level cache of one core."""

_DEVICE_ELEMENTS = 2**24
"""Elements of a tile elsewhere: large enough to hide the launch of its kernels."""


def additive_scores(
    asked: Float[Tensor, "B H Q A"], answered: Float[Tensor, "B H K A"], vector: Float[Tensor, "A"]
) -> Float[Tensor, "B H Q K"]:
    """vᵀ tanh(asked + answered) for every pair of a query and a key.

    >>> additive_scores(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 4), torch.ones(4)).shape
    torch.Size([1, 1, 2, 3])
    """
    rows = asked.flatten(0, 1)  # [B*H,Q,A]
    columns = answered.flatten(0, 1)  # [B*H,K,A]
    scores: Tensor = _Tiled.apply(rows, columns, vector)  # type: ignore[no-untyped-call]
    return scores.view(*asked.shape[:3], answered.shape[2])  # [B,H,Q,K]


def _tiles(rows: Tensor, columns: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Slices of items and of rows, and tanh(rows + columns) for them, `[n,q,K,A]`."""
    items, queries, units = rows.shape
    limit = CACHE_ELEMENTS if rows.device.type == "cpu" else _DEVICE_ELEMENTS
    a_row = max(1, columns.shape[1] * units)
    tall = max(1, min(queries, limit // a_row))
    deep = max(1, min(items, limit // (a_row * max(1, tall))))
    buffer = rows.new_empty(deep * tall * a_row)
    for item in range(0, items, deep):
        some = slice(item, min(item + deep, items))
        for query in range(0, queries, tall):
            few = slice(query, min(query + tall, queries))
            shape = (some.stop - some.start, few.stop - few.start, columns.shape[1], units)
            tile = buffer[: shape[0] * shape[1] * shape[2] * shape[3]].view(shape)
            torch.add(rows[some, few].unsqueeze(2), columns[some].unsqueeze(1), out=tile)
            yield some, few, tile.tanh_()


class _Tiled(torch.autograd.Function):
    """The scores, and their gradients, tile by tile."""

    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor, columns: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(rows, columns, vector)
        scores = rows.new_empty(*rows.shape[:2], columns.shape[1])  # [B*H,Q,K]
        for some, few, tile in _tiles(rows, columns):
            scores[some, few] = tile @ vector
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
        for some, few, tile in _tiles(rows, columns):
            slope = grad[some, few]  # [n,q,K]
            grad_vector += slope.reshape(-1) @ tile.flatten(0, 2)
            tile.square_().sub_(1).mul_(slope.unsqueeze(3))  # -(1 - tanh²) · slope
            grad_rows[some, few] -= tile.sum(2)
            grad_columns[some] -= tile.sum(1)
        return (
            (grad_rows * vector).to(rows.dtype),
            (grad_columns * vector).to(columns.dtype),
            grad_vector.to(vector.dtype),
        )
