"""The `[data]` table of translation recipes: which pairs, and how they become numbers."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from regard.core.config import Config, Seed
from regard.core.errors import UserError, choose
from regard.data import Tokeniser, load_tokeniser, train_tokeniser
from regard.data.text.parallel import ParallelText, without_line_ends
from regard.data.text.synthetic import GENERATORS, TextPair
from regard.tasks.classification_data import divided
from regard.tasks.task import Split, found


def _together(given: object) -> object:
    """Files as a tuple, also if it is only one; a share stays a number."""
    if isinstance(given, list):
        return tuple(tuple(each) if isinstance(each, list) else each for each in given)
    return (given,) if isinstance(given, str) else given


_Files = Annotated[tuple[str, ...] | tuple[tuple[str, ...], ...], BeforeValidator(_together)]
"""Source and target, `["train.de", "train.en"]`, or one TSV or JSONL that holds both; or a list of
several of these."""


def pairs_of_files(files: tuple[str, ...] | tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
    """The files of each text in two languages.

    >>> pairs_of_files(("a.de", "a.en")), pairs_of_files((("a.de", "a.en"), ("b.tsv",)))
    ([('a.de', 'a.en')], [('a.de', 'a.en'), ('b.tsv',)])
    """
    whole = tuple(each for each in files if isinstance(each, str))
    return [whole] if whole else [each for each in files if isinstance(each, tuple)]


class Generated(Config):
    """Pairs that are made up rather than read."""

    name: str
    """A row of GENERATORS."""
    train: PositiveInt
    """How many to learn from."""
    validation: PositiveInt = 1000
    test: PositiveInt = 1000
    seed: Seed = 0

    @model_validator(mode="after")
    def _known(self) -> "Generated":
        choose("generator", self.name, GENERATORS)
        return self


class Searching(Config):
    """How outputs are searched for: the settings of decode/beam.py that recipes choose."""

    width: int = Field(4, ge=1, le=1000)
    """Of the beam; 1 is greedy."""
    length_penalty: Literal["none", "gnmt", "average"] = "gnmt"
    alpha: float = Field(0.6, ge=0)
    """The exponent of the length penalty."""
    max_length: int = Field(50, ge=1, le=100_000)
    """The most tokens of an output, and for every token of the source ..."""
    max_per_source: float = Field(1.0, ge=0, le=1000)
    """... so many more."""
    no_repeat: NonNegativeInt = 0
    """No sequence of so many tokens is written twice; 0 is off."""
    min_length: NonNegativeInt = 0
    """The fewest tokens of an output."""
    stop: Literal["exact", "estimate", "first"] = "exact"
    """When a sentence is finished: when nothing better can follow; when the best unfinished
    hypothesis is no better at its present length, as in transformers; or when as many have ended as
    the beam is wide."""
    free_end: bool = False
    """Does the end of an output of the maximum length cost nothing? So it is in transformers."""
    banned: tuple[NonNegativeInt, ...] = ()
    """The numbers of tokens that are never written."""
    pads: bool = True
    """May an output hold what fills up rows? Marian's models would, but must not."""


class Pairs(Config):
    """The `[data]` table of a recipe: which pairs, how numbered, how dealt out, how measured."""

    train: _Files | None = None
    """The files to learn from, in the data folder, perhaps .gz."""
    validation: _Files | float | None = None
    """Other files, or the share of the training pairs to keep for it."""
    test: _Files | None = None
    fields: tuple[str | int, str | int] | None = None
    """Of a file that holds both sides: the two columns of a TSV, or the fields of a JSONL."""
    generate: Generated | None = None
    """Instead of files."""
    origin: str = ""
    """Where a user gets these files; said when they are missing."""
    tokeniser: Literal["word", "char", "byte", "bpe", "unigram"] = "word"
    joint: bool = False
    """One vocabulary for both sides."""
    vocabulary: PositiveInt | None = None
    """The most tokens there may be, of the target or of both."""
    source_vocabulary: PositiveInt | None = None
    """The same of the source, if it is another number."""
    min_frequency: PositiveInt = 1
    lowercase: bool = False
    """Read everything in lower case, and ignore case where outputs are compared."""
    max_length: PositiveInt | None = None
    """Pairs with a longer side, in tokens, are not learnt from."""
    too_long: Literal["whole", "cut"] = "whole"
    """What becomes of longer sources that are to be translated."""
    copies: bool = False
    """Give unknown words of the source numbers of their own, for models that copy."""
    batch: PositiveInt | None = None
    """Pairs to a batch; 64 if nothing is said."""
    tokens_per_batch: PositiveInt | None = None
    """Instead: the most tokens of the longer side, padding included."""
    evaluate_batch: PositiveInt = 64
    smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of each target's probability that is spread over the vocabulary while training."""
    search: Searching = Searching()
    """How outputs are searched for."""
    scores: tuple[Literal["bleu", "multi_bleu", "chrf", "exact"], ...] = ("bleu", "chrf", "exact")
    """What outputs are measured by."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _agree(self) -> "Pairs":
        sides = (self.train, self.validation, self.test)
        files = [each for each in sides if isinstance(each, tuple)]
        if isinstance(self.validation, float) and not 0 < self.validation < 1:
            raise UserError(f"validation={self.validation} must be files, or a share in (0, 1)")
        if self.generate is not None and (files or self.fields is not None):
            raise UserError("give either files or generate, not both")
        if self.generate is None and (self.train is None or self.validation is None):
            raise UserError("train and validation are missing; name their files, or set generate")
        for paths in (each for held in files for each in pairs_of_files(held)):
            if "-" in paths:
                raise UserError("stdin can be read only once, and data are read several times")
            ParallelText(paths=paths, fields=self.fields)
        if self.batch is not None and self.tokens_per_batch is not None:
            raise UserError("give either batch or tokens_per_batch, not both")
        if self.joint and self.source_vocabulary is not None:
            raise UserError("a joint vocabulary has one size: leave out source_vocabulary")
        if self.copies and self.tokeniser != "word":
            raise UserError(f'copies is for tokeniser="word", not {self.tokeniser!r}')
        if self.too_long == "cut" and self.max_length is None:
            raise UserError('too_long="cut" needs max_length')
        return self


def readable(text: str, data: Pairs) -> str:
    """A line as tokenisers take it: without line ends or halves of characters."""
    text = without_line_ends(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.lower() if data.lowercase else text


def texts_of(data: Pairs, folder: Path, split: Split) -> Iterable[TextPair]:
    """The pairs of a split as they were written, or made up."""
    if data.generate is not None:
        return _generated(data.generate, split)
    paths = {"train": data.train, "validation": data.validation, "test": data.test}[split]
    if paths is None:
        raise UserError(f"this recipe has no {split} pairs; set data.{split}")
    if isinstance(data.validation, float) and split != "test":
        return _divided_pairs(data, folder)[split == "validation"]
    assert not isinstance(paths, float)
    texts = [
        ParallelText(
            paths=tuple(str(found(folder, path, data.origin)) for path in each), fields=data.fields
        )
        for each in pairs_of_files(paths)
    ]
    return ((pair.source, pair.target) for text in texts for pair in text.pairs())


def _divided_pairs(data: Pairs, folder: Path) -> tuple[list[TextPair], list[TextPair]]:
    """The pairs to learn from, and the share that is kept apart for validation."""
    assert isinstance(data.validation, float)
    every = list(texts_of(data.model_copy(update={"validation": None}), folder, "train"))
    if len(every) < 2:
        raise UserError(f"{data.train}: {len(every)} pairs cannot be divided; give a second file")
    apart, rest = divided(len(every), data.validation, None, data.seed)
    return [every[each] for each in rest], [every[each] for each in apart]


@lru_cache(maxsize=8)
def _generated(given: Generated, split: Split) -> tuple[TextPair, ...]:
    """Made-up pairs, which are asked for several times."""
    count = {"train": given.train, "validation": given.validation, "test": given.test}[split]
    return tuple(GENERATORS[given.name](count, given.seed, split))


def new_tokenisers(data: Pairs, folder: Path) -> tuple[Tokeniser, Tokeniser]:
    """Tokenisers of source and target, trained on the training pairs."""

    def sides(*wanted: int) -> Iterator[str]:
        for pair in texts_of(data, folder, "train"):
            for side in wanted:
                yield readable(pair[side], data)

    def one(lines: Iterator[str], vocabulary: int | None) -> Tokeniser:
        return train_tokeniser(data.tokeniser, lines, vocabulary, data.min_frequency)

    if data.joint:
        both = one(sides(0, 1), data.vocabulary)
        return both, both
    return one(sides(0), data.source_vocabulary or data.vocabulary), one(sides(1), data.vocabulary)


def saved_tokenisers(data: Pairs, folder: Path) -> tuple[Tokeniser, Tokeniser]:
    """Those that a run has saved."""
    target = load_tokeniser(folder / "tokenizer.json")
    return target if data.joint else load_tokeniser(folder / "source.tokenizer.json"), target
