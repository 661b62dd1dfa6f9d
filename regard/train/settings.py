"""Settings: the `[train]` table of a recipe."""

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from regard.core.config import Config
from regard.core.errors import UserError
from regard.train.optimise import Optimiser
from regard.train.schedule import Constant, Schedule
from regard.train.stages import Stages


class Training(Config):
    """How a model is trained; everything but the model, the task and the data."""

    updates: PositiveInt | None = None
    """How many updates to take; either this or `epochs`."""
    epochs: PositiveInt | None = None
    """How many times to go through the data."""
    optimiser: Optimiser
    schedule: Schedule = Constant()
    stages: Stages | None = None
    """Rates of their own for the layers of a model, which may begin to learn one after another."""
    accumulate: PositiveInt = 1
    """How many batches make an update."""
    clip: PositiveFloat | None = None
    """The largest norm of the gradient; None leaves it as it is."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What matrix products are computed in."""
    compile: bool = False
    """Pass the model through torch.compile: a slow start, then perhaps faster."""
    seed: NonNegativeInt = 0
    """For dropout and all else that is drawn; data and initial weights have their own."""

    weights: Literal["last", "best", "average"] = "last"
    """Which weights the training gives: the last, those of the best validation, or the mean of
    the last `average` checkpoints."""
    average: PositiveInt = 5
    """How many checkpoints `weights = "average"` takes the mean of."""
    ema: float | None = Field(None, gt=0, lt=1)
    """The decay of an exponential moving average of the weights, which then is what is validated
    and kept; None has none."""
    watch: str = "loss"
    """The metric of the validation that says which is best."""
    better: Literal["lower", "higher"] = "lower"
    """Which values of it are better."""
    patience: PositiveInt | None = None
    """Stop after so many validations in a row without improvement."""

    evaluate_every: PositiveInt | None = None
    """Validate every so many updates; None is after each epoch."""
    save_every: PositiveInt | None = None
    """Save a checkpoint every so many updates; None is after each epoch."""
    log_every: PositiveInt = 50
    """Write a line of the log every so many updates."""
    keep: int = Field(2, ge=2)
    """How many of the latest checkpoints stay; one alone would leave none behind a torn one."""
    tensorboard: bool = False
    """Write events for TensorBoard as well."""

    @model_validator(mode="after")
    def _agree(self) -> "Training":
        if (self.updates is None) == (self.epochs is None):
            given = "neither is given" if self.updates is None else "both are given"
            raise UserError(f"say how long to train with either updates or epochs; {given}")
        if self.ema is not None and self.weights == "average":
            raise UserError(
                'ema and weights="average" are two ways to average the same weights; keep one'
            )
        return self

    def total(self, per_epoch: int) -> int:
        """How many updates the whole training has."""
        return self.updates if self.updates is not None else (self.epochs or 0) * per_epoch
