"""Attention in four steps: score, mask, weigh, read.

Every mechanism is a choice in one of the slots; the tables below list them. To add one, write its
class and add its row here. One of your own needs no row (docs/add-a-score.md).
"""

from regard.attention.attend import Attend, Memory
from regard.attention.edit import frozen, only_rows, permuted, uniform, without
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
from regard.attention.read import Copy, Gather, Hops, Read, WeightedSum, gather_chosen, sum_by_token
from regard.attention.relative import RelativeClipped, RelativeSkewed, RelativeXL, sinusoid, skew
from regard.attention.sample import Sample, SampledRead
from regard.attention.score import (
    Additive,
    Bilinear,
    Cosine,
    Coverage,
    Dot,
    Even,
    Location,
    LocationAware,
    ProjectedKeys,
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
from regard.core.errors import UserError, choose

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
"""Every score by its name in recipes."""

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
"""Every weighing by its name in recipes."""


_OWN_SCORES: dict[str, type[Score]] = {}
_OWN_WEIGHS: dict[str, type[Weigh]] = {}


def register_score(name: str, score: type[Score]) -> None:
    """Let configs call a score of your own by this name; recipes do it for `file.py:Class`."""
    if name in SCORES:
        raise UserError(f"{name!r} is a score of regard already; choose another name")
    _OWN_SCORES[name] = score


def register_weigh(name: str, weigh: type[Weigh]) -> None:
    """Let configs call a weighing of your own by this name."""
    if name in WEIGHS:
        raise UserError(f"{name!r} is a weighing of regard already; choose another name")
    _OWN_WEIGHS[name] = weigh


def score_class(name: str) -> type[Score]:
    """The class of a score by its name, ours or registered."""
    return choose("score", name, {**SCORES, **_OWN_SCORES})


def score_named(name: str, width: int, key_width: int | None = None, heads: int = 1) -> Score:
    """The score of that name, sized for these queries and keys.

    Where it compares vectors of one width and these have two, the keys are projected first.

    >>> score_named("aditive", 8)
    Traceback (most recent call last):
    regard.core.errors.UserError: unknown score 'aditive': did you mean 'additive'? Known: ...
    """
    score = score_class(name)
    if score.equal_widths and key_width not in (None, width):
        return ProjectedKeys(score.sized(width, width, heads), key_width or width)
    return score.sized(width, key_width or width, heads)


def weigh_named(name: str, width: int) -> Weigh:
    """The weighing of that name, for queries of this width.

    >>> weigh_named("sparsemax", 8)
    Sparsemax()
    """
    return choose("weighing", name, {**WEIGHS, **_OWN_WEIGHS}).sized(width)


__all__ = [
    "SCORES",
    "START",
    "WEIGHS",
    "Additive",
    "Argmax",
    "Attend",
    "Bilinear",
    "Call",
    "Copy",
    "Cosine",
    "Coverage",
    "Dot",
    "Edit",
    "Entmax15",
    "Even",
    "Gather",
    "Hops",
    "LocalMonotonic",
    "LocalPredictive",
    "Location",
    "LocationAware",
    "Look",
    "Mask",
    "Memory",
    "MixtureWindow",
    "Past",
    "ProjectedKeys",
    "Read",
    "RelativeClipped",
    "RelativeSkewed",
    "RelativeXL",
    "Sample",
    "SampledRead",
    "ScaledDot",
    "Score",
    "ShiftSharpen",
    "Sigmoid",
    "Smoothed",
    "Softmax",
    "Sparsemax",
    "StraightThrough",
    "Tape",
    "TopK",
    "Weigh",
    "WeightedSum",
    "blocks",
    "blocks_2d",
    "causal",
    "frozen",
    "gather_chosen",
    "intervene",
    "only_rows",
    "padding",
    "permuted",
    "prefix",
    "record",
    "register_score",
    "register_weigh",
    "score_class",
    "score_named",
    "segment",
    "sinusoid",
    "sites_of",
    "skew",
    "sum_by_token",
    "table",
    "uniform",
    "weigh_named",
    "window",
    "without",
]  # fmt: skip
