"""Word vectors from a text: learnt from windows of words, or from counts of who stands near whom.

What a run leaves is a table of vectors: `regard neighbours RUN word`, `regard analogy RUN a b c`,
and `regard vectors RUN FILE` for other programs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config, Seed
from regard.core.errors import UserError
from regard.core.protocols import Batch, Batches, Carry, Loss
from regard.data import (
    WHOLE_TEXT,
    TextPart,
    TextSource,
    Tokeniser,
    prepare_corpus,
    source_at,
    split_held_out,
    train_tokeniser,
)
from regard.data import load_tokeniser as load_tokeniser
from regard.data.batch import ShardableBatches
from regard.data.text.characters import ngram_buckets
from regard.data.text.context import (
    FIRST_WORD,
    ContextBatches,
    CooccurrenceBatches,
    CooccurrenceCells,
    WordCounts,
    cooccurrences,
)
from regard.data.text.vectors import Vectors, read_vectors
from regard.outputs.word_pairs import WordPairs
from regard.tasks.task import TOKENISER, Files, OpenTask, Split, each_file, found

_COMPARED = 1000
"""So many of the most frequent words are compared with reference vectors, pair by pair."""


@runtime_checkable
class WordModel(Protocol):
    """A model that has vectors of words."""

    def vectors(self, batch: Batch) -> Float[Tensor, "N D"]:
        """The vectors of `words` [N]."""
        ...


class Words(Config):
    """The `[data]` table of a recipe: which text, which of its words, how dealt out."""

    train: Files
    """The text to learn from: a file in the data folder; plain, TSV or JSONL, perhaps packed."""
    field: str | int | None = None
    """The column of a TSV or the field of a JSONL file that holds the text."""
    origin: str = ""
    """Where a user gets these files; said when they are missing."""
    words: Literal["whitespace", "plain"] = "whitespace"
    """Words are what stands between blanks; or a running text is split, signs apart."""
    lowercase: bool = False
    vocabulary: PositiveInt | None = None
    """The most tokens there may be."""
    min_frequency: PositiveInt = 5
    validation: float = Field(0.02, gt=0, lt=1)
    """The share of the text's end, or of the counts, that is kept to measure the loss on."""
    learn_from: Literal["windows", "counts"] = "windows"
    """Words beside their neighbours, or how often who stands near whom: GloVe."""
    reach: PositiveInt = 5
    """How many words a window reaches to either side, at most."""
    sample: float = Field(1e-3, ge=0)
    """Words more frequent than this share of the text are dropped at random; 0 drops none."""
    words_per_batch: PositiveInt = 4096
    """Words of the text, or counts, in a batch."""
    noise: PositiveInt = 16
    """Words drawn as noise for every sixteen words."""
    buckets: NonNegativeInt = 0
    """Into how many buckets n-grams of characters are hashed; 0 has none."""
    shortest: PositiveInt = 3
    longest: PositiveInt = 6
    """How many characters n-grams have."""
    reference: str | None = None
    """A file of vectors to compare with: which words are alike."""
    seed: Seed = 0


@dataclass(frozen=True)
class WordVectors(OpenTask):
    """Batches of words with what is near them, or of counts."""

    Data = Words
    output = WordPairs
    usage = "regard neighbours {run} good bad"

    data: Words
    folder: Path
    """Where the files of the data are."""
    tokeniser: Tokeniser

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "WordVectors":
        """The task on a text; its vocabulary is counted now if there is none yet."""
        assert isinstance(data, Words)
        if saved is not None:
            return cls(data, folder, load_tokeniser(saved / TOKENISER))
        texts = (record.text for each in _texts_of(data, folder) for record in each.records())
        return cls(
            data, folder, train_tokeniser("word", texts, data.vocabulary, data.min_frequency)
        )

    def save(self, folder: Path) -> None:
        """Leave the vocabulary."""
        self.tokeniser.save(folder / TOKENISER)

    @property
    def sizes(self) -> dict[str, int]:
        """Words, and buckets of n-grams."""
        return {"words": self.tokeniser.vocabulary, "buckets": self.data.buckets}

    @property
    def splits(self) -> tuple[Split, ...]:
        """There is no text to test on: vectors are tested by what they are used for."""
        return ("train", "validation")

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """Of pairs told from noise, or of counts foretold."""
        wanted = "counts" if "near" in batch else "windows"
        try:
            output = WordPairs.of(model, batch, carry)
        except KeyError:
            raise UserError(
                f'a {type(model).__name__} learns from {wanted}: set data.learn_from = "{wanted}"'
            ) from None
        return Loss(total=output.loss(batch), items=output.items)

    def batches(self) -> ShardableBatches:
        """The training batches."""
        return self._dealt("train")

    def evaluation(self, split: Split) -> Batches:
        """The same of what was held out; noise is drawn, but always the same."""
        return self._dealt(split)

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The mean loss of a pair or of a count."""
        return {"loss": totals["loss"]}

    def score(self, model: nn.Module, split: Split) -> dict[str, float]:
        """How far the vectors agree with reference vectors, if there are any."""
        if self.data.reference is None:
            return {}
        path = found(self.folder, self.data.reference, self.data.origin)
        names = [
            self.word(place) for place in self._counts.counts.argsort(descending=True).tolist()
        ]
        return {"agreement": agreement(self.vectors(model), read_vectors(path, set(names)), names)}

    def vectors(self, model: nn.Module, more: Sequence[str] = ()) -> Vectors:
        """Every word of the vocabulary with its vector.

        Where words are made of n-grams, any word has a vector: `more` are added to the others.
        """
        numbers = torch.arange(FIRST_WORD, self.tokeniser.vocabulary)
        names = tuple(self.word(number) for number in numbers.tolist())
        if self.data.buckets:
            known = set(names)
            names = (*names, *(word for word in dict.fromkeys(more) if word not in known))
            numbers = torch.cat((numbers, numbers.new_zeros(len(names) - len(numbers))))
        return Vectors(names, self._asked(model, numbers, names))

    def word(self, number: int) -> str:
        """The word with a number."""
        return self.tokeniser.decode([number])

    def _asked(
        self, model: nn.Module, numbers: Tensor, names: Sequence[str]
    ) -> Float[Tensor, "N D"]:
        if not isinstance(model, WordModel):
            raise UserError(f"a {type(model).__name__} has no vectors of words")
        device = next(model.parameters()).device
        asked = {"words": numbers, "grams": self._subwords(names)}
        with torch.no_grad():
            return model.vectors({name: each.to(device) for name, each in asked.items()}).cpu()

    def _dealt(self, split: Split) -> ShardableBatches:
        data = self.data
        if data.learn_from == "counts":
            return CooccurrenceBatches(self._cells[split], data.words_per_batch, data.seed)
        kept, rest = split_held_out(data.validation)
        batches = ContextBatches(
            self._ids(kept if split == "train" else rest),
            self._counts,
            words=data.words_per_batch,
            reach=data.reach,
            noise=data.noise,
            sample=data.sample,
            seed=data.seed,
        )
        return WithSubwords(batches, self._grams) if data.buckets else batches

    def _subwords(self, names: Sequence[str]) -> Tensor:
        data = self.data
        if not data.buckets:
            return torch.zeros(len(names), 1, dtype=torch.int32)
        return ngram_buckets(
            names, buckets=data.buckets, shortest=data.shortest, longest=data.longest
        )

    @cached_property
    def _grams(self) -> Tensor:
        """The n-grams of every word of the vocabulary; special tokens have none."""
        names = [self.word(number) for number in range(FIRST_WORD, self.tokeniser.vocabulary)]
        return self._subwords([*[""] * FIRST_WORD, *names])

    def _ids(self, part: TextPart) -> Tensor:
        return prepare_corpus(_texts_of(self.data, self.folder), self.tokeniser, part=part).ids

    @cached_property
    def _counts(self) -> WordCounts:
        """Of the whole text: what is held out is known, how it is said is not."""
        return WordCounts.of(self._ids(WHOLE_TEXT), self.tokeniser.vocabulary)

    @cached_property
    def _cells(self) -> dict[Split, CooccurrenceCells]:
        """Counts, some of them held out: drawn, and the same for both orders of a pair."""
        cells = cooccurrences(self._ids(WHOLE_TEXT), self.tokeniser.vocabulary, self.data.reach)
        one = torch.minimum(cells.rows, cells.columns)
        other = torch.maximum(cells.rows, cells.columns)
        drawn = (one * 2654435761 + other * 40503 + self.data.seed) % 1000
        apart = drawn < 1000 * self.data.validation
        return {
            "train": cells.select((~apart).nonzero().flatten()),
            "validation": cells.select(apart.nonzero().flatten()),
        }


class WithSubwords(ShardableBatches):
    """Batches whose words come with the buckets of their n-grams: `grams` [B,K,C]."""

    def __init__(self, batches: ShardableBatches, grams: Tensor) -> None:
        super().__init__(batches.rows)
        self._batches, self._grams = batches, grams

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def digest(self) -> str:
        """The text."""
        return self._batches.digest

    def batch(self, epoch: int, index: int) -> Batch:
        """The batch, with n-grams."""
        batch = self._batches.batch(epoch, index)
        return {**batch, "grams": self._grams[batch["words"]]}


def _texts_of(data: Words, folder: Path) -> list[TextSource]:
    """The texts of a recipe."""
    places = [str(found(folder, path, data.origin)) for path in each_file(data.train)]
    return [
        replace(source_at(place, data.field), words=data.words, lowercase=data.lowercase)
        for place in places
    ]


def agreement(own: Vectors, reference: Vectors, names: Sequence[str]) -> float:
    """Spearman's rank correlation of how alike words are in two tables, each less its mean.

    Over all pairs of the first thousand of the names that both have.
    """
    both = [name for name in names if name in own.places and name in reference.places]
    tables = [torch.stack([each.of(n) for n in both[:_COMPARED]]) for each in (own, reference)]
    alike = [F.normalize(each - each.mean(0), dim=1) for each in tables]
    upper = torch.ones(len(tables[0]), len(tables[0])).triu(1).bool()
    return spearman(*((each @ each.T)[upper] for each in alike))


def spearman(one: Float[Tensor, "N"], other: Float[Tensor, "N"]) -> float:
    """The correlation of ranks; none of the values come twice, or hardly any.

    >>> spearman(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([-3.0, 0.0, 0.5]))
    1.0
    """
    ranks = [each.argsort().argsort().double() for each in (one, other)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])
