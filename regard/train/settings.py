"""Settings: the `[train]` table of a recipe."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from regard.core.config import Config, Seed
from regard.core.errors import UserError
from regard.train.lora import Lora
from regard.train.optimise import Optimiser
from regard.train.schedule import Constant, Schedule
from regard.train.stages import Stages


class Training(Config):
    """How a model is trained; everything but the model, the task and the data."""

    updates: PositiveInt | None = None
    """The number of updates; give either this or `epochs`."""
    epochs: PositiveInt | None = None
    """The number of passes over the training data."""
    optimiser: Optimiser
    schedule: Schedule = Constant()
    stages: Stages | None = None
    """A learning rate for each layer, and gradual unfreezing."""
    lora: Lora | None = None
    """Train low-rank changes of the matrices instead of the matrices themselves (train/lora.py);
    for fine-tuning a large model."""
    accumulate: PositiveInt = 1
    """The number of batches whose gradients are accumulated in one update."""
    clip: PositiveFloat | None = None
    """The largest norm of the gradient; None does not clip."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """The dtype of matrix products (autocast)."""
    compile: bool = False
    """Compile the model with torch.compile: starts slowly and may then be faster."""
    seed: Seed = 0
    """The seed of dropout and other sampling; data and initial weights have their own seeds."""

    weights: Literal["last", "best", "average"] = "last"
    """Which weights are the result: the last ones, those of the best validation, or the mean of
    the last `average` checkpoints."""
    average: PositiveInt = 5
    """The number of checkpoints that `weights = "average"` averages."""
    ema: float | None = Field(None, gt=0, lt=1)
    """The decay of an exponential moving average of the weights. The average is then validated and
    saved as the result. None keeps no average."""
    monitor: str = "loss"
    """The validation metric that selects the best weights."""
    better: Literal["lower", "higher"] = "lower"
    """Whether lower or higher values of `monitor` are better."""
    patience: PositiveInt | None = None
    """Stop after this many validations in a row without improvement."""

    evaluate_every: PositiveInt | None = None
    """The number of updates between validations; None validates after each epoch."""
    save_every: PositiveInt | None = None
    """The number of updates between checkpoints; None saves one after each epoch."""
    log_every: PositiveInt = 50
    """The number of updates between lines of the log."""
    keep: int = Field(2, ge=2)
    """How many of the latest checkpoints to keep; at least two, in case the newest is corrupt."""
    tensorboard: bool = False
    """Write events for TensorBoard as well."""
    wandb: bool = False
    """Keep the curves with Weights & Biases as well: offline in the run folder, unless WANDB_MODE
    is set."""
    mlflow: bool = False
    """Keep the curves with MLflow as well: in the run folder, unless MLFLOW_TRACKING_URI is set."""

    @model_validator(mode="after")
    def _agree(self) -> "Training":
        if (self.updates is None) == (self.epochs is None):
            given = "neither is given" if self.updates is None else "both are given"
            raise UserError(f"set the length of the training with updates or epochs; {given}")
        if self.ema is not None and self.weights == "average":
            raise UserError(
                'ema and weights="average" both average the weights; choose one of them'
            )
        return self

    @property
    def trackers(self) -> tuple[str, ...]:
        """Where curves are kept besides the log, by name."""
        return tuple(name for name in ("tensorboard", "wandb", "mlflow") if getattr(self, name))

    def total_updates(self, per_epoch: int) -> int:
        """The number of updates of the whole training."""
        return self.updates if self.updates is not None else (self.epochs or 0) * per_epoch
