"""Means with intervals, paired differences, and the agreement of rankings.

>>> interval([1.0, 2.0, 3.0])
Interval(mean=2.0, low=-0.484..., high=4.484...)
>>> paired_p([1.0, 2.0, 3.1], [1.5, 2.4, 3.7]) < 0.02
True
>>> tau = kendall_tau(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0, 4.0, 3.0]))
>>> round(tau.value, 4)
0.6667
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erfc, exp, inf, isnan, lgamma, log, log1p, nan, sqrt
from statistics import fmean, stdev

import torch as torch
from jaxtyping import Float
from torch import Tensor

from regard.core.errors import UserError


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval. For a single value, low and high are NaN."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The mean of some values with its interval, by Student's t."""
    if not values:
        raise UserError("the mean of no values is not defined")
    mean = fmean(values)
    if len(values) == 1:
        return Interval(mean, nan, nan)
    half = student_quantile((1 + confidence) / 2, len(values) - 1) * _error_of_mean(values)
    return Interval(mean, mean - half, mean + half)


def _error_of_mean(values: Sequence[float]) -> float:
    """The standard deviation divided by the square root of the number of values."""
    return stdev(values) / sqrt(len(values))


def paired_p(first: Sequence[float], second: Sequence[float]) -> float:
    """The p-value of a two-sided paired t-test.

    NaN for fewer than two pairs. If all differences are equal it is 0, or 1 if they are all zero.
    """
    differences = [b - a for a, b in zip(first, second, strict=True)]
    if len(differences) < 2:
        return nan
    error = _error_of_mean(differences)
    if error == 0:
        return 1.0 if fmean(differences) == 0 else 0.0
    return student_tails(fmean(differences) / error, len(differences) - 1)


def student_tails(t: float, freedom: int) -> float:
    """The probability that Student's t is at least so far from zero, on either side.

    >>> round(student_tails(2.776445, 4), 6)
    0.05
    """
    if isnan(t):
        return nan
    return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def student_quantile(share: float, freedom: int) -> float:
    """The quantile of Student's t for a share of at least a half.

    >>> round(student_quantile(0.975, 4), 4)
    2.7764
    """
    return _bisect(lambda t: 2 * (1 - share) - student_tails(t, freedom), 0.0, 1e4)


def _bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a rising function."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by Lentz's continued fraction.

    >>> incomplete_beta(0.5, 2.0, 2.0)
    0.5
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1 - incomplete_beta(1 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    tiny, total, c, d = 1e-300, 1.0, 1.0, 0.0
    last = inf
    for step in range(500):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        total, last = total * c * d, total
        if abs(total - last) < 1e-15 * abs(total):
            break
    return front * (total - 1)


# rankings ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KendallTau:
    """Kendall's tau-b and its p-value."""

    value: float
    p: float


def kendall_tau(first: Float[Tensor, "N"], second: Float[Tensor, "N"]) -> KendallTau:
    """Concordant pairs minus discordant ones, without ties (Kendall 1945).

    The p-value is that of the normal approximation, corrected for ties. Both are NaN where one of
    the two does not rank: fewer than two values, or all equal.
    """
    n = len(first)
    if n < 2:
        return KendallTau(nan, nan)
    rows, columns = torch.triu_indices(n, n, 1)
    a = (first[rows] - first[columns]).sign()
    b = (second[rows] - second[columns]).sign()
    agree = float((a * b).sum())
    untied = float((a != 0).sum()) * float((b != 0).sum())
    if untied == 0:
        return KendallTau(nan, nan)
    return KendallTau(agree / sqrt(untied), _tau_p(agree, n, _ties(first), _ties(second)))


def _ties(values: Tensor) -> Tensor:
    """The sizes of groups of equal values, without groups of one."""
    counts: Tensor = values.unique(return_counts=True)[1].cpu().double()
    return counts[counts > 1]


def _tau_p(agree: float, n: int, t: Tensor, u: Tensor) -> float:
    """The two-sided p-value, with groups of ties in either ranking."""

    def total(form: Tensor) -> float:
        return float(form.sum())

    variance = (
        n * (n - 1) * (2 * n + 5)
        - total(t * (t - 1) * (2 * t + 5))
        - total(u * (u - 1) * (2 * u + 5))
    ) / 18
    variance += total(t * (t - 1)) * total(u * (u - 1)) / (2 * n * (n - 1))
    if n > 2:
        both = total(t * (t - 1) * (t - 2)) * total(u * (u - 1) * (u - 2))
        variance += both / (9 * n * (n - 1) * (n - 2))
    return erfc(abs(agree) / sqrt(2 * variance)) if variance > 0 else nan


def spearman_rho(first: Float[Tensor, "N"], second: Float[Tensor, "N"]) -> float:
    """The correlation of ranks; ties share theirs. NaN where one of the two does not rank."""
    if len(first) < 2:
        return nan
    a, b = (mean_ranks(each) - mean_ranks(each).mean() for each in (first, second))
    size = float(a.norm() * b.norm())
    return float(a @ b) / size if size > 0 else nan


def mean_ranks(values: Tensor) -> Tensor:
    """Ranks from 1; equal values share the mean of theirs.

    >>> mean_ranks(torch.tensor([5.0, 1.0, 5.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, group, counts = values.unique(return_inverse=True, return_counts=True)
    counts = counts.cpu()  # not every device has float64
    middle: Tensor = counts.cumsum(0).double() - (counts - 1) / 2  # [G]
    return middle[group.cpu()]


def top_overlap(first: Float[Tensor, "N"], second: Float[Tensor, "N"], k: int) -> float:
    """The share of the k highest that are the same, with k less than the number of values.

    >>> top_overlap(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 3.0]), 2)
    0.5
    """
    k = min(k, len(first) - 1)
    if k < 1:
        return nan
    a, b = first.topk(k).indices.tolist(), second.topk(k).indices.tolist()
    return len(set(a) & set(b)) / k
