"""What the layers ask of one another, so that none needs to know the other's classes.

`train` drives a Task over Batches; `decode` drives a Stepper. Models, tasks and data satisfy these
by having the methods, not by inheriting anything.

A progress callback: what a long computation calls with a line of text on how far it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

Batch = Mapping[str, Tensor]
"""Named tensors whose first axis is the batch, such as `tokens` and `targets`."""

Carry = Mapping[str, Tensor]
"""What one batch hands to the next, detached and by name: a recurrent state, say."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A loss that can be added up over batches, accumulation steps and processes."""

    total: Float[Tensor, ""]
    """Summed over items, in the graph; the optimiser sees total / items."""
    items: int
    """How many items the sum is over: tokens, sentences, frames."""
    carry: Carry | None = None
    """For the next batch, if batches follow one another."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Further sums over the same items, for the log: how many were right, say."""


@runtime_checkable
class Task(Protocol):
    """A batch in, a loss out."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of a batch, given what the batch before it handed on."""
        ...


@runtime_checkable
class Batches(Protocol):
    """A data set in batches; their order depends on seed, epoch and index alone."""

    def __len__(self) -> int:
        """How many batches an epoch has."""
        ...

    def batch(self, epoch: int, index: int) -> Batch:
        """One batch; the same one every time."""
        ...


@runtime_checkable
class ResetsCarry(Protocol):
    """Batches that say which of them begin anew; those without this follow one another."""

    def resets_carry(self, index: int) -> bool:
        """Does a batch begin anew, so that nothing is carried into it?"""
        ...


State = TypeVar("State", bound="Selectable")


@runtime_checkable
class Selectable(Protocol):
    """A decoding state whose batch rows can be chosen, repeated and reordered."""

    def select(self: State, rows: Int[Tensor, "N"]) -> State:
        """The state of the chosen rows, in that order."""
        ...


@runtime_checkable
class Stepper(Protocol[State]):
    """A model that writes one token at a time: what every search and sampler drives."""

    def start(self, source: Batch) -> State:
        """The state before the first token."""
        ...

    def step(self, tokens: Int[Tensor, "B"], state: State) -> tuple[Float[Tensor, "B V"], State]:
        """Logits of the next token after these, and the state after them."""
        ...


@runtime_checkable
class Joins(Stepper[State], Protocol[State]):
    """A Stepper that can go on with several texts as one batch, however long each of them is."""

    def join(self, states: Sequence[State]) -> State | None:
        """One state of all rows, in order; None if it cannot be, as before anything was read."""
        ...


@runtime_checkable
class InTurns(Protocol):
    """A model of a text in turns, which a token of the text must tell apart."""

    @property
    def turn_end(self) -> int:
        """The token that closes a turn."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """A Stepper that can read only so many tokens; one without this is taken to have no bound."""

    @property
    def context_limit(self) -> int:
        """The most tokens it can read, those of the prompt among them."""
        ...


ProgressCallback = Callable[[str], None]
"""Called with one line of text, such as "training 2 of 7: uniform"."""


def no_progress(line: str) -> None:
    """A progress callback that shows nothing."""
