"""What every task has, so that runs and verbs need to know none of them.

A task stands between files and models: it opens the data of a recipe, deals them out in batches,
turns a batch into a loss, and says in people's words how good a model is.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator
from torch import nn

from regard.core.config import Config
from regard.core.errors import UserError, nearest
from regard.core.protocols import Batch, Batches, Carry, Loss
from regard.data.batch import WholeBatches
from regard.data.text.tokeniser import Tokeniser

Split = Literal["train", "validation", "test"]


def _file_or_share(given: str | float) -> str | float:
    if isinstance(given, float) and not 0 < given < 1:
        raise UserError(f"{given} must be a file, or a share between 0 and 1")
    return given


FileOrShare = Annotated[str | float, AfterValidator(_file_or_share)]
"""Validation data: a file of their own, or the share of the training data to keep for them."""


@dataclass(frozen=True)
class Answer:
    """What a model says of one input."""

    text: str
    """For people: a label, or a word and its tag a line."""
    fields: Mapping[str, object]
    """For programs: as JSON has it, with probabilities."""


class OpenTask(ABC):
    """A task whose data are open."""

    Data: ClassVar[type[Config]]
    """What the `[data]` table of its recipes holds."""
    usage: ClassVar[str]
    """What to do with a trained run in a folder `{run}`: a command."""

    @classmethod
    @abstractmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "OpenTask":
        """The task on data in a folder, with what a run saved, or with tokenisers trained now."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Leave in a run folder what `open` needs besides the data: tokenisers."""

    def data_kept(self, data: Config) -> Config:
        """The `[data]` table as a run keeps it, so that it can be opened again."""
        return data

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """What a model must know of the data to be built, such as its vocabulary."""

    @property
    @abstractmethod
    def splits(self) -> tuple[Split, ...]:
        """The splits there are."""

    @abstractmethod
    def batches(self) -> WholeBatches:
        """The training batches."""

    @abstractmethod
    def evaluation(self, split: Split) -> Batches:
        """The batches that measure: every item once."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of a batch, given what the batch before it handed on."""

    @abstractmethod
    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """What people call the mean loss and the other means over a split."""

    def score(self, model: nn.Module, split: Split) -> dict[str, float]:
        """What only whole predictions show: BLEU, say. Most tasks have nothing of the kind."""
        return {}

    @property
    def reads(self) -> Tokeniser | None:
        """The vocabulary that its models read; None where there is no single one."""
        return None

    @property
    def lowercases(self) -> bool:
        """Are its texts read in lower case?"""
        return False

    def begun_with(self, source: "OpenTask") -> "OpenTask":
        """The task for a model that begins with another run; its batches may hold more."""
        return self

    def initialise(self, model: nn.Module) -> list[str]:
        """Give a new model what the data bring along, such as word vectors; what there is to say.

        Not for a model that has been trained: its weights are loaded instead.
        """
        return []

    def notes(self) -> list[str]:
        """What else a reader of the figures must know: how scores are computed, say."""
        return []


def found(folder: Path, name: str, origin: str) -> Path:
    """A file of the data folder; if it is not there, what is missing and where it comes from."""
    full = folder / name
    if full.exists():
        return full
    near = full.parent if full.parent.is_dir() else folder
    guess = nearest(full.name, [each.name for each in near.glob("*")]) if near.is_dir() else None
    hint = f"; did you mean {near / guess}?" if guess else "."
    source = f" It comes from: {origin}." if origin else ""
    raise UserError(
        f"{full}: no such file{hint} The data folder is {folder} "
        f"(set it with --data or REGARD_DATA).{source}"
    )
