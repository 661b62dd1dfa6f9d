"""Measures of a head: how widely it attends, how far, and whether it moves along with its queries.

The page sorts heads by these. Rows are made to sum to one first; rows of zeros are left out.

>>> import numpy as np
>>> everywhere, straight = np.full((2, 4), 0.25), np.eye(3)
>>> entropy(everywhere), entropy(straight)
(2.0, 0.0)
>>> distance(straight), distance(straight[::-1])
(0.0, 1.3333333333333333)
>>> place_correlation(straight), place_correlation(straight[::-1])
(1.0, -1.0)

Attention rollout: how much of each input is left in each position after several layers.

Abnar and Zuidema, Quantifying Attention Flow in Transformers, 2020, section 3: with W the mean of a
layer's heads, A = 0.5 W + 0.5 I stands for the layer and its residual branch, rows made to sum to
one again, and the layers are multiplied, the first one rightmost.

>>> from regard.look.payload import Payload
>>> layer = Payload.of([[1.0, 0.0], [1.0, 0.0]], "ab", "ab", site="0", kind="self")
>>> rollout([layer, layer]).matrix.tolist()
[[1.0, 0.0], [0.75, 0.25]]
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from regard.core.errors import UserError
from regard.look.payload import Payload, plain_array


def _shares(matrix: Float[np.ndarray, "Q K"]) -> tuple[Float[np.ndarray, "R K"], np.ndarray]:
    """The rows that weigh anything, each summing to one, and their places."""
    table = matrix.astype(np.float64)
    sums = table.sum(axis=1)
    places = np.flatnonzero(sums > 0)
    return table[places] / sums[places, None], places


def entropy(matrix: Float[np.ndarray, "Q K"]) -> float:
    """Bits of an average row: 0 attends to one key, log2 of their number to all alike."""
    rows, _ = _shares(matrix)
    bits = -(rows * np.log2(np.where(rows > 0, rows, 1.0))).sum(axis=1)
    return float(bits.mean()) + 0.0 if len(rows) else 0.0


def distance(matrix: Float[np.ndarray, "Q K"]) -> float:
    """The mean distance from the diagonal, in keys, weighted by attention.

    In a text that attends to itself, that is the number of tokens between a query and its keys.
    Between two texts the diagonal goes from corner to corner.
    """
    rows, places = _shares(matrix)
    queries, keys = matrix.shape
    straight = places * ((keys - 1) / max(queries - 1, 1))
    away = np.abs(np.arange(keys)[None] - straight[:, None])
    return float((rows * away).sum(axis=1).mean()) if len(rows) else 0.0


def place_correlation(matrix: Float[np.ndarray, "Q K"]) -> float:
    """Do later queries attend to later keys? From -1, backwards, to 1, in step.

    Pearson's correlation of the place of a query and the mean place of its keys; 0 where all attend
    to the same place.
    """
    rows, places = _shares(matrix)
    means = rows @ np.arange(matrix.shape[1])
    if len(rows) < 2 or np.ptp(means) < 1e-9:
        return 0.0
    return round(float(np.corrcoef(places, means)[0, 1]), 12)


MEASURES: dict[str, Callable[[np.ndarray], float]] = {
    "entropy": entropy,
    "distance": distance,
    "alignment": place_correlation,
}
"""What heads can be sorted by, in the order in which the page offers them."""


def rollout(payloads: Sequence[Payload]) -> Payload:
    """The rollout of the self-attention of all layers, the first layer first."""
    if not payloads:
        raise UserError("rollout needs the payload of at least one layer, and was given none")
    first = payloads[0]
    same = np.eye(len(first.queries))
    flowed = same
    for layer in payloads:
        if (layer.kind, layer.queries, layer.keys) != ("self", first.queries, first.queries):
            raise UserError(
                "rollout goes through layers of self-attention over the same labels; "
                f"site {layer.site!r} is of kind {layer.kind!r}, with {len(layer.queries)} "
                f"queries and {len(layer.keys)} keys"
            )
        mixed = 0.5 * layer.matrix.astype(np.float64) + 0.5 * same  # [T,T]
        flowed = mixed / mixed.sum(axis=1, keepdims=True) @ flowed  # [T,T]
    return Payload(
        weights=plain_array(flowed[None]),
        queries=first.queries,
        keys=first.keys,
        site=f"rollout of {', '.join(layer.site for layer in payloads if layer.site)}"
        if len(payloads) <= 3
        else f"rollout of {len(payloads)} layers",
        kind="self",
        axes=first.axes,
    )
