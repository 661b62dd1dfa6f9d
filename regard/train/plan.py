"""The length of a training, which updates log, validate and save, and which weights result."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.device import precision_problem
from regard.core.errors import UserError
from regard.train.average import mean_weights
from regard.train.checkpoint import Checkpoint, Checkpoints
from regard.train.schedule import SchedulePoint
from regard.train.settings import Training
from regard.train.state import TrainingProgress


@dataclass(frozen=True)
class Plan:
    """The settings applied to a number of batches per epoch.

    A group of accumulated batches does not cross the end of an epoch, so the last group of an
    epoch may be smaller.
    """

    settings: Training
    batches: int
    """The number of batches in an epoch."""

    @property
    def per_epoch(self) -> int:
        """The number of updates in an epoch."""
        return -(-self.batches // self.settings.accumulate)

    @property
    def updates(self) -> int:
        """The number of updates of the training."""
        return self.settings.total_updates(self.per_epoch)

    def group(self, progress: TrainingProgress) -> range:
        """The indices of the batches of the next update."""
        end = min(progress.index + self.settings.accumulate, self.batches)
        return range(progress.index, end)

    def factor(self, progress: TrainingProgress, stage_epochs: Collection[int] = (0,)) -> float:
        """The factor of the learning rate in the next update.

        The schedule runs once in each stage; `stage_epochs` are the epochs in which one begins.
        """
        begin = max(epoch for epoch in stage_epochs if epoch <= progress.epoch) * self.per_epoch
        later = [epoch * self.per_epoch for epoch in stage_epochs if epoch > progress.epoch]
        point = SchedulePoint(
            update=progress.update + 1 - begin,
            updates=min([*later, self.updates]) - begin,
            per_epoch=self.per_epoch,
            evaluations=tuple(value for _, value in progress.evaluations),
        )
        return self.settings.schedule.factor(point)

    def logs(self, update: int) -> bool:
        """Is a line of the log due?"""
        return self._due(update, self.settings.log_every)

    def validates(self, update: int) -> bool:
        """Is a validation due?"""
        return self._due(update, self.settings.evaluate_every)

    def saves(self, update: int) -> bool:
        """Is a checkpoint due? Others may be saved as well, but only these are averaged."""
        return self._due(update, self.settings.save_every)

    def _due(self, update: int, every: int | None) -> bool:
        return update % (every or self.per_epoch) == 0 or update == self.updates

    def check(self, *, can_validate: bool, device: torch.device) -> None:
        """Raise a UserError for settings that cannot work, before the training starts."""
        settings = self.settings
        if self.batches == 0:
            raise UserError("there is nothing to train on: the data has no batches")
        if not can_validate:
            needs = {
                'weights = "best"': settings.weights == "best",
                "patience": settings.patience is not None,
                'schedule = "plateau"': settings.schedule.name == "plateau",
            }
            for name in (name for name, needed in needs.items() if needed):
                raise UserError(f"{name} needs validation data, and there is none")
        saved = -(-self.updates // (settings.save_every or self.per_epoch))
        if settings.weights == "average" and saved < settings.average:
            raise UserError(
                f'weights = "average" needs {settings.average} checkpoints, but {saved} are '
                f"saved in {self.updates} updates: lower save_every or average"
            )
        reason = precision_problem(settings.precision, device)
        if reason:
            raise UserError(
                f"precision {settings.precision!r} does not work on {device} here ({reason}); "
                'use precision = "float32"'
            )

    def checkpoints_to_keep(self, checkpoints: Checkpoints, progress: TrainingProgress) -> set[int]:
        """The updates whose checkpoints stay: the latest, and candidates for the final weights."""
        latest = checkpoints.updates()[-self.settings.keep :]
        return {*latest, *self._final_updates(checkpoints, progress)}

    def final_weights(
        self, checkpoints: Checkpoints, progress: TrainingProgress
    ) -> tuple[Mapping[str, Tensor], str]:
        """The weights that the setting `weights` selects, and a description of them."""
        updates = self._final_updates(checkpoints, progress) or [progress.update]
        if missing := set(updates) - set(checkpoints.updates()):
            paths = ", ".join(str(checkpoints.path(each)) for each in sorted(missing))
            raise UserError(f"the selected weights are missing: there is no checkpoint {paths}")
        models = [_smoothed_weights(checkpoints.load(update)) for update in updates]
        source = f"the weights after update {', '.join(str(each) for each in updates)}"
        return mean_weights(models), source

    def _final_updates(self, checkpoints: Checkpoints, progress: TrainingProgress) -> list[int]:
        if self.settings.weights == "best" and progress.best:
            return [progress.best[0]]
        if self.settings.weights == "average":
            due = [update for update in checkpoints.updates() if self.saves(update)]
            return due[-self.settings.average :]
        return []


def _smoothed_weights(checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """The weights of a checkpoint; the moving average replaces them where there is one."""
    return {**checkpoint.parts["model"], **checkpoint.parts.get("ema", {})}
