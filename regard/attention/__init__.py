"""Attention as four questions asked in order: score, mask, weigh, read.

Every mechanism is a choice in one of the slots; the tables name those there are. To add one, write
its class and add its row here.
"""

from regard.attention.attend import Attend, Memory
from regard.attention.edit import frozen, permuted, rows_of, uniform, without
from regard.attention.mask import (
    Mask,
    blocks,
    blocks_2d,
    causal,
    padding,
    prefix,
    segment,
    table,
    window,
)
from regard.attention.past import START, Past
from regard.attention.place import LocalMonotonic, LocalPredictive, MixtureWindow, ShiftSharpen
from regard.attention.read import Copy, Gather, Hops, Read, WeightedSum, copied, gathered
from regard.attention.relative import RelativeClipped, RelativeSkewed, RelativeXL, sinusoid, skew
from regard.attention.sample import Drawn, Sample
from regard.attention.score import (
    Additive,
    Bilinear,
    Cosine,
    Coverage,
    Dot,
    Even,
    Location,
    LocationAware,
    ScaledDot,
    Score,
)
from regard.attention.tape import Call, Edit, Look, Tape, intervene, record, sites_of
from regard.attention.weigh import (
    Argmax,
    Entmax15,
    Sigmoid,
    Smoothed,
    Softmax,
    Sparsemax,
    StraightThrough,
    TopK,
    Weigh,
)
from regard.core.errors import choose

SCORES: dict[str, type[Score]] = {
    "even": Even,
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "bilinear": Bilinear,
    "additive": Additive,
    "cosine": Cosine,
    "location": Location,
    "location_aware": LocationAware,
    "coverage": Coverage,
    "relative_clipped": RelativeClipped,
    "relative_skewed": RelativeSkewed,
    "relative_xl": RelativeXL,
}
"""Every score by the name a recipe calls it."""

WEIGHS: dict[str, type[Weigh]] = {
    "softmax": Softmax,
    "sparsemax": Sparsemax,
    "entmax15": Entmax15,
    "topk": TopK,
    "sigmoid": Sigmoid,
    "smoothed": Smoothed,
    "local_m": LocalMonotonic,
    "local_p": LocalPredictive,
    "mixture_window": MixtureWindow,
    "shift_sharpen": ShiftSharpen,
    "argmax": Argmax,
    "straight_through": StraightThrough,
}
"""Every weighing by the name a recipe calls it."""


def score_named(name: str, width: int, key_width: int | None = None, heads: int = 1) -> Score:
    """The score of that name, sized for these queries and keys.

    >>> score_named("aditive", 8)
    Traceback (most recent call last):
    regard.core.errors.UserError: unknown score 'aditive': did you mean 'additive'? Known: ...
    """
    return choose("score", name, SCORES).sized(width, key_width or width, heads)


def weigh_named(name: str, width: int) -> Weigh:
    """The weighing of that name, for queries of this width.

    >>> weigh_named("sparsemax", 8)
    Sparsemax()
    """
    return choose("weighing", name, WEIGHS).sized(width)


__all__ = [
    "SCORES", "START", "WEIGHS", "Additive", "Argmax", "Attend", "Bilinear", "Call", "Copy",
    "Cosine", "Coverage", "Dot", "Drawn", "Edit", "Entmax15", "Even", "Gather", "Hops",
    "LocalMonotonic", "LocalPredictive", "Location", "LocationAware", "Look", "Mask", "Memory",
    "MixtureWindow", "Past", "Read", "RelativeClipped", "RelativeSkewed", "RelativeXL", "Sample",
    "ScaledDot", "Score", "ShiftSharpen", "Sigmoid", "Smoothed", "Softmax", "Sparsemax",
    "StraightThrough", "Tape", "TopK", "Weigh", "WeightedSum", "blocks", "blocks_2d", "causal",
    "copied", "frozen", "gathered", "intervene", "padding", "permuted", "prefix", "record",
    "rows_of", "score_named", "segment", "sinusoid", "sites_of", "skew", "table", "uniform",
    "weigh_named", "window", "without",
]  # fmt: skip
