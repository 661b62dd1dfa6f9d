"""What every task has in common; what only some can do is in abilities.py.

A task stands between files and models: it opens the data of a recipe, puts them into batches, turns
a batch into a loss, and computes metrics.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator
from torch import nn

from regard.core.atomic import replace_atomically
from regard.core.config import Config, parse
from regard.core.errors import UserError, nearest
from regard.core.folder import read_json
from regard.core.inputs import (
    LOCAL_LIMITS,
    Input,
    Pair,
    Text,
    Written,
    check_kind,
    read_file,
    read_line,
    written_kind,
)
from regard.core.protocols import Batch, Batches, Carry, Loss
from regard.data.batch import ShardableBatches
from regard.data.text.files import missing_file_error, read_lines
from regard.data.text.tokeniser import Tokeniser
from regard.datasets.table import command_to_get
from regard.outputs.output import ModelOutput

Split = Literal["train", "validation", "test"]

TOKENISER = "tokenizer.json"
"""The file of a run that holds its tokeniser."""

LABELS = "labels.json"
"""The file of a run that holds its classes or tags, in their order."""


Files = str | tuple[str, ...]
"""A file, or several that are read one after another."""


def each_file(given: Files) -> tuple[str, ...]:
    """The names of one file or of several.

    >>> each_file("a.txt"), each_file(("a.txt", "b.txt"))
    (('a.txt',), ('a.txt', 'b.txt'))
    """
    return (given,) if isinstance(given, str) else given


def _file_or_share(given: str | float | tuple[str, ...]) -> str | float | tuple[str, ...]:
    if given == ():
        raise UserError("name at least one file")
    if isinstance(given, float) and not 0 < given < 1:
        raise UserError(f"{given} must be a file, or a share between 0 and 1")
    return given


FileOrShare = Annotated[str | float | tuple[str, ...], AfterValidator(_file_or_share)]
"""Validation data: files of their own, or the share of the training data to keep for them."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The tables of a first recipe for a user's own files."""

    title: str
    """What the model is."""
    data: dict[str, object]
    model: dict[str, object]
    train: dict[str, object]
    notes: tuple[str, ...] = ()
    """What was found in the files."""


class OpenTask(ABC):
    """A task whose data are open."""

    Data: ClassVar[type[Config]]
    """What the `[data]` table of its recipes holds."""
    output: ClassVar[type] = ModelOutput
    """The kind of output that its models return."""
    usage: ClassVar[str]
    """What to do with a trained run in a folder `{run}`: a command."""

    @classmethod
    @abstractmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "OpenTask":
        """The task on data in a folder, with what a run saved, or with tokenisers trained now."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Leave in a run folder what `open` needs besides the data: tokenisers."""

    @classmethod
    def draft(cls, files: Sequence[str], given: Mapping[str, object]) -> Draft:
        """A first recipe for these training files, from what is in them.

        `given` are keys of the `[data]` table that the user has set: the column of a label, say.
        """
        raise UserError(
            "for this task no recipe can be made from files alone; copy a shipped one: "
            "`regard recipe show` lists them"
        )

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
    def batches(self) -> ShardableBatches:
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

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """The kinds of input its models take, besides batches of its own data."""
        return ()

    def parse(self, line: str, where: str) -> Input:
        """The input in a line: a text itself, of other kinds the path of a file."""
        if not self.takes:
            raise UserError(f"{where}: this task takes no inputs")
        kind = written_kind(self.takes, line) or self.takes[0]
        return read_line(kind, line, where, LOCAL_LIMITS)

    def inputs(self, path: str) -> Sequence[Input]:
        """The inputs in a file: one a line if they are texts, else the file itself."""
        if self.takes and not issubclass(self.takes[0], Written):
            return [read_file(self.takes[0], path, LOCAL_LIMITS)]
        return [self.parse(text, f"{path}:{number}") for number, (text,) in read_lines(path)]

    def length(self, given: Input) -> int:
        """How many positions a model reads of an input; a server limits them.

        Tokens; without a tokeniser, characters.
        """
        return len(given.title) if self.reads is None else len(self.reads.encode(given.title))

    @property
    def read_limit(self) -> int | None:
        """The most tokens that are read of an input, whose rest is left out; None is no limit."""
        return None

    @property
    def tokenisers(self) -> tuple[Tokeniser, ...]:
        """Those that a checkpoint of this task holds: of the source, and of the target if there
        is one."""
        return () if self.reads is None else (self.reads,)

    @property
    def adds_special_tokens(self) -> bool:
        """Do its models have special tokens that the tokeniser lacks?"""
        return False

    @classmethod
    def checkpoint_data(cls, context: int) -> dict[str, object]:
        """The `[data]` table of a run that is made from a checkpoint; its model reads `context`
        tokens. The files are those that further training would need."""
        raise UserError(f"{cls.__name__}: no checkpoint can be imported for this task")

    def checkpoint_problem(self) -> str | None:
        """Why no checkpoint of another library can hold this run; None if one can."""
        return None

    def limited_to(self, context: int) -> "OpenTask":
        """The task for a model that reads at most so many tokens of an input."""
        return self

    def initialise_from(self, source: "OpenTask") -> "OpenTask":
        """The task for a model that begins with another run; its batches may hold more."""
        return self

    def initialise(self, model: nn.Module) -> list[str]:
        """Give a new model what the data bring along, such as word vectors; what there is to say.

        Not for a model that has been trained: its weights are loaded instead.
        """
        return []

    def example(self) -> str:
        """An input of the validation data, as `parse` reads it; "" for a task without texts.

        The page shows it first, so that a trained run can be tried at once.
        """
        return ""

    def on_files(self, files: Sequence[str]) -> list[tuple[str, "OpenTask"]]:
        """The same task with each of these files as its test split, by name.

        Files are relative to the working directory. A task that reads files in pairs takes them in
        that order.
        """
        data = getattr(self, "data", None)
        if not isinstance(data, Config) or "test" not in type(data).model_fields:
            raise UserError("this task cannot be measured on other files")
        return [(", ".join(some), self.with_test(some, data)) for some in self.grouped(list(files))]

    def grouped(self, files: list[str]) -> list[list[str]]:
        """The files that are measured together: each one by itself."""
        return [[each] for each in files]

    def with_test(self, files: Sequence[str], data: Config) -> "OpenTask":
        """The same task with these files as its test split."""
        for each in files:
            if not Path(each).exists():
                raise missing_file_error(Path(each))
        paths = [str(Path(each).resolve()) for each in files]
        changed = {**data.model_dump(mode="json"), "test": paths[0] if len(paths) == 1 else paths}
        # Every task is a dataclass, and so are those of plugins.
        return replace(self, data=parse(type(data), changed, at="data"))  # type: ignore[type-var]

    def notes(self) -> list[str]:
        """What else a reader of the figures must know: how scores are computed, say."""
        return []


def found(folder: Path, name: str, origin: str, searched: Sequence[str] = ()) -> Path:
    """A file of the data folder; if it is not there, what is missing and where it comes from.

    `searched` are the places where it was looked for, if they are several.
    """
    full = folder / name
    if full.exists():
        return full
    near = full.parent if full.parent.is_dir() else folder
    guess = nearest(full.name, [each.name for each in near.glob("*")]) if near.is_dir() else None
    hint = f"; did you mean {near / guess}?" if guess else "."
    source = f" It comes from: {origin}." if origin else ""
    getting = command_to_get(name)
    if getting is not None:
        source += f" Download it: {getting}"
    if searched:
        raise UserError(
            f"{name}: no such file{hint} It was looked for {', '.join(searched)} (choose another "
            f"folder with --data).{source}"
        )
    raise UserError(
        f"{full}: no such file{hint} The data folder is {folder} "
        f"(set it with --data or REGARD_DATA).{source}"
    )


def text_of(given: Input, task: str) -> str:
    """The text of an input, for a task that takes nothing else."""
    check_kind(given, (Text,), task)
    assert isinstance(given, Text)
    return given.text


def parts_of(given: Input) -> tuple[str, ...]:
    """The text of an input, or the two texts of a pair.

    >>> parts_of(Pair("a", "b"))
    ('a', 'b')
    """
    if isinstance(given, Pair):
        return given.first, given.second
    assert isinstance(given, Text), f"{given.name} has no text"
    return (given.text,)


def write_labels(path: Path, labels: Sequence[str]) -> None:
    """Write the classes of a run."""
    with replace_atomically(path) as file:
        file.write(json.dumps(list(labels), ensure_ascii=False, indent=1).encode())


def read_labels(path: Path) -> tuple[str, ...]:
    """The classes of a run."""
    labels = read_json(path)
    if not isinstance(labels, list) or not all(isinstance(each, str) for each in labels):
        raise UserError(f"{path}: the classes of this run must be a list of texts")
    return tuple(str(each) for each in labels)
