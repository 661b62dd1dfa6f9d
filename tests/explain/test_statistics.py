"""Intervals and tests against values that tables of Student's t print."""

from math import atan, isnan, pi, sqrt

import pytest

from regard.core.errors import UserError
from regard.explain.statistics import (
    incomplete_beta,
    interval,
    paired_p,
    student_quantile,
    student_tails,
)

QUANTILES = {  # two-sided 5 %, as printed in tables
    1: 12.706205,
    2: 4.302653,
    4: 2.776445,
    9: 2.262157,
    30: 2.042272,
    1000: 1.962339,
}


@pytest.mark.parametrize(("freedom", "value"), QUANTILES.items())
def test_quantiles_are_those_of_the_tables(freedom: int, value: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(value, abs=1e-6)
    assert student_tails(value, freedom) == pytest.approx(0.05, abs=1e-7)
    assert student_tails(-value, freedom) == pytest.approx(0.05, abs=1e-7)


def test_one_degree_of_freedom_is_cauchy() -> None:
    assert student_tails(1.0, 1) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("x", [0.01, 0.2, 0.5, 0.77, 0.999])
def test_incomplete_beta_of_whole_numbers_is_a_binomial_sum(x: float) -> None:
    # I_x(2, 3) = P(at least 2 of 4 draws fall below x)
    wanted = 6 * x**2 * (1 - x) ** 2 + 4 * x**3 * (1 - x) + x**4
    assert incomplete_beta(x, 2.0, 3.0) == pytest.approx(wanted, abs=1e-12)


def test_an_interval_holds_the_mean_and_shrinks_with_more_values() -> None:
    few, many = interval([1.0, 2.0, 3.0]), interval([1.0, 2.0, 3.0] * 10)
    assert few.mean == many.mean == 2.0
    assert few.low < many.low < 2.0 < many.high < few.high


def test_of_one_value_there_is_no_interval_and_of_none_no_mean() -> None:
    single = interval([3.0])
    assert single.mean == 3.0
    assert isnan(single.low)
    assert isnan(single.high)
    with pytest.raises(UserError, match="mean of no values"):
        interval([])


# Student's own example (1908): hours of sleep gained by ten patients with each of two drugs. The
# p-value is the one that R prints for t.test(..., paired = TRUE) on its data set `sleep`.
FIRST_DRUG = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND_DRUG = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_paired_t_test_of_student() -> None:
    assert paired_p(FIRST_DRUG, SECOND_DRUG) == pytest.approx(0.00283289, abs=1e-7)


def test_paired_t_test_has_a_degree_of_freedom_less_than_pairs() -> None:
    # Differences 1 and 2: t = 3 with one degree, the distribution of Cauchy.
    assert paired_p([0.0, 0.0], [1.0, 2.0]) == pytest.approx(1 - 2 * atan(3) / pi, abs=1e-12)
    # Differences 1, 2 and 3: t = 2 √3 with two degrees, p = 1 - t / √(2 + t²).
    assert paired_p([0.0] * 3, [1.0, 2.0, 3.0]) == pytest.approx(1 - sqrt(12 / 14), abs=1e-12)


def test_pairs_see_what_means_do_not() -> None:
    first = [10.0, 20.0, 30.0, 40.0]
    second = [10.5, 20.6, 30.4, 40.5]  # always about a half more, however far apart the pairs are
    assert paired_p(first, second) < 0.01
    assert paired_p(first, second) == paired_p(second, first)
    assert paired_p(first, first) == 1.0
    assert paired_p(first, [each + 1 for each in first]) == 0.0
    assert isnan(paired_p([1.0], [2.0]))
