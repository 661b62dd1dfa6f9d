"""What tasks on texts with one tokeniser have in common, and those whose models say labels.

A task of its own adds how it is opened, its batches, its loss and its scores.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import nn

from regard.core.atomic import replacing
from regard.core.errors import UserError
from regard.data import Tokeniser
from regard.tasks.over_texts import begin_with_vectors
from regard.tasks.task import OpenTask, Split

TOKENISER = "tokenizer.json"
"""The file of a run that holds its tokeniser."""

LABELS = "labels.json"
"""The file of a run that holds its classes or tags, in their order."""


@runtime_checkable
class Divided(Protocol):
    """Data that may have something to test on."""

    @property
    def test(self) -> object:
        """What to test on; None if there is nothing."""


@runtime_checkable
class Worded(Divided, Protocol):
    """Data whose words may begin with vectors."""

    @property
    def vectors(self) -> str | None:
        """A file of word vectors."""

    @property
    def origin(self) -> str:
        """Where a user gets the files."""


@dataclass(frozen=True)
class Tokenised(OpenTask):
    """A task whose texts have one tokeniser."""

    data: Divided
    folder: Path
    """Where the files of the data are."""
    tokeniser: Tokeniser

    def save(self, folder: Path) -> None:
        """Leave the tokeniser."""
        self.tokeniser.save(folder / TOKENISER)

    @property
    def sizes(self) -> dict[str, int]:
        """The vocabulary."""
        return {"vocabulary": self.tokeniser.vocabulary}

    @property
    def splits(self) -> tuple[Split, ...]:
        """Something to test on is not always there."""
        return ("train", "validation", *(() if self.data.test is None else ("test",)))

    @property
    def reads(self) -> Tokeniser:
        """The tokens of its texts."""
        return self.tokeniser


@dataclass(frozen=True)
class Labelling(Tokenised):
    """A task whose models say one of some labels: of a text, or of each of its words."""

    data: Worded
    labels: tuple[str, ...]
    """By name, in the order of the scores."""
    source: Tokeniser | None = None
    """The vocabulary of the run that the model begins with."""
    source_lowercase: bool = False
    """Does that run know words in lower case alone?"""

    def save(self, folder: Path) -> None:
        """Leave the tokeniser and the labels."""
        super().save(folder)
        write_labels(folder / LABELS, self.labels)

    @property
    def sizes(self) -> dict[str, int]:
        """The vocabulary and the number of labels."""
        return {**super().sizes, "classes": len(self.labels)}

    def begun_with(self, source: OpenTask) -> "Labelling":
        """Batches hold the words in the vocabulary of the source too, if it is another."""
        other = source.reads
        same = other is None or other.digest == self.tokeniser.digest
        if same:
            return self
        return replace(self, source=other, source_lowercase=source.lowercases)

    def initialise(self, model: nn.Module) -> list[str]:
        """Word vectors, if the recipe names some."""
        data = self.data
        if data.vectors is None:
            return []
        return begin_with_vectors(model, self.tokeniser, self.folder, data.vectors, data.origin)


def write_labels(path: Path, labels: Sequence[str]) -> None:
    """Keep the classes of a run."""
    with replacing(path) as file:
        file.write(json.dumps(list(labels), ensure_ascii=False, indent=1).encode())


def read_labels(path: Path) -> tuple[str, ...]:
    """The classes of a run."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise UserError(f"{path}: the classes of this run cannot be read: {problem}") from None
    return tuple(str(each) for each in held)
