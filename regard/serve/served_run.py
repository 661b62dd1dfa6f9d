"""Served: a run as the server uses it.

The command line opens runs and makes these, so that the server imports neither recipes nor models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Literal

from torch import nn

from regard.core.errors import unknown
from regard.core.inputs import Input, Written
from regard.core.protocols import Selectable, Stepper
from regard.data import Tokeniser
from regard.look import Payload
from regard.serve.errors import Refused
from regard.serve.state_size import StateSize, state_size
from regard.tasks.abilities import Generates, Prediction, Translates
from regard.tasks.task import OpenTask

_How = Literal["off", "uniform", "permuted", "row"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of attention weights: at which sites, of which heads, and how."""

    site: str
    """A glob of names."""
    how: _How
    """All zero, all equal, shuffled, or one row as given."""
    heads: tuple[int, ...] | None = None
    """By number; None is all of them."""
    seed: int = 0
    """Of the shuffling."""
    query: int = 0
    """The row that is given: a position of the text, or a step of the translation."""
    weights: tuple[float, ...] = ()
    """The weights of its keys, up to a factor; further keys have zero."""


_Look = Callable[[Input, str | None, Sequence[int] | None, Sequence[Change]], tuple[Payload, ...]]
"""From an input, a glob of sites, some heads and changes of attention weights to payloads."""
_Predict = Callable[[Input, Sequence[Change]], Prediction]
"""From an input, and changes of attention weights, to a prediction."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A run with the name it goes by."""

    name: str
    folder: Path
    task: str
    """The name of the task, in TASKS."""
    kind: str
    """The name of the model, in MODELS."""
    title: str
    opened: OpenTask = field(repr=False)
    model: nn.Module | None = field(repr=False)
    """In eval mode; None for a run that is not trained yet, which has only curves."""
    look: _Look = field(repr=False)
    predict: _Predict = field(repr=False)
    embed: Callable[[Sequence[str]], list[list[float]]] | None = field(default=None, repr=False)
    """A vector for each text; a UserError for a model that has none."""
    special: bool = False
    """May prompts spell special tokens?"""
    sites: tuple[str, ...] = ()
    """The names of its attention sites."""
    example: str = ""
    """An input to try it with."""

    @property
    def takes_files(self) -> bool:
        """Does it take inputs that are no texts?"""
        return any(not issubclass(kind, Written) for kind in self.opened.takes)

    @property
    def trained(self) -> nn.Module:
        """The model, if there is one."""
        if self.model is None:
            raise Refused(
                HTTPStatus.CONFLICT,
                f"run {self.name!r} is not trained yet: so far it has only curves; "
                "start the server again when it has a model",
                code="not_trained",
                param="model",
            )
        return self.model

    @property
    def writer(self) -> tuple[Stepper[Selectable], Tokeniser]:
        """The model as one that generates, and its tokeniser."""
        model = self.trained
        if not isinstance(self.opened, Generates) or not isinstance(model, Stepper):
            raise self.unsupported("generation")
        return model, self.opened.tokeniser

    @cached_property
    def state_size(self) -> StateSize:
        """The memory that its model keeps of a text that it writes."""
        stepper, _ = self.writer
        return state_size(stepper, next(self.trained.parameters()).device)

    @property
    def ends(self) -> frozenset[int]:
        """The tokens after which its model generates nothing more."""
        opened = self.opened
        return opened.ends if isinstance(opened, Generates) else frozenset()

    @property
    def translator(self) -> tuple[nn.Module, Translates]:
        """The model, and its task as one that translates."""
        model = self.trained
        if not isinstance(self.opened, Translates):
            raise self.unsupported("translation")
        return model, self.opened

    def unsupported(self, ability: str) -> Refused:
        """The answer to a request that this run's task does not support."""
        return Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{self.name}: task {self.task} does not support {ability}",
            code="wrong_task",
            param="model",
        )


def find(runs: dict[str, Served], name: str) -> Served:
    """The run of that name, or an answer that names the nearest."""
    if name not in runs:
        raise Refused(
            HTTPStatus.NOT_FOUND,
            str(unknown("model", name, runs)),
            code="model_not_found",
            param="model",
        )
    return runs[name]
