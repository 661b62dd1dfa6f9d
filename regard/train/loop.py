"""The training loop: updates, logging, validation and checkpoints until done or interrupted.

`train` is the outline and each method of `Loop` one step of it. Everything an update depends on is
in `TrainingState`. A training that was stopped anywhere and resumed from its last checkpoint
therefore ends with the same bits as one that was never stopped.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Literal

import torch
from torch import nn

from regard.core.allocation import keep_freed_memory
from regard.core.errors import choose
from regard.core.lock import one_writer
from regard.core.mode import eval_mode
from regard.core.protocols import Batches, Task
from regard.train import durable
from regard.train.average import Ema
from regard.train.checkpoint import Checkpoints, checkpoint_as_tensors, checkpoint_from_tensors
from regard.train.display import Display, SilentDisplay, display_for
from regard.train.evaluate import Sums, device_of
from regard.train.learner import Learner, UpdateStats
from regard.train.log import Log
from regard.train.lora import adapt_model, merge_model
from regard.train.optimise import build_optimiser
from regard.train.parallel.world import World, process_group
from regard.train.plan import Plan
from regard.train.prefetch import prefetch
from regard.train.settings import Training
from regard.train.state import TrainingState, random_states, set_random_states
from regard.train.weights import load_weights, named_weights

_Validate = Callable[[], Mapping[str, float]]
"""Returns the validation metrics of the model, which is in eval mode during the call."""

_Outcome = Literal["finished", "stopped early", "interrupted"]


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class StopRequest:
    """A flag that a signal handler sets to end the training after the current update."""

    requested: bool = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Inside, the first Ctrl-C or SIGTERM sets the flag; a second one interrupts immediately.

    Python handles signals in the main thread only. In any other thread the flag is never set.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    previous = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """How a training ended."""

    outcome: _Outcome
    update: int
    seconds: float
    """The time of all updates, including those before a resume."""
    best: tuple[int, float] | None
    """The update with the best validation, and the monitored metric after it."""


def train(
    model: nn.Module,
    task: Task,
    batches: Batches,
    settings: Training,
    folder: Path,
    *,
    validate: _Validate | None = None,
    display: Display | None = None,
) -> TrainingResult:
    """Train a model in place; resume from the newest checkpoint in the folder if there is one.

    Writes `log.jsonl`, checkpoints in `state/` and, unless interrupted, `model.safetensors` with
    the weights that `settings.weights` selects. They are loaded into the model too.
    """
    with process_group(device_of(model)) as world, stop_on_signal() as stop:
        loop = Loop(model, task, batches, settings, folder, validate, world)
        writer = one_writer(folder) if world.is_main else nullcontext()
        with writer, loop.begin(display or display_for()):
            while (outcome := loop.outcome()) is None:
                loop.update(stop)
                loop.report()
                loop.validate()
                loop.save()
            return loop.end(outcome)


class Loop:
    """One training and its current state."""

    log: Log
    last: UpdateStats | None = None
    """Statistics of the last update; None before the first one of this process."""

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
        self.notes: list[str] = []
        if settings.lora is not None:
            learns, frozen = adapt_model(model, settings.lora, settings.seed)
            self.notes.append(f"LoRA: {learns:,} parameters are trained, {frozen:,} are frozen")
        self.checkpoints = Checkpoints(folder / "state")
        self.state = TrainingState(
            model=model,
            optimiser=build_optimiser(settings.optimiser, model, settings.stages),
            ema=None if settings.ema is None else Ema(model, settings.ema),
            batches=len(batches),
            data=getattr(batches, "digest", None),
            world=world,
            device=self.device,
        )
        self.learner = Learner(
            task=task, batches=prefetch(batches), plan=self.plan, state=self.state
        )

    def begin(self, display: Display) -> Log:
        """Start, or resume from the newest valid checkpoint; return the log."""
        keep_freed_memory()
        self.model.train()
        if self.settings.compile:
            self.model.compile()
        torch.manual_seed(self.settings.seed + self.world.rank)
        self.world.broadcast_weights(list(named_weights(self.model).values()))
        notes = self.resume()
        update, is_main = self.state.progress.update, self.world.is_main
        self.log = Log(
            self.folder if is_main else None,
            display if is_main else SilentDisplay(),
            after=update,
            trackers=self.settings.trackers,
        )
        self.log.display.begin(update, self.plan.updates)
        for note in (*self.notes, *notes):
            self.log.note(update, note)
        return self.log

    def resume(self) -> list[str]:
        """Restore the newest valid checkpoint; return a note about each corrupt one.

        The main process reads the checkpoint and broadcasts it: the others may have another disk.
        """
        newest = self.checkpoints.newest() if self.world.is_main else None
        update = int(self.world.broadcast(float(newest.checkpoint.update if newest else -1)))
        if update < 0:
            return []
        path = self.checkpoints.path(update)
        tensors = self.world.broadcast_tensors(
            checkpoint_as_tensors(newest.checkpoint) if newest else None
        )
        self.state.restore(checkpoint_from_tensors(tensors), source=str(path))
        corrupt = newest.corrupt if newest else {}
        for each in corrupt:
            self.checkpoints.set_aside(each)
        return [f"{reason}; resuming from the previous one, {path}" for reason in corrupt.values()]

    def outcome(self) -> _Outcome | None:
        """How the training ended; None while it runs."""
        at = self.state.progress
        if at.update >= self.plan.updates:
            return "finished"
        if self.settings.patience is not None and at.stale >= self.settings.patience:
            return "stopped early"
        return "interrupted" if self.last and self.last.stop else None

    def update(self, stop: StopRequest) -> None:
        """Take one update."""
        self.last = self.learner.update(lambda: stop.requested)

    def report(self) -> None:
        """Write a line of the log if one is due."""
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
        self.log.log_training(at.update, values, seconds_left=left)
        self.state.progress = replace(at, sums=Sums(), took=0.0, waited=0.0)

    def validate(self) -> None:
        """Validate the model if that is due, without changing the random state of the training."""
        at = self.state.progress
        if self.measure is None or not self.plan.validates(at.update):
            return
        metrics, value, random = {}, 0.0, random_states(self.device)
        if self.world.is_main:
            smoothed = self.state.ema.applied() if self.state.ema else nullcontext()
            with smoothed, eval_mode(self.model), torch.no_grad():
                metrics = {name: float(each) for name, each in self.measure().items()}
            value = choose("metric", self.settings.monitor, metrics)
        set_random_states(random, self.device)
        value = self.world.broadcast(value if self.settings.better == "lower" else -value)
        self.state.progress = replace(at, evaluations=(*at.evaluations, (at.update, value)))
        self.log.log_validation(at.update, metrics, best=self.is_best())

    def is_best(self) -> bool:
        """Is the validation after the current update the best so far?"""
        at = self.state.progress
        return at.best is not None and at.best[0] == at.update

    def save(self) -> None:
        """Write a checkpoint if one is due, these are the best weights, or the training ends."""
        at = self.state.progress
        new_best = self.is_best() and self.settings.weights == "best"
        if not (self.plan.saves(at.update) or new_best or self.outcome()):
            return
        checkpoint = self.state.capture()
        if self.world.is_main:
            self.log.sync()
            self.checkpoints.save(checkpoint)
            self.checkpoints.keep_only(self.plan.checkpoints_to_keep(self.checkpoints, at))
        self.world.barrier()

    def end(self, outcome: _Outcome) -> TrainingResult:
        """Load the weights that `settings.weights` selects into the model, and write them."""
        at = self.state.progress
        if outcome != "interrupted":
            if self.world.is_main:
                chosen, source = self.plan.final_weights(self.checkpoints, at)
                load_weights(self.model, chosen, source=source)
            if self.settings.lora is not None:
                merge_model(self.model)
            if self.world.is_main:
                path = self.folder / "model.safetensors"
                durable.replace_file(path, durable.tensor_pieces(named_weights(self.model)))
            self.world.broadcast_weights(list(named_weights(self.model).values()))
            self.world.barrier()  # a process that exits earlier would interrupt the broadcast
        best = at.best
        if best and self.settings.better == "higher":
            best = (best[0], -best[1])
        return TrainingResult(outcome=outcome, update=at.update, seconds=at.seconds, best=best)
