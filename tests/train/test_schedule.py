"""Schedules against their papers' formulas, and laws over the whole table."""

from dataclasses import replace
from math import isclose
from typing import get_args

import pytest

from regard.train.schedule import (
    SCHEDULES,
    CosineDecay,
    InverseSquareRoot,
    LearningRateCurve,
    LinearDecay,
    Plateau,
    Schedule,
    SchedulePoint,
    SlantedTriangular,
    StepDecay,
)

FIRST = SchedulePoint(update=1, updates=1000, per_epoch=10)

EXAMPLES: dict[str, dict[str, object]] = {
    "constant": {},
    "step": {"after": 4},
    "plateau": {},
    "inverse_square_root": {"warmup": 100},
    "cosine": {"warmup": 100},
    "linear": {},
    "slanted_triangular": {},
}


def curve(shape: LearningRateCurve, moment: SchedulePoint = FIRST) -> list[float]:
    return [shape.factor(replace(moment, update=n)) for n in range(1, moment.updates + 1)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_stays_above_zero_and_reaches_one(name: str) -> None:
    factors = curve(SCHEDULES[name].model_validate({"name": name, **EXAMPLES[name]}))
    assert min(factors) > 0
    assert max(factors) == 1


@pytest.mark.parametrize("updates", [1, 2, 3, 15, 99])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_short_training_has_no_factor_outside_zero_and_one(name: str, updates: int) -> None:
    shape = SCHEDULES[name].model_validate({"name": name, **EXAMPLES[name]})
    factors = curve(shape, replace(FIRST, updates=updates))
    assert 0 < min(factors) <= max(factors) <= 1


def test_the_table_and_the_choice_of_a_recipe_hold_the_same_rows() -> None:
    union = get_args(get_args(Schedule)[0])
    assert list(SCHEDULES.values()) == list(union)
    assert [shape.model_fields["name"].default for shape in union] == list(SCHEDULES)


def test_zarembas_small_model_halves_after_epoch_four() -> None:
    shape = StepDecay(after=4)
    per_epoch = [shape.factor(replace(FIRST, update=10 * epoch - 3)) for epoch in range(1, 8)]
    assert per_epoch == [1, 1, 1, 1, 0.5, 0.25, 0.125]


def test_a_step_that_lasts_two_epochs_divides_every_second() -> None:
    shape = StepDecay(after=1, every=2, divide=10)
    per_epoch = [shape.factor(replace(FIRST, update=10 * epoch)) for epoch in range(1, 7)]
    assert per_epoch == pytest.approx([1, 0.1, 0.1, 0.01, 0.01, 0.001])


@pytest.mark.parametrize(
    ("patience", "evaluations", "cuts"),
    [
        (0, (), 0),
        (0, (5.0, 4.0, 3.0), 0),
        (0, (5.0, 4.0, 4.0), 1),
        (0, (5.0, 4.0, 4.5, 4.2), 2),
        (0, (5.0, 4.0, 4.5, 3.9), 1),
        (0, (float("nan"), 4.0, float("nan")), 2),
        (1, (4.0, 4.0), 0),
        (1, (4.0, 4.0, 4.0), 1),
        (1, (4.0, 4.0, 4.0, 4.0, 4.0), 2),
        (1, (4.0, 4.0, 3.0, 3.0), 0),
    ],
)
def test_plateau_divides_by_four_when_validation_does_not_improve(
    patience: int, evaluations: tuple[float, ...], cuts: int
) -> None:
    shape = Plateau(patience=patience)
    assert shape.factor(replace(FIRST, evaluations=evaluations)) == 0.25**cuts


def test_inverse_square_root_is_the_papers_formula_for_its_learning_rate() -> None:
    width, warmup = 512, 100
    rate = (width * warmup) ** -0.5
    for n, factor in enumerate(curve(InverseSquareRoot(warmup=warmup)), start=1):
        paper = width**-0.5 * min(n**-0.5, n * warmup**-1.5)
        assert isclose(rate * factor, paper, rel_tol=1e-12)


def test_cosine_warms_up_passes_half_way_and_ends_at_its_floor() -> None:
    shape = CosineDecay(warmup=200, floor=0.2)
    factors = curve(shape)
    assert factors[99] == 0.5
    assert factors[199] == 1
    assert isclose(factors[599], 0.6)
    assert isclose(factors[999], 0.2)


def test_slanted_triangular_is_the_papers_formula_where_the_cut_is_whole() -> None:
    updates, cut_frac, ratio = 1000, 0.1, 32
    cut = int(updates * cut_frac)
    for t, factor in enumerate(curve(SlantedTriangular(cut=cut_frac, ratio=ratio)), start=1):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
        assert isclose(factor, (1 + p * (ratio - 1)) / ratio, rel_tol=1e-9)


def test_word2vecs_rate_falls_in_a_straight_line_to_its_floor() -> None:
    factors = curve(LinearDecay(floor=0.2), replace(FIRST, updates=4))
    assert factors == pytest.approx([1.0, 0.8, 0.6, 0.4])


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_can_begin_with_a_warmup(name: str) -> None:
    settings = {"step": {"after": 50, "warmup": 10}, "slanted_triangular": {"cut": 0.1}}
    curve = SCHEDULES[name](**settings.get(name, {"warmup": 10}))
    factors = [
        curve.factor(SchedulePoint(update=n, updates=100, per_epoch=2)) for n in range(1, 101)
    ]
    assert factors[:10] == sorted(factors[:10])
    assert factors[0] < 0.15
    assert factors[9] == pytest.approx(1.0)
    assert all(0 <= each <= 1 for each in factors)
    assert max(factors) == pytest.approx(factors[9])
