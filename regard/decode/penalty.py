"""Penalty: what a hypothesis is ranked by beside its probability (Wu et al. 2016, section 7).

The score is log P(Y|X) / lp(Y) + cp(X;Y). Without the first, short hypotheses win, as every token
costs; without the second, those that leave out part of the source.

>>> [round(_gnmt(length, 1.0), 3) for length in (1, 7, 13)]
[1.0, 2.0, 3.0]
>>> average(8, 0.5) == 8**0.5
True
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.decode.rules import Number

_Penalty = Callable[[int, Number], float]
"""A length, with the token that ends it, and an alpha, to what log P is divided by.

At least one way of ending the search relies on it: it never falls as the length grows.
"""


def none(length: int, alpha: Number) -> float:
    """Log P itself."""
    return 1.0


def _gnmt(length: int, alpha: Number) -> float:
    """((5 + |Y|) / (5 + 1))^α, equation 14."""
    return float(((5 + length) / 6) ** alpha)


def average(length: int, alpha: Number) -> float:
    """|Y|^α: with α=1 the mean of the tokens' log-probabilities, as in fairseq."""
    return float(length**alpha)


LENGTH_PENALTIES: dict[str, _Penalty] = {"none": none, "gnmt": _gnmt, "average": average}
"""Every length penalty by its name."""


def coverage(
    seen: Float[Tensor, "N S"], there: Bool[Tensor, "N S"], beta: Number
) -> Float[Tensor, "N"]:
    """cp = β Σᵢ log(min(Σⱼ pᵢⱼ, 1)): the sums of weights that source positions have got.

    A position that got nothing at all, as sparse weights allow, costs as much as the smallest
    number there is: with -inf no such hypothesis could be compared with another.

    >>> seen = torch.tensor([[1.5, 0.5, 0.0]])
    >>> coverage(seen, torch.tensor([[True, True, False]]), 1.0).exp().tolist()
    [0.5]
    """
    covered = seen.clamp(torch.finfo(seen.dtype).tiny, 1.0).log()  # [N,S]
    return beta * torch.where(there, covered, 0.0).sum(-1)
