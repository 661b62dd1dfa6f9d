"""Attention rollout: how much of each input is left in each position after several layers.

Abnar and Zuidema, Quantifying Attention Flow in Transformers, 2020, section 3: with W the mean of a
layer's heads, A = 0.5 W + 0.5 I stands for the layer and its residual branch, rows made to sum to
one again, and the layers are multiplied, the first one rightmost.

>>> from regard.look.payload import Payload
>>> layer = Payload.of([[1.0, 0.0], [1.0, 0.0]], "ab", "ab", site="0", kind="self")
>>> rollout([layer, layer]).matrix.tolist()
[[1.0, 0.0], [0.75, 0.25]]
"""

from collections.abc import Sequence

import numpy as np

from regard.core.errors import UserError
from regard.look.payload import Payload, plain_array


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
