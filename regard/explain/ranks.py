"""Do two rankings of the same tokens agree? Kendall's tau, Spearman's rho, the overlap of the top.

>>> import torch
>>> tau = kendall(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0, 4.0, 3.0]))
>>> round(tau.value, 4)
0.6667
"""

from dataclasses import dataclass
from math import erfc, nan, sqrt

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Tau:
    """Kendall's tau-b, and how likely one so far from zero is by chance."""

    value: float
    p: float


def kendall(first: Float[Tensor, "N"], second: Float[Tensor, "N"]) -> Tau:
    """Pairs in the same order less pairs in the other, ties taken out (Kendall 1945).

    The chance is that of the normal approximation, corrected for ties. Not a number where one of
    the two does not rank at all: fewer than two tokens, or all alike.
    """
    n = len(first)
    if n < 2:
        return Tau(nan, nan)
    rows, columns = torch.triu_indices(n, n, 1)
    a = (first[rows] - first[columns]).sign()
    b = (second[rows] - second[columns]).sign()
    agree = float((a * b).sum())
    untied = float((a != 0).sum()) * float((b != 0).sum())
    if untied == 0:
        return Tau(nan, nan)
    return Tau(agree / sqrt(untied), _chance(agree, n, _ties(first), _ties(second)))


def _ties(values: Tensor) -> Tensor:
    """The sizes of groups of equal values, those of one left out."""
    counts: Tensor = values.unique(return_counts=True)[1].cpu().double()
    return counts[counts > 1]


def _chance(agree: float, n: int, t: Tensor, u: Tensor) -> float:
    """The two-sided p of so many agreeing pairs, with groups of ties in either ranking."""

    def total(form: Tensor) -> float:
        return float(form.sum())

    spread = (
        n * (n - 1) * (2 * n + 5)
        - total(t * (t - 1) * (2 * t + 5))
        - total(u * (u - 1) * (2 * u + 5))
    ) / 18
    spread += total(t * (t - 1)) * total(u * (u - 1)) / (2 * n * (n - 1))
    if n > 2:
        both = total(t * (t - 1) * (t - 2)) * total(u * (u - 1) * (u - 2))
        spread += both / (9 * n * (n - 1) * (n - 2))
    return erfc(abs(agree) / sqrt(2 * spread)) if spread > 0 else nan


def spearman(first: Float[Tensor, "N"], second: Float[Tensor, "N"]) -> float:
    """The correlation of ranks; ties share theirs. Not a number where one does not rank at all."""
    if len(first) < 2:
        return nan
    a, b = (ranks(each) - ranks(each).mean() for each in (first, second))
    size = float(a.norm() * b.norm())
    return float(a @ b) / size if size > 0 else nan


def ranks(values: Tensor) -> Tensor:
    """Ranks from 1 on; equal values have the mean of theirs.

    >>> ranks(torch.tensor([5.0, 1.0, 5.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, group, counts = values.unique(return_inverse=True, return_counts=True)
    counts = counts.cpu()  # not every device has float64
    middle: Tensor = counts.cumsum(0).double() - (counts - 1) / 2  # [G]
    return middle[group.cpu()]


def overlap(first: Float[Tensor, "N"], second: Float[Tensor, "N"], k: int) -> float:
    """The share of the k highest that are the same; of texts with fewer tokens, of all but one.

    >>> overlap(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 3.0]), 2)
    0.5
    """
    k = min(k, len(first) - 1)
    if k < 1:
        return nan
    a, b = first.topk(k).indices.tolist(), second.topk(k).indices.tolist()
    return len(set(a) & set(b)) / k
