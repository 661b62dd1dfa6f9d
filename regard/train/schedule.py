"""Schedules: the factor of the learning rate as a function of the update.

Updates count from 1, as in Vaswani et al. (2017). A schedule has no state: Plateau, which depends
on the validation, computes its factor from all evaluations so far, which are part of a checkpoint.

>>> start = SchedulePoint(update=1, updates=1000, per_epoch=100)
>>> InverseSquareRoot(warmup=100).factor(start)
0.01
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import cos, inf, pi, pow, sqrt
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from regard.core.config import Config


@dataclass(frozen=True, kw_only=True)
class SchedulePoint:
    """The position of an update in the training: all that a schedule may depend on."""

    update: int
    """The number of this update, from 1."""
    updates: int
    """The number of updates of the whole training."""
    per_epoch: int
    evaluations: tuple[float, ...] = ()
    """The value of each validation so far; lower is better."""

    @property
    def epoch(self) -> int:
        """The number of this update's epoch, from 1."""
        return (self.update - 1) // self.per_epoch + 1


class LearningRateCurve(Config, ABC):
    """A curve over the updates."""

    @abstractmethod
    def factor(self, point: SchedulePoint) -> float:
        """The factor of the learning rate at this point."""


class WarmedUp(LearningRateCurve, ABC):
    """A curve after a linear warmup."""

    warmup: NonNegativeInt = 0
    """The number of updates over which the rate rises to its peak."""

    def factor(self, point: SchedulePoint) -> float:
        """n / warmup at first, then the curve."""
        if point.update <= self.warmup:
            return point.update / self.warmup
        return self.after_warmup(point)

    @abstractmethod
    def after_warmup(self, point: SchedulePoint) -> float:
        """The factor after the warmup."""


class Constant(WarmedUp):
    """A constant learning rate, optionally after a warmup."""

    name: Literal["constant"] = "constant"

    def after_warmup(self, point: SchedulePoint) -> float:
        """Always 1."""
        return 1.0


class StepDecay(WarmedUp):
    """Constant for some epochs, then divided at regular intervals (Zaremba et al. 2014)."""

    name: Literal["step"] = "step"
    after: NonNegativeInt
    """The number of epochs with the full rate."""
    every: PositiveInt = 1
    """The number of epochs between divisions."""
    divide: float = Field(2.0, gt=1)

    def after_warmup(self, point: SchedulePoint) -> float:
        """1 for the first epochs, then one more division every `every` epochs."""
        late = max(0, point.epoch - self.after)
        return pow(self.divide, -late // self.every)  # minus the number of divisions, rounded up


class Plateau(WarmedUp):
    """Divided whenever the validation does not improve."""

    name: Literal["plateau"] = "plateau"
    patience: NonNegativeInt = 0
    """The number of evaluations without improvement that are tolerated before a division."""
    divide: float = Field(4.0, gt=1)

    def after_warmup(self, point: SchedulePoint) -> float:
        """One division each time the patience is exceeded."""
        best, stale, cuts = inf, 0, 0
        for value in point.evaluations:
            best, stale = (value, 0) if value < best else (best, stale + 1)
            cuts += stale > 0 and stale % (self.patience + 1) == 0
        return pow(self.divide, -cuts)


class InverseSquareRoot(LearningRateCurve):
    """Linear warmup, then inverse square root decay (Vaswani et al. 2017, eq. 3).

    The peak is 1; the paper's width^-0.5 * min(n^-0.5, n * warmup^-1.5) is this schedule with a
    learning rate of (width * warmup)^-0.5.
    """

    name: Literal["inverse_square_root"] = "inverse_square_root"
    warmup: PositiveInt

    def factor(self, point: SchedulePoint) -> float:
        """n / warmup at first, then (warmup / n)^0.5."""
        return min(point.update / self.warmup, sqrt(self.warmup / point.update))


class CosineDecay(LearningRateCurve):
    """Linear warmup, then half a cosine down to a floor (Loshchilov and Hutter 2017)."""

    name: Literal["cosine"] = "cosine"
    warmup: NonNegativeInt = 0
    floor: float = Field(0.1, ge=0, le=1)
    """The factor at the last update."""

    def factor(self, point: SchedulePoint) -> float:
        """n / warmup at first, then the cosine from 1 to the floor."""
        if point.update <= self.warmup:
            return point.update / self.warmup
        done = (point.update - self.warmup) / max(1, point.updates - self.warmup)
        return self.floor + (1 - self.floor) * 0.5 * (1 + cos(pi * min(1.0, done)))


class LinearDecay(WarmedUp):
    """Linear decay from 1 to a floor (Mikolov et al. 2013, in word2vec), after a warmup if there is
    one (Devlin et al. 2019)."""

    name: Literal["linear"] = "linear"
    floor: float = Field(0.0, ge=0, le=1)
    """The factor after the last update."""

    def after_warmup(self, point: SchedulePoint) -> float:
        """1 at the first update after the warmup."""
        done = (point.update - self.warmup - 1) / max(1, point.updates - self.warmup)
        return 1 - (1 - self.floor) * done


class SlantedTriangular(LearningRateCurve):
    """A short linear increase and a long linear decay (Howard and Ruder 2018, eq. 3).

    The decay ends at exactly 1 / ratio after the last update; in the paper's formula it does so
    only if `cut` times the updates is a whole number.
    """

    name: Literal["slanted_triangular"] = "slanted_triangular"
    cut: float = Field(0.1, gt=0, lt=1)
    """The fraction of the updates with an increasing rate."""
    ratio: float = Field(32.0, ge=1)
    """The peak divided by the lowest rate."""

    def factor(self, point: SchedulePoint) -> float:
        """(1 + p (ratio - 1)) / ratio, with p the height on the triangle."""
        peak = max(1, int(point.updates * self.cut))
        if point.update <= peak:
            height = point.update / peak
        else:
            height = max(0.0, 1 - (point.update - peak) / max(1, point.updates - peak))
        return (1 + height * (self.ratio - 1)) / self.ratio


SCHEDULES: dict[str, type[LearningRateCurve]] = {
    "constant": Constant,
    "step": StepDecay,
    "plateau": Plateau,
    "inverse_square_root": InverseSquareRoot,
    "cosine": CosineDecay,
    "linear": LinearDecay,
    "slanted_triangular": SlantedTriangular,
}
"""The schedules by their names in recipes."""

Schedule = Annotated[
    Constant
    | StepDecay
    | Plateau
    | InverseSquareRoot
    | CosineDecay
    | LinearDecay
    | SlantedTriangular,
    Field(discriminator="name"),
]
"""Any schedule, as a key of a recipe: `schedule = { name = "cosine", warmup = 100 }`."""
