"""What tasks on texts with one tokeniser have in common, and those whose models predict labels.

Each task adds how it is opened, its batches, its loss and its scores.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import nn

from regard.core.inputs import Input, Text
from regard.data import Tokeniser
from regard.tasks.over_texts import initialise_word_vectors
from regard.tasks.task import LABELS, TOKENISER, OpenTask, Split, write_labels


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

    @property
    def max_length(self) -> int | None:
        """How many tokens of a text are read."""

    @property
    def strict(self) -> bool:
        """Are longer texts refused rather than truncated?"""


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

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """Texts."""
        return (Text,)


@dataclass(frozen=True)
class Labelling(Tokenised):
    """A task whose models predict one of some labels: for a text, or for each of its words."""

    data: Worded
    labels: tuple[str, ...]
    """By name, in the order of the logits."""
    source: Tokeniser | None = None
    """The vocabulary of the run that the model begins with."""
    source_lowercase: bool = False
    """Does that run know words in lower case alone?"""
    context: int | None = None
    """How many tokens of a text the model can read, if that is limited."""

    def save(self, folder: Path) -> None:
        """Leave the tokeniser and the labels."""
        super().save(folder)
        write_labels(folder / LABELS, self.labels)

    @property
    def sizes(self) -> dict[str, int]:
        """The vocabulary and the number of labels."""
        return {**super().sizes, "classes": len(self.labels)}

    def limited_to(self, context: int) -> "Labelling":
        """Longer texts are truncated."""
        return replace(self, context=context)

    @property
    def longest(self) -> int | None:
        """How many tokens of a text are read, marks included; None for all."""
        return min((n for n in (self.data.max_length, self.context) if n is not None), default=None)

    def initialise_from(self, source: OpenTask) -> "Labelling":
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
        return initialise_word_vectors(
            model, self.tokeniser, self.folder, data.vectors, data.origin
        )
