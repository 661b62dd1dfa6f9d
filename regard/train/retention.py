"""Keep: which checkpoints stay, and whose weights are what a training gives."""

from collections.abc import Mapping

from torch import Tensor

from regard.core.errors import UserError
from regard.train.average import mean
from regard.train.checkpoint import Checkpoint, Checkpoints
from regard.train.plan import Plan
from regard.train.state import Progress


def kept(checkpoints: Checkpoints, plan: Plan, progress: Progress) -> set[int]:
    """The updates whose checkpoints stay: the latest, and those that may yet be the result."""
    latest = checkpoints.updates()[-plan.settings.keep :]
    return {*latest, *_wanted(checkpoints, plan, progress)}


def result(
    checkpoints: Checkpoints, plan: Plan, progress: Progress
) -> tuple[Mapping[str, Tensor], str]:
    """The weights that the settings ask for, and what they are of."""
    wanted = _wanted(checkpoints, plan, progress) or [progress.update]
    if missing := set(wanted) - set(checkpoints.updates()):
        places = ", ".join(str(checkpoints.place(each)) for each in sorted(missing))
        raise UserError(f"the weights asked for are gone: there is no checkpoint {places}")
    models = [_smoothed(checkpoints.load(update)) for update in wanted]
    return mean(models), f"the weights after update {', '.join(str(each) for each in wanted)}"


def _wanted(checkpoints: Checkpoints, plan: Plan, progress: Progress) -> list[int]:
    if plan.settings.weights == "best" and progress.best:
        return [progress.best[0]]
    if plan.settings.weights == "average":
        due = [update for update in checkpoints.updates() if plan.saves(update)]
        return due[-plan.settings.average :]
    return []


def _smoothed(checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """The weights of a checkpoint, averaged ones where it has them."""
    return {**checkpoint.parts["model"], **checkpoint.parts.get("ema", {})}
