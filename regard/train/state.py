"""State: everything that must be as it was for training to go on as if it had never stopped.

Weights, the optimiser's moments, the random states, the place in the data, what the last batch
handed on, the moving average, and the validations so far. Each process has its own random state and
its own carry; all else is the same in all of them.
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
from regard.train.parallel.world import World
from regard.train.sums import Sums
from regard.train.weights import (
    Fingerprint,
    buffers,
    fingerprint,
    load_weights,
    refuse_another,
    weights,
)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a training has come."""

    update: int = 0
    """How many updates have been taken."""
    epoch: int = 0
    """The epoch of the next batch, from 0."""
    index: int = 0
    """The place of the next batch in its epoch."""
    seconds: float = 0.0
    """How long the updates took, all sittings together."""
    evaluations: tuple[tuple[int, float], ...] = ()
    """After which update each validation was, and what it gave; lower is better."""
    sums: Sums = field(default_factory=Sums)
    """Of the updates since the last line of the log."""
    took: float = 0.0
    """How many seconds those took."""
    waited: float = 0.0
    """How many of these seconds there was no batch to work on."""

    @property
    def best(self) -> tuple[int, float] | None:
        """The first of the best validations; one that is not a number is never best."""
        return min(self.evaluations, key=lambda each: (each[1] != each[1], each[1]), default=None)

    @property
    def stale(self) -> int:
        """How many validations there were since the best one."""
        return sum(each[0] > self.best[0] for each in self.evaluations) if self.best else 0


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a checkpoint says besides tensors."""

    progress: Progress
    model: Fingerprint
    optimiser: str
    scalars: Mapping[str, float | int | bool | None]
    """What the optimiser remembers that is no tensor."""
    batches: int
    processes: int
    ema: bool
    carries: bool
    data: str | None = None
    """The digest of the training data; older checkpoints have none, nor have data that say none."""


@dataclass(kw_only=True)
class State:
    """The live objects of a training that a checkpoint takes a copy of."""

    model: nn.Module
    optimiser: optim.Optimizer
    ema: Ema | None
    batches: int
    """How many batches an epoch has in this process."""
    data: str | None = None
    """The digest of the training data, if they say one."""
    world: World
    device: torch.device
    progress: Progress = field(default_factory=Progress)
    carry: Carry | None = None

    def average_buffers(self, items: int) -> None:
        """Give all processes the mean of their buffers; each counts by its items in a batch."""
        if self.world.size > 1:
            self.world.average(buffers(self.model), float(items))

    def capture(self) -> Checkpoint:
        """A checkpoint of all this; every process must ask for it at once."""
        own = {f"random.{name}": each for name, each in random_states(self.device).items()}
        own |= {f"carry.{name}": each for name, each in (self.carry or {}).items()}
        moments, scalars = _moments_of(self.optimiser)
        parts: dict[str, Mapping[str, Tensor]]
        parts = {"model": weights(self.model), "optimiser": moments}
        parts |= {f"rank-{rank}": each for rank, each in enumerate(self.world.collect(own))}
        parts |= {"ema": self.ema.tensors} if self.ema else {}
        return Checkpoint(
            update=self.progress.update, parts=parts, facts=asdict(self._facts(scalars))
        )

    def restore(self, checkpoint: Checkpoint, *, source: str) -> None:
        """Make everything as it was; `source` is what errors call the checkpoint."""
        facts = TypeAdapter(Facts).validate_python(checkpoint.facts)
        self._refuse_another(facts, source)
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

    def _facts(self, scalars: Mapping[str, float | int | bool | None]) -> Facts:
        return Facts(
            progress=self.progress,
            model=fingerprint(weights(self.model)),
            optimiser=type(self.optimiser).__name__,
            scalars=scalars,
            batches=self.batches,
            processes=self.world.size,
            ema=self.ema is not None,
            carries=self.carry is not None,
            data=self.data,
        )

    def _refuse_another(self, was: Facts, source: str) -> None:
        now = self._facts({})
        refuse_another(was.model, now.model, source=source)
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
                    f"cannot go on from {source}: {what} was {before} when it was saved and is "
                    f"{after} now; set it back, or train anew under another name"
                )


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose name starts so, by the rest of their name.

    >>> _under("a.", {"a.b": torch.tensor(1), "c": torch.tensor(2)})
    {'b': tensor(1)}
    """
    return {name[len(prefix) :]: each for name, each in tensors.items() if name.startswith(prefix)}


def _moments_of(
    optimiser: optim.Optimizer,
) -> tuple[dict[str, Tensor], dict[str, float | int | bool | None]]:
    """What an optimiser remembers, by `parameter/moment`: the tensors, and the rest."""
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
    """Have an optimiser remember what one over the same parameters did."""
    groups = optimiser.state_dict()["param_groups"]
    names = [name for group in groups for name in group["param_names"]]
    numbers = {name: number for number, name in enumerate(names)}
    state: dict[int, dict[str, object]] = {}
    for key, value in moments.items():
        name, _, moment = key.rpartition("/")
        state.setdefault(numbers[name], {})[moment] = value
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a training on this device draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Have the generators draw on from these states."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])
