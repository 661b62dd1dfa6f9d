"""Schedule: what the learning rate is multiplied by, as a function of when.

Updates count from 1, as in Vaswani et al. (2017). A schedule keeps no state: the one that looks at
the validation (Plateau) works its factor out from all evaluations so far, which are part of a
checkpoint.

>>> start = Moment(update=1, updates=1000, per_epoch=100)
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
class Moment:
    """When an update is taken: all that a schedule may look at."""

    update: int
    """The number of this update, from 1."""
    updates: int
    """How many there are in the whole training."""
    per_epoch: int
    evaluations: tuple[float, ...] = ()
    """What each validation so far gave; lower is better."""

    @property
    def epoch(self) -> int:
        """The number of this update's epoch, from 1."""
        return (self.update - 1) // self.per_epoch + 1


class Shape(Config, ABC):
    """A curve over the updates."""

    @abstractmethod
    def factor(self, moment: Moment) -> float:
        """What the learning rate is multiplied by at this moment."""


class Constant(Shape):
    """The same from beginning to end."""

    name: Literal["constant"] = "constant"

    def factor(self, moment: Moment) -> float:
        """Always one."""
        return 1.0


class Step(Shape):
    """Divided again and again once some epochs have passed (Zaremba et al. 2014)."""

    name: Literal["step"] = "step"
    after: NonNegativeInt
    """How many epochs have the full rate."""
    every: PositiveInt = 1
    """How many epochs each division lasts."""
    divide: float = Field(2.0, gt=1)

    def factor(self, moment: Moment) -> float:
        """One for the first epochs, then one division more every so many."""
        late = max(0, moment.epoch - self.after)
        return pow(self.divide, -late // self.every)  # minus the number of divisions, rounded up


class Plateau(Shape):
    """Divided whenever the validation does not improve on its best."""

    name: Literal["plateau"] = "plateau"
    patience: NonNegativeInt = 0
    """How many evaluations in a row may fail to improve before the one that divides."""
    divide: float = Field(4.0, gt=1)

    def factor(self, moment: Moment) -> float:
        """One division for each failure that was one too many."""
        best, stale, cuts = inf, 0, 0
        for value in moment.evaluations:
            best, stale = (value, 0) if value < best else (best, stale + 1)
            cuts += stale > 0 and stale % (self.patience + 1) == 0
        return pow(self.divide, -cuts)


class InverseSquareRoot(Shape):
    """Up in a straight line, then down with the root of the update (Vaswani et al. 2017, eq. 3).

    One at its peak; the paper's width^-0.5 * min(n^-0.5, n * warmup^-1.5) is this with a learning
    rate of (width * warmup)^-0.5.
    """

    name: Literal["inverse_square_root"] = "inverse_square_root"
    warmup: PositiveInt

    def factor(self, moment: Moment) -> float:
        """n / warmup at first, then (warmup / n)^0.5."""
        return min(moment.update / self.warmup, sqrt(self.warmup / moment.update))


class Cosine(Shape):
    """Up in a straight line, then half a cosine down to a floor (Loshchilov and Hutter 2017)."""

    name: Literal["cosine"] = "cosine"
    warmup: NonNegativeInt = 0
    floor: float = Field(0.1, ge=0, le=1)
    """What is left at the last update."""

    def factor(self, moment: Moment) -> float:
        """n / warmup at first, then the cosine from one to the floor."""
        if moment.update <= self.warmup:
            return moment.update / self.warmup
        done = (moment.update - self.warmup) / max(1, moment.updates - self.warmup)
        return self.floor + (1 - self.floor) * 0.5 * (1 + cos(pi * min(1.0, done)))


class Linear(Shape):
    """Down in a straight line from one to a floor (Mikolov et al. 2013, in word2vec)."""

    name: Literal["linear"] = "linear"
    floor: float = Field(0.0, ge=0, le=1)
    """What is left after the last update."""

    def factor(self, moment: Moment) -> float:
        """One at the first update."""
        return 1 - (1 - self.floor) * (moment.update - 1) / moment.updates


class SlantedTriangular(Shape):
    """Quickly up and slowly down in straight lines (Howard and Ruder 2018, eq. 3).

    The way down is measured from the peak to the last update, so that it ends at 1 / ratio exactly;
    the paper's formula does so only if `cut` times the updates is a whole number.
    """

    name: Literal["slanted_triangular"] = "slanted_triangular"
    cut: float = Field(0.1, gt=0, lt=1)
    """The part of all updates that the way up takes."""
    ratio: float = Field(32.0, ge=1)
    """How much smaller than the peak the ends are."""

    def factor(self, moment: Moment) -> float:
        """(1 + p (ratio - 1)) / ratio, with p the height on the triangle."""
        peak = max(1, int(moment.updates * self.cut))
        if moment.update <= peak:
            height = moment.update / peak
        else:
            height = max(0.0, 1 - (moment.update - peak) / max(1, moment.updates - peak))
        return (1 + height * (self.ratio - 1)) / self.ratio


SCHEDULES: dict[str, type[Shape]] = {
    "constant": Constant,
    "step": Step,
    "plateau": Plateau,
    "inverse_square_root": InverseSquareRoot,
    "cosine": Cosine,
    "linear": Linear,
    "slanted_triangular": SlantedTriangular,
}
"""Every schedule by the name a recipe calls it."""

Schedule = Annotated[
    Constant | Step | Plateau | InverseSquareRoot | Cosine | Linear | SlantedTriangular,
    Field(discriminator="name"),
]
"""Any of them, as a key of a recipe: `schedule = { name = "cosine", warmup = 100 }`."""
