"""The `[data]` table of classification recipes: which texts, and how they become numbers."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from regard.core.config import Config, Seed
from regard.core.errors import UserError
from regard.data.batch import random_permutation
from regard.data.cache import file_stamp
from regard.data.text.labelled import LabelledExample, LabelledText
from regard.data.text.pipeline import split_words
from regard.data.text.segment import LINE_BREAK, plain_words, split_sentences
from regard.tasks.task import FileOrShare, Files, Split, each_file, found


def _together(given: object) -> object:
    """Fields as a tuple, also if it is only one."""
    if isinstance(given, list):
        return tuple(given)
    return (given,) if isinstance(given, str | int) else given


_Fields = Annotated[tuple[str | int, ...], BeforeValidator(_together)]
"""The field of a text, or the two of a pair."""


class Examples(Config):
    """The `[data]` table of a recipe: which texts, how numbered, how dealt out."""

    train: Files
    """The examples to learn from: a file or a folder in the data folder, perhaps packed."""
    validation: FileOrShare = 0.1
    """Another file, or the share of the training examples to keep for it."""
    test: Files | None = None
    format: Literal["tsv", "csv", "jsonl", "line", "folder", "babi"] | None = None
    """What the files are; without it, what their names tell."""
    text: _Fields = ()
    """The column or field of the text, or two of a pair: `["premise", "hypothesis"]`."""
    label: str | int | None = None
    """The column or field of the label."""
    problem: Literal["single_label", "multi_label", "regression"] = "single_label"
    """What a label is: one class of several, any number of labels, or a number."""
    separator: str = Field(",", min_length=1)
    """What is between the labels of a text in a TSV or CSV, for several labels; JSONL has lists,
    and fastText's lines several `__label__`."""
    origin: str = ""
    """Where a user gets these files; said when they are missing."""
    words: Literal["whitespace", "plain", "raw"] = "whitespace"
    """Words are what stands between blanks; or a running text is split, signs apart; or the
    tokeniser is given the text as it is, white space and all."""
    lowercase: bool = False
    sentences: Literal["none", "punctuation", "lines"] = "none"
    """Keep the sentences of a text apart: they end at . ! ? or at the end of a line."""
    tokeniser: Literal[
        "word", "char", "byte", "bpe", "unigram", "wordpiece", "wordpiece_cased", "source"
    ] = "word"
    """What is learnt from the training texts; or that of the run that the model begins with."""
    vocabulary: PositiveInt | None = None
    """The most tokens there may be."""
    min_frequency: PositiveInt = 1
    max_length: PositiveInt | None = None
    """How many tokens of a text are read, if fewer than the model can read."""
    strict: bool = False
    """Refuse texts that are longer than the model reads, rather than truncate them."""
    template: Literal["own", "gpt", "exact"] = "own"
    """The marks around texts: those of the tokeniser, if it has any; or a start, a delimiter and an
    extract mark behind its vocabulary, as GPT's classifiers read them; or exactly those of the
    tokeniser, so that nothing stands between the texts of a pair if it has none."""
    both_orders: bool = False
    """Read a pair in both orders and add up what is said of it, where neither text is the first."""
    characters: bool = False
    """Give models the spelling of each word too."""
    vectors: str | None = None
    """A file of word vectors to begin with, in the data folder."""
    class_weights: Literal["none", "balanced"] | dict[str, PositiveFloat] = "none"
    """How much an example of each class counts in training; balanced: all classes the same."""
    smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of each target's probability that is spread over the classes while training."""
    batch: PositiveInt | None = None
    """Texts to a batch; 32 if nothing is said."""
    tokens_per_batch: PositiveInt | None = None
    """Instead: the most tokens, padding included."""
    evaluate_batch: PositiveInt = 64
    limit: PositiveInt | None = None
    """Learn from so many examples only, drawn by the seed."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _agree(self) -> "Examples":
        if self.batch is not None and self.tokens_per_batch is not None:
            raise UserError("give either batch or tokens_per_batch, not both")
        if self.tokeniser != "word" and (self.characters or self.vectors is not None):
            raise UserError(
                f'characters and vectors are for tokeniser="word", not {self.tokeniser!r}'
            )
        if self.words == "raw" and (self.sentences != "none" or self.tokeniser == "word"):
            raise UserError(
                'words="raw" leaves a text whole: leave sentences out, and take another tokeniser '
                "than words"
            )
        if self.problem != "single_label" and (self.class_weights != "none" or self.smoothing):
            raise UserError(
                f'class_weights and smoothing are for problem="single_label", not {self.problem!r}'
            )
        if self.both_orders and len(self.text) != 2:
            raise UserError("both_orders is for pairs: name two fields in data.text")
        if len(self.text) == 2 and self.sentences != "none":
            raise UserError("a pair of texts is not split into sentences; leave sentences out")
        named = [self.train, self.validation, self.test]
        if any("-" in each_file(each) for each in named if isinstance(each, str | tuple)):
            raise UserError("stdin can be read only once, and data are read several times")
        return self


def pieces(texts: Sequence[str], data: Examples) -> list[list[str]]:
    """A text as tokenisers take it: its sentences, the parts of a pair, or all as one piece.

    >>> pieces(["Good. Very!"], Examples(train="a", words="plain", sentences="punctuation"))
    [['Good', '.'], ['Very', '!']]
    """
    if data.sentences == "none":
        return [_words(text, data, breaks=False) for text in texts]
    if data.sentences == "lines":
        lines = (line for text in texts for line in text.splitlines())
        return [each for each in (_words(line, data, breaks=False) for line in lines) if each]
    (text,) = texts
    return split_sentences(_words(text, data, breaks=True))


def _words(text: str, data: Examples, *, breaks: bool) -> list[str]:
    """The words of a running text; BREAK among them only if it is wanted."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if data.words == "raw":
        return [text.lower() if data.lowercase else text]
    if data.words == "plain":
        found = plain_words(text, lowercase=data.lowercase)
        return found if breaks else [word for word in found if word != LINE_BREAK]
    if breaks:
        lines = text.lower() if data.lowercase else text
        return [word for line in lines.splitlines() for word in (*split_words(line), LINE_BREAK)]
    return split_words(text.lower() if data.lowercase else text)


def _read_examples(data: Examples, folder: Path, paths: Files) -> Iterator[LabelledExample]:
    """The examples of some files of the data folder."""
    for path in each_file(paths):
        yield from _read_file(data, folder, path)


def _read_file(data: Examples, folder: Path, path: str) -> Iterator[LabelledExample]:
    """The examples of a file of the data folder."""
    place = found(folder, path, data.origin)
    source = LabelledText(
        path=str(place),
        form=data.format,
        text=data.text,
        label=data.label,
        separator=data.separator if data.problem == "multi_label" else None,
    )
    for example in source.examples():
        if example.label is None:
            raise UserError(f"{example.where}: there is no label; set data.label")
        yield example


def examples_of(data: Examples, folder: Path, split: Split) -> Iterable[LabelledExample]:
    """The examples of a split as they were written."""
    path = {"train": data.train, "validation": data.validation, "test": data.test}[split]
    if path is None:
        raise UserError(f"this recipe has no {split} examples; set data.{split}")
    if split == "train" or isinstance(path, float):
        return _divided(data, folder)[split == "validation"]
    return _read_examples(data, folder, path)


@lru_cache(maxsize=2)
def _kept(data_json: str, folder: Path, seen: tuple[int, ...]) -> tuple[LabelledExample, ...]:
    """The training examples, read once as long as their file stays as it is."""
    data = Examples.model_validate_json(data_json)
    return tuple(_read_examples(data, folder, data.train))


def all_examples(data: Examples, folder: Path) -> tuple[LabelledExample, ...]:
    """All that the training file holds, also what is kept apart; it is asked for several times."""
    paths = [found(folder, path, data.origin) for path in each_file(data.train)]
    if any(path.is_dir() for path in paths):
        return tuple(_read_examples(data, folder, data.train))
    stamps = tuple(value for path in paths for value in file_stamp(path).values())
    return _kept(data.model_dump_json(), folder, stamps)


def _divided(data: Examples, folder: Path) -> tuple[list[LabelledExample], list[LabelledExample]]:
    """The examples to learn from, and those kept apart for validation."""
    every = all_examples(data, folder)
    keep, rest = divided(len(every), data.validation, data.limit, data.seed)
    return [every[each] for each in rest], [every[each] for each in keep]


def divided(
    count: int, share: str | float | tuple[str, ...], limit: int | None, seed: int
) -> tuple[list[int], list[int]]:
    """Numbers kept apart, and those that stay, at most so many; drawn, and each in order.

    >>> [len(part) for part in divided(10, 0.2, None, 0)], [len(p) for p in divided(9, "f", 3, 0)]
    ([2, 8], [0, 3])
    """
    order: torch.Tensor = random_permutation(count, seed, 0)
    apart = 0 if not isinstance(share, float) else max(1, round(share * count))
    most = count if limit is None else apart + limit
    return sorted(order[:apart].tolist()), sorted(order[apart:most].tolist())
