"""Loop: a task over batches, update by update, until it is done or asked to stop.

Read it downward: `train` is the whole story, each method of `Loop` one sentence of it. Everything
that an update depends on is in `State`, so a training that was stopped anywhere and goes on from
its last checkpoint ends with the same bits as one that never stopped.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from regard.core.allocation import steady_allocation
from regard.core.errors import choose
from regard.core.mode import evaluating
from regard.core.protocols import Batches, Task
from regard.train import durable
from regard.train.average import Ema
from regard.train.checkpoint import Checkpoints, as_tensors, from_tensors
from regard.train.display import Display, Silent, display_for
from regard.train.evaluate import device_of
from regard.train.interrupt import Stop, interruptible
from regard.train.learner import Learned, Learner
from regard.train.log import Log
from regard.train.optimise import build
from regard.train.parallel.world import World, joined
from regard.train.plan import Plan
from regard.train.prefetch import ahead
from regard.train.retention import kept, result
from regard.train.settings import Training
from regard.train.state import State, random_states, set_random_states
from regard.train.sums import Sums
from regard.train.weights import load_weights, weights

_Validate = Callable[[], Mapping[str, float]]
"""Measures the model as it is now, which is in eval mode then."""

_Outcome = Literal["finished", "stopped early", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a training ended."""

    outcome: _Outcome
    update: int
    seconds: float
    """How long the updates took, all sittings together."""
    best: tuple[int, float] | None
    """The update after which the validation was best, and the watched metric then."""


def train(
    model: nn.Module,
    task: Task,
    batches: Batches,
    settings: Training,
    folder: Path,
    *,
    validate: _Validate | None = None,
    display: Display | None = None,
) -> Result:
    """Train a model in place, going on from the newest checkpoint in the folder if there is one.

    Leaves `log.jsonl`, `state/` with the checkpoints and, unless interrupted, `model.safetensors`
    with the weights that the settings ask for, which the model then has too.
    """
    with joined(device_of(model)) as world, interruptible() as stop:
        loop = Loop(model, task, batches, settings, folder, validate, world)
        with loop.begin(display or display_for()):
            while (outcome := loop.outcome()) is None:
                loop.update(stop)
                loop.report()
                loop.validate()
                loop.save()
            return loop.end(outcome)


class Loop:
    """One training: what it was given, and what it has come to."""

    log: Log
    last: Learned | None = None
    """Of the last update in this sitting."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        batches: Batches,
        settings: Training,
        folder: Path,
        validate: _Validate | None,
        world: World,
    ) -> None:
        self.model, self.settings, self.folder = model, settings, folder
        self.measure, self.world = validate, world
        self.device = device_of(model)
        self.plan = Plan(settings, len(batches))
        self.plan.check(can_validate=validate is not None, device=self.device)
        self.checkpoints = Checkpoints(folder / "state")
        self.state = State(
            model=model,
            optimiser=build(settings.optimiser, model, settings.stages),
            ema=None if settings.ema is None else Ema(model, settings.ema),
            batches=len(batches),
            data=getattr(batches, "digest", None),
            world=world,
            device=self.device,
        )
        self.learner = Learner(task=task, batches=ahead(batches), plan=self.plan, state=self.state)

    def begin(self, display: Display) -> Log:
        """Start, or go on from the newest whole checkpoint; the log from there on."""
        steady_allocation()
        self.model.train()
        if self.settings.compile:
            self.model.compile()
        torch.manual_seed(self.settings.seed + self.world.rank)
        self.world.share_weights(list(weights(self.model).values()))
        notes = self.resume()
        update, leads = self.state.progress.update, self.world.leads
        self.log = Log(
            self.folder if leads else None,
            display if leads else Silent(),
            after=update,
            tensorboard=self.settings.tensorboard,
        )
        self.log.display.begin(update, self.plan.updates)
        for note in notes:
            self.log.note(update, note)
        return self.log

    def resume(self) -> list[str]:
        """Restore the newest whole checkpoint; what there is to say of those that are torn.

        The leading process reads it and sends it to the others, who may have another disk.
        """
        found = self.checkpoints.newest() if self.world.leads else None
        update = int(self.world.follow_leader(float(found.checkpoint.update if found else -1)))
        if update < 0:
            return []
        place = self.checkpoints.place(update)
        sent = self.world.from_leader(as_tensors(found.checkpoint) if found else None)
        self.state.restore(from_tensors(sent), source=str(place))
        torn = found.torn if found else {}
        for each in torn:
            self.checkpoints.set_aside(each)
        return [f"{reason}; going on from {place}, the one before it" for reason in torn.values()]

    def outcome(self) -> _Outcome | None:
        """How training has ended; None if it has not."""
        at = self.state.progress
        if at.update >= self.plan.updates:
            return "finished"
        if self.settings.patience is not None and at.stale >= self.settings.patience:
            return "stopped early"
        return "interrupted" if self.last and self.last.stop else None

    def update(self, stop: Stop) -> None:
        """Take one update, and note whether anyone has asked to stop."""
        self.last = self.learner.update(stop)

    def report(self) -> None:
        """Write a line of the log, if one is due."""
        at = self.state.progress
        self.log.display.tick(at.update)
        if self.last is None or not self.plan.logs(at.update):
            return
        values = {
            "epoch": round(at.update / self.plan.per_epoch, 4),
            "loss": at.sums.loss,
            **at.sums.rates(),
            "lr": self.last.rate,
            "norm": self.last.norm,
            "items_per_second": at.sums.items / max(at.took, 1e-9),
            "waiting": round(at.waited / max(at.took, 1e-9), 4),
            "seconds": round(at.seconds, 3),
        }
        left = at.seconds / at.update * (self.plan.updates - at.update)
        self.log.trained(at.update, values, seconds_left=left)
        self.state.progress = replace(at, sums=Sums(), took=0.0, waited=0.0)

    def validate(self) -> None:
        """Measure the model, if that is due; it draws nothing from the training's generators."""
        at = self.state.progress
        if self.measure is None or not self.plan.validates(at.update):
            return
        metrics, value, random = {}, 0.0, random_states(self.device)
        if self.world.leads:
            smoothed = self.state.ema.in_place() if self.state.ema else nullcontext()
            with smoothed, evaluating(self.model), torch.no_grad():
                metrics = {name: float(each) for name, each in self.measure().items()}
            value = choose("metric", self.settings.watch, metrics)
        set_random_states(random, self.device)
        value = self.world.follow_leader(value if self.settings.better == "lower" else -value)
        self.state.progress = replace(at, evaluations=(*at.evaluations, (at.update, value)))
        self.log.validated(at.update, metrics, best=self.is_best())

    def is_best(self) -> bool:
        """Was there a validation after this very update, and was it the best?"""
        at = self.state.progress
        return at.best is not None and at.best[0] == at.update

    def save(self) -> None:
        """Write a checkpoint, if one is due or these weights must not be lost."""
        at = self.state.progress
        wanted = self.is_best() and self.settings.weights == "best"
        if not (self.plan.saves(at.update) or wanted or self.outcome()):
            return
        checkpoint = self.state.capture()
        if self.world.leads:
            self.log.sync()
            self.checkpoints.save(checkpoint)
            self.checkpoints.keep_only(kept(self.checkpoints, self.plan, at))
        self.world.wait()

    def end(self, outcome: _Outcome) -> Result:
        """Give the model the weights that the settings ask for, and write them."""
        at = self.state.progress
        if outcome != "interrupted":
            if self.world.leads:
                chosen, source = result(self.checkpoints, self.plan, at)
                load_weights(self.model, chosen, source=source)
                path = self.folder / "model.safetensors"
                durable.replace(path, durable.tensor_pieces(weights(self.model)))
            self.world.share_weights(list(weights(self.model).values()))
            self.world.wait()  # a process that ends earlier would break off the sending
        best = at.best
        if best and self.settings.better == "higher":
            best = (best[0], -best[1])
        return Result(outcome=outcome, update=at.update, seconds=at.seconds, best=best)
