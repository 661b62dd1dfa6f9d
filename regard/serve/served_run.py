"""Served: a run as the server knows it: what it can be asked, and nothing of how runs are kept.

Whoever opens runs (the command line) makes these, so the server imports neither recipes nor models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Literal

from torch import nn

from regard.core.errors import unknown
from regard.core.protocols import Selectable, Stepper
from regard.data import Tokeniser
from regard.look import Payload
from regard.serve.errors import Refused
from regard.tasks.language_model import LanguageModelling
from regard.tasks.task import OpenTask
from regard.tasks.translate import Translation

_How = Literal["off", "uniform", "permuted", "row"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of where a model looks: at which sites, by which heads, and how."""

    site: str
    """A glob of names."""
    how: _How
    """Nothing at all, all keys alike, its own weights shuffled, or one row as it is drawn."""
    heads: tuple[int, ...] | None = None
    """By number; None is all of them."""
    seed: int = 0
    """Of the shuffling."""
    query: int = 0
    """The row that is drawn: a position of the text, or a step of the translation."""
    weights: tuple[float, ...] = ()
    """What each key weighs in it, up to a factor; keys that are not named weigh nothing."""


@dataclass(frozen=True)
class Choice:
    """One thing a model might say, and how likely it holds it."""

    text: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a model says of a text, whatever its task: some of these."""

    tokens: tuple[str, ...] = ()
    """The text as the model reads it."""
    text: str | None = None
    """What it wrote: a translation, say."""
    choices: tuple[Choice, ...] = ()
    """The likeliest first: next tokens, classes."""
    labels: tuple[str, ...] = ()
    """One for each token, where the task is to tag them."""


_Look = Callable[[str, str | None, Sequence[int] | None], tuple[Payload, ...]]
"""From a text, a glob of sites and some heads to payloads."""
_Length = Callable[[str], int]
"""From a text to the number of tokens that the model reads."""
_Say = Callable[[str, Sequence[Change]], Said]
"""From a text, and changes of where the model looks, to what it says."""


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
    """In eval mode; None for a run that is not trained yet, of which there are curves alone."""
    look: _Look = field(repr=False)
    say: _Say = field(repr=False)
    length: _Length = field(repr=False)
    sites: tuple[str, ...] = ()
    """Where it has attention, if it does."""

    @property
    def trained(self) -> nn.Module:
        """The model, if there is one."""
        if self.model is None:
            raise Refused(
                HTTPStatus.CONFLICT,
                f"run {self.name!r} is not trained yet: so far it has curves alone; "
                "start the server again when it has a model",
                code="not_trained",
                param="model",
            )
        return self.model

    @property
    def writer(self) -> tuple[Stepper[Selectable], Tokeniser]:
        """The model as one that goes on from a prompt, and its tokeniser."""
        model = self.trained
        if not isinstance(self.opened, LanguageModelling) or not isinstance(model, Stepper):
            raise self.cannot("go on from a prompt")
        return model, self.opened.tokeniser

    @property
    def ends(self) -> frozenset[int]:
        """The tokens after which its model writes nothing more."""
        opened = self.opened
        return opened.ends if isinstance(opened, LanguageModelling) else frozenset()

    @property
    def translator(self) -> tuple[nn.Module, Translation]:
        """The model as a translator."""
        model = self.trained
        if not isinstance(self.opened, Translation):
            raise self.cannot("translate")
        return model, self.opened

    def cannot(self, what: str) -> Refused:
        """The answer to who asks for what this run cannot do."""
        return Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{self.name!r} is a run of {self.task}: it does not {what}",
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
