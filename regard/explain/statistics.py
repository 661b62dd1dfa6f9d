"""Means that say how sure they are, and differences that say whether they are more than chance.

>>> interval([1.0, 2.0, 3.0])
Interval(mean=2.0, low=-0.484..., high=4.484...)
>>> paired_p([1.0, 2.0, 3.1], [1.5, 2.4, 3.7]) < 0.02
True
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, isnan, lgamma, log, log1p, nan, sqrt
from statistics import fmean, stdev

from regard.core.errors import UserError


@dataclass(frozen=True)
class Interval:
    """A mean, and the interval in which the true one lies with the confidence that was asked for.

    Of a single value nothing is known but the value: low and high are not numbers.
    """

    mean: float
    low: float
    high: float


def interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The mean of some repetitions, by Student's t."""
    if not values:
        raise UserError("there is no mean of nothing")
    mean = fmean(values)
    if len(values) == 1:
        return Interval(mean, nan, nan)
    half = student_quantile((1 + confidence) / 2, len(values) - 1) * _error_of_mean(values)
    return Interval(mean, mean - half, mean + half)


def _error_of_mean(values: Sequence[float]) -> float:
    """The standard error: the spread of the values by the root of their number."""
    return stdev(values) / sqrt(len(values))


def paired_p(first: Sequence[float], second: Sequence[float]) -> float:
    """How likely so large a mean difference is by chance, of pairs that share all but one thing.

    The two-sided paired t-test. Not a number for fewer than two pairs; of pairs that all differ by
    the same, 0, or 1 if that is nothing.
    """
    differences = [b - a for a, b in zip(first, second, strict=True)]
    if len(differences) < 2:
        return nan
    error = _error_of_mean(differences)
    if error == 0:
        return 1.0 if fmean(differences) == 0 else 0.0
    return student_tails(fmean(differences) / error, len(differences) - 1)


def student_tails(t: float, freedom: int) -> float:
    """The chance that Student's t is at least so far from zero, on either side.

    >>> round(student_tails(2.776445, 4), 6)
    0.05
    """
    if isnan(t):
        return nan
    return beta_share(freedom / (freedom + t * t), freedom / 2, 0.5)


def student_quantile(share: float, freedom: int) -> float:
    """The t below which that share lies; share is at least a half.

    >>> round(student_quantile(0.975, 4), 4)
    2.7764
    """
    return _bisected(lambda t: 2 * (1 - share) - student_tails(t, freedom), 0.0, 1e4)


def _bisected(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is zero."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by Lentz's continued fraction.

    >>> beta_share(0.5, 2.0, 2.0)
    0.5
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1 - beta_share(1 - x, b, a)
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
