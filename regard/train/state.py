"""The complete state of a training, saved in a checkpoint and restored on resume.

It has the weights, the optimiser's moments, the random states, the position in the data, the carry
of the last batch, the moving average and the validations so far. Each process has its own random
state and its own carry; everything else is the same in all processes.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn, optim

from regard.core.errors import UserError
from regard.core.protocols import Carry
from regard.train.average import Ema
from regard.train.checkpoint import Checkpoint
from regard.train.evaluate import Sums
from regard.train.parallel.world import World
from regard.train.weights import (
    Fingerprint,
    buffers,
    check_fingerprint,
    fingerprint,
    load_weights,
    named_weights,
)


@dataclass(frozen=True, kw_only=True)
class TrainingProgress:
    """The position of a training."""

    update: int = 0
    """The number of updates so far."""
    epoch: int = 0
    """The epoch of the next batch, from 0."""
    index: int = 0
    """The index of the next batch in its epoch."""
    seconds: float = 0.0
    """The time of all updates, including those before a resume."""
    evaluations: tuple[tuple[int, float], ...] = ()
    """The update and the monitored value of each validation; lower is better."""
    sums: Sums = field(default_factory=Sums)
    """The sums of the updates since the last line of the log."""
    took: float = 0.0
    """The seconds of those updates."""
    waited: float = 0.0
    """The part of these seconds that was spent waiting for a batch."""

    @property
    def best(self) -> tuple[int, float] | None:
        """The best validation, the first of equals; NaN is never best."""
        return min(self.evaluations, key=lambda each: (each[1] != each[1], each[1]), default=None)

    @property
    def stale(self) -> int:
        """The number of validations since the best one."""
        return sum(each[0] > self.best[0] for each in self.evaluations) if self.best else 0


@dataclass(frozen=True, kw_only=True)
class CheckpointFacts:
    """The part of a checkpoint that is not tensors."""

    progress: TrainingProgress
    model: Fingerprint
    optimiser: str
    scalars: Mapping[str, float | int | bool | None]
    """The entries of the optimiser's state that are not tensors."""
    batches: int
    processes: int
    ema: bool
    carries: bool
    data: str | None = None
    """The digest of the training data; None in older checkpoints and for data without a digest."""


@dataclass(kw_only=True)
class TrainingState:
    """The live objects of a training, which a checkpoint copies."""

    model: nn.Module
    optimiser: optim.Optimizer
    ema: Ema | None
    batches: int
    """The number of batches in an epoch of this process."""
    data: str | None = None
    """The digest of the training data, if it has one."""
    world: World
    device: torch.device
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    carry: Carry | None = None

    def average_buffers(self, items: int) -> None:
        """Replace the buffers of all processes by their mean, weighted by items in the batch."""
        if self.world.size > 1:
            self.world.all_reduce_mean(buffers(self.model), float(items))

    def capture(self) -> Checkpoint:
        """A checkpoint of this state; a collective call, to be made in every process."""
        own = {f"random.{name}": each for name, each in random_states(self.device).items()}
        own |= {f"carry.{name}": each for name, each in (self.carry or {}).items()}
        moments, scalars = _moments_of(self.optimiser)
        parts: dict[str, Mapping[str, Tensor]]
        parts = {"model": named_weights(self.model), "optimiser": moments}
        parts |= {f"rank-{rank}": each for rank, each in enumerate(self.world.all_gather(own))}
        parts |= {"ema": self.ema.tensors} if self.ema else {}
        return Checkpoint(
            update=self.progress.update, parts=parts, facts=asdict(self._facts(scalars))
        )

    def restore(self, checkpoint: Checkpoint, *, source: str) -> None:
        """Restore a checkpoint; `source` is its name in errors."""
        facts = TypeAdapter(CheckpointFacts).validate_python(checkpoint.facts)
        self._check_same_training(facts, source)
        load_weights(self.model, checkpoint.parts["model"], source=source)
        _load_moments(self.optimiser, {**checkpoint.parts["optimiser"], **facts.scalars})
        if self.ema:
            for name, tensor in self.ema.tensors.items():
                tensor.copy_(checkpoint.parts["ema"][name])
        own = checkpoint.parts[f"rank-{self.world.rank}"]
        carry = {name: each.to(self.device) for name, each in _under("carry.", own).items()}
        self.carry = carry if facts.carries else None
        self.progress = facts.progress
        set_random_states(_under("random.", own), self.device)

    def _facts(self, scalars: Mapping[str, float | int | bool | None]) -> CheckpointFacts:
        return CheckpointFacts(
            progress=self.progress,
            model=fingerprint(named_weights(self.model)),
            optimiser=type(self.optimiser).__name__,
            scalars=scalars,
            batches=self.batches,
            processes=self.world.size,
            ema=self.ema is not None,
            carries=self.carry is not None,
            data=self.data,
        )

    def _check_same_training(self, was: CheckpointFacts, source: str) -> None:
        now = self._facts({})
        check_fingerprint(was.model, now.model, source=source)
        pairs: dict[str, tuple[object, object]] = {
            "the optimiser": (was.optimiser, now.optimiser),
            "the number of batches in an epoch": (was.batches, now.batches),
            "the number of processes": (was.processes, now.processes),
            "the use of a moving average (ema)": (was.ema, now.ema),
        }
        if was.data is not None:
            pairs["the digest of the training data"] = (was.data, now.data)
        for what, (before, after) in pairs.items():
            if before != after:
                raise UserError(
                    f"cannot resume from {source}: {what} was {before} when it was saved and is "
                    f"{after} now; set it back, or start a new training under another name"
                )


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose name starts with the prefix, without the prefix.

    >>> _under("a.", {"a.b": torch.tensor(1), "c": torch.tensor(2)})
    {'b': tensor(1)}
    """
    return {name[len(prefix) :]: each for name, each in tensors.items() if name.startswith(prefix)}


def _moments_of(
    optimiser: optim.Optimizer,
) -> tuple[dict[str, Tensor], dict[str, float | int | bool | None]]:
    """The optimiser's state by `parameter/moment`: the tensors, and everything else."""
    state = optimiser.state_dict()
    names = [name for group in state["param_groups"] for name in group["param_names"]]
    flat = {
        f"{names[number]}/{key}": value
        for number, moments in state["state"].items()
        for key, value in moments.items()
    }
    tensors = {key: value for key, value in flat.items() if isinstance(value, Tensor)}
    return tensors, {key: value for key, value in flat.items() if key not in tensors}


def _load_moments(optimiser: optim.Optimizer, moments: Mapping[str, object]) -> None:
    """Load a state from `_moments_of` into an optimiser of the same parameters."""
    groups = optimiser.state_dict()["param_groups"]
    names = [name for group in groups for name in group["param_names"]]
    numbers = {name: number for number, name in enumerate(names)}
    state: dict[int, dict[str, object]] = {}
    for key, value in moments.items():
        name, _, moment = key.rpartition("/")
        state.setdefault(numbers[name], {})[moment] = value
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the random generators of the CPU and of this device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Set the states of the random generators."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])
