"""Plan: how long a training is, and after which updates what happens."""

from collections.abc import Collection
from dataclasses import dataclass

import torch

from regard.core.device import why_not
from regard.core.errors import UserError
from regard.train.schedule import Moment
from regard.train.settings import Training
from regard.train.state import Progress


@dataclass(frozen=True)
class Plan:
    """The settings, laid out over so many batches an epoch.

    Groups of accumulated batches do not reach over the end of an epoch, so the last one of an
    epoch may be smaller.
    """

    settings: Training
    batches: int

    @property
    def per_epoch(self) -> int:
        """How many updates an epoch has."""
        return -(-self.batches // self.settings.accumulate)

    @property
    def updates(self) -> int:
        """How many updates the training has."""
        return self.settings.total(self.per_epoch)

    def group(self, progress: Progress) -> range:
        """The batches of the next update."""
        end = min(progress.index + self.settings.accumulate, self.batches)
        return range(progress.index, end)

    def factor(self, progress: Progress, opens: Collection[int] = (0,)) -> float:
        """What the learning rate of the next update is multiplied by.

        A schedule runs from beginning to end in each stage: `opens` are the epochs that begin one.
        """
        begin = max(epoch for epoch in opens if epoch <= progress.epoch) * self.per_epoch
        later = [epoch * self.per_epoch for epoch in opens if epoch > progress.epoch]
        moment = Moment(
            update=progress.update + 1 - begin,
            updates=min([*later, self.updates]) - begin,
            per_epoch=self.per_epoch,
            evaluations=tuple(value for _, value in progress.evaluations),
        )
        return self.settings.schedule.factor(moment)

    def logs(self, update: int) -> bool:
        """Is a line of the log due?"""
        return self._due(update, self.settings.log_every)

    def validates(self, update: int) -> bool:
        """Is a validation due?"""
        return self._due(update, self.settings.evaluate_every)

    def saves(self, update: int) -> bool:
        """Is a checkpoint due? Others may be saved too, but only these are averaged."""
        return self._due(update, self.settings.save_every)

    def _due(self, update: int, every: int | None) -> bool:
        return update % (every or self.per_epoch) == 0 or update == self.updates

    def check(self, *, can_validate: bool, device: torch.device) -> None:
        """Refuse what cannot work, before any time is spent on it."""
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
                f'weights = "average" asks for {settings.average} checkpoints, but {saved} are '
                f"saved in {self.updates} updates: lower save_every or average"
            )
        reason = why_not(settings.precision, device)
        if reason:
            raise UserError(
                f"precision {settings.precision!r} does not work on {device} here ({reason}); "
                'use precision = "float32"'
            )
