"""Tagging: a tag for each word of a sentence; names and phrases, or parts of speech.

Sentences come in columns (data/text/conll.py); batches are those of data/text/encoding.py with
`tags` [B,T]. A model returns `Tags` (outputs/tags.py). Where tags write chunks, F1 over chunks is
that of conlleval (conll_metrics.py).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn

from regard.core.axes import Sentences as TextAxis
from regard.core.axes import Tokens
from regard.core.config import Config, Seed
from regard.core.errors import UserError, nearest
from regard.core.inputs import Input, Text
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Carry, Loss
from regard.data import BucketBatches
from regard.data import load_tokeniser as load_tokeniser
from regard.data.text.conll import (
    CONLL_SUFFIXES,
    OUTSIDE,
    TaggedSentence,
    all_tags,
    check_tags,
    convert_tags,
    may_follow,
    read_conll,
    split_tag,
    to_chunks,
)
from regard.data.text.encoding import PADDING_PART, EncodedTexts, encode_texts, encode_word_pieces
from regard.data.text.encoding import TextEncoding as TextReading
from regard.data.text.files import read_lines
from regard.data.text.parallel import PackedSequences
from regard.data.text.segment import blank_spans, word_spans
from regard.outputs.tags import LegalTags, Tags
from regard.tasks.abilities import Prediction, Reading, Report, Subject
from regard.tasks.classification_data import divided
from regard.tasks.confusion import Confusion, Rates, as_counts, macro, rates_in
from regard.tasks.conll_metrics import Counted
from regard.tasks.drafts import tagging_draft
from regard.tasks.over_texts import batches_over, learnt, placed_with, report_truncated
from regard.tasks.sampling import every_batch, sample_positions, special_tokens, take_rows
from regard.tasks.task import (
    LABELS,
    TOKENISER,
    Draft,
    FileOrShare,
    Files,
    Split,
    each_file,
    found,
    read_labels,
    text_of,
)
from regard.tasks.tokenised import Labelling

_BATCH = 32
"""Sentences to a batch unless the recipe says otherwise."""

_DIGIT = re.compile(r"\d")


class Columns(Config):
    """The `[data]` table of a recipe: which sentences, how numbered, how dealt out."""

    train: Files
    """The file to learn from, in the data folder, perhaps packed."""
    validation: FileOrShare = 0.1
    """Another file, or the share of the training sentences to keep for it."""
    test: Files | None = None
    word: int = 1
    """The column of the word, from 1, or back from -1."""
    tag: int = -1
    """The column of the tag."""
    scheme: Literal["iob1", "iob2", "bioes", "none"] = "iob2"
    """How the file writes chunks; none if tags are no chunks, as parts of speech."""
    learn: Literal["iob1", "iob2", "bioes"] = "bioes"
    """How the model writes them."""
    lenient: bool = False
    """Read tags that do not fit the scheme as conlleval does (an I-X without a beginning begins a
    chunk) instead of refusing the file; how many there are is told once."""
    words: Literal["whitespace", "plain"] = "whitespace"
    """How a sentence to be tagged is split into words: at blanks, or raw text, with punctuation
    apart. Answers have the place of each word in the text."""
    origin: str = ""
    """Where a user gets these files; said when they are missing."""
    tokeniser: Literal["word", "wordpiece", "wordpiece_cased", "source"] = "word"
    """Words as they are; or in pieces that are learnt, or those of the run to begin with. A word in
    pieces has the tag of its first one."""
    max_length: PositiveInt | None = None
    """How many pieces of a sentence are read, if fewer than the model can read; words that are cut
    off are tagged unread."""
    strict: bool = False
    """Refuse texts that are longer than the model reads, rather than truncate them."""
    lowercase: bool = False
    """Look words up in lower case; spellings keep theirs."""
    digits: bool = False
    """Look words up with 0 for every digit; spellings keep theirs."""
    vocabulary: PositiveInt | None = None
    """The most words there may be."""
    min_frequency: PositiveInt = 1
    characters: bool = True
    """Give models the spelling of each word too."""
    vectors: str | None = None
    """A file of word vectors to begin with, in the data folder."""
    batch: PositiveInt | None = None
    """Sentences to a batch; 32 if nothing is said."""
    tokens_per_batch: PositiveInt | None = None
    """Instead: the most words, padding included."""
    evaluate_batch: PositiveInt = 64
    limit: PositiveInt | None = None
    """Learn from so many sentences only, drawn by the seed."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _agree(self) -> "Columns":
        if self.batch is not None and self.tokens_per_batch is not None:
            raise UserError("give either batch or tokens_per_batch, not both")
        return self


@dataclass(frozen=True)
class TaggedNumbers:
    """Sentences as numbers, and the tags of their words."""

    texts: EncodedTexts
    tags: PackedSequences

    def gather(self, numbers: Int[Tensor, "B"]) -> Batch:
        """These sentences as a batch; what stands at padding does not count."""
        return {**self.texts.gather(numbers), "tags": self.tags.rows(numbers, 0)}


@dataclass(frozen=True)
class Tagging(Labelling):
    """-log p of the tags of each sentence, summed; items are words."""

    Data = Columns
    output = Tags
    usage = "regard predict {run} < sentences.txt"

    data: Columns

    @classmethod
    def draft(cls, files: Sequence[str], given: Mapping[str, object]) -> Draft:
        """A first recipe for these training files."""
        return tagging_draft(files, given)

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "Tagging":
        """The task on these data; vocabulary and tags are found now if there are none yet."""
        assert isinstance(data, Columns)
        if saved is not None:
            tokeniser = load_tokeniser(saved / TOKENISER)
            if (saved / LABELS).exists():
                return cls(data, folder, tokeniser, read_labels(saved / LABELS))

        def texts() -> Iterator[str]:
            for sentence in _sentences_of(data, folder, "train"):
                yield " ".join(_looked_up(sentence.words, data))

        if saved is None:
            tokeniser = learnt(data.tokeniser, texts(), data.vocabulary, data.min_frequency)
        known = {
            tag for sentence in _read_sentences(data, folder, data.train) for tag in sentence.tags
        }
        tags = known if data.scheme == "none" else all_tags(known, data.learn)
        return cls(data, folder, tokeniser, tuple(sorted(tags, key=lambda t: (t != OUTSIDE, t))))

    @property
    def read_limit(self) -> int | None:
        """The maximum length without special tokens, where these are added."""
        template, most = self.tokeniser.template, self.data.max_length
        return None if template is None or most is None else most - template.size(1)

    def numbers_of(self, texts: Sequence[Sequence[str]]) -> EncodedTexts:
        """Sentences of words as numbers."""
        if self.tokeniser.template is not None:
            cut = TextReading(self.tokeniser, longest=self.longest)
            held = [_looked_up(each, self.data) for each in texts]
            return encode_word_pieces(held, cut, self.tokeniser.template)
        plain = TextReading(self.tokeniser)
        looked = encode_texts(([_looked_up(each, self.data)] for each in texts), plain)
        if not self.data.characters and self.source is None:
            return looked
        # Characters and the source's words are those of the text, not of the table.
        written = TextReading(
            self.tokeniser,
            characters=self.data.characters,
            source=self.source,
            source_lowercase=self.source_lowercase,
        )
        spelled = encode_texts(([list(each)] for each in texts), written)
        return replace(spelled, tokens=looked.tokens)

    def numbers(self, split: Split) -> TaggedNumbers:
        """The sentences of a split."""
        held = list(_sentences_of(self.data, self.folder, split))
        tags = [self.number_of(each, place) for each in held for place in range(len(each.tags))]
        texts = self.numbers_of([each.words for each in held])
        report_truncated(texts, [each.where(0) for each in held], strict=self.data.strict)
        flat = torch.tensor([*tags, 0], dtype=torch.int32)
        return TaggedNumbers(texts, PackedSequences(flat, (texts.firsts or texts.tokens).lengths))

    def number_of(self, sentence: TaggedSentence, place: int) -> int:
        """The number of a tag, if training had it."""
        tag = sentence.tags[place]
        if tag not in self._places:
            what, name = ("tag", tag) if self.data.scheme == "none" else ("kind", split_tag(tag)[1])
            near = nearest(name, self.kinds)
            hint = f"; did you mean {near!r}?" if near else ""
            raise UserError(
                f"{sentence.where(place)}: the {what} {name!r} of {sentence.words[place]!r} is not "
                f"among those of the training data{hint}"
            )
        return self._places[tag]

    @cached_property
    def _has_scheme(self) -> bool:
        """Are the tags all those of a scheme? Those of a checkpoint from elsewhere may not be."""
        if self.data.scheme == "none":
            return False
        return set(self.labels) == all_tags(self.labels, self.data.learn)

    def as_in_file(self, tags: Sequence[str]) -> list[str]:
        """Tags of the model in the scheme of the file that it learnt from."""
        if not self._has_scheme:
            return list(tags)
        return convert_tags(tags, self.data.learn, self.data.scheme)

    @cached_property
    def _legal(self) -> LegalTags | None:
        """Which tags may follow which, where they write chunks."""
        if not self._has_scheme:
            return None
        learn, tags = self.data.learn, self.labels
        return LegalTags(
            pairs=torch.tensor([[may_follow(a, b, learn) for b in tags] for a in tags]),
            start=torch.tensor([may_follow(OUTSIDE, tag, learn) for tag in tags]),
            end=torch.tensor([may_follow(tag, OUTSIDE, learn) for tag in tags]),
        )

    @cached_property
    def _places(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self.labels)}

    @cached_property
    def _training(self) -> TaggedNumbers:
        return self.numbers("train")

    def batches(self) -> BucketBatches:
        """The training batches: sentences of about one length."""
        data, held = self.data, self._training
        return BucketBatches(
            held.texts.lengths,
            held.gather,
            seed=data.seed,
            batch=_BATCH if data.batch is None and data.tokens_per_batch is None else data.batch,
            tokens_per_batch=data.tokens_per_batch,
        )

    def evaluation(self, split: Split) -> BucketBatches:
        """The batches that measure: every sentence once."""
        held = self.numbers(split)
        return BucketBatches(
            held.texts.lengths, held.gather, seed=0, batch=self.data.evaluate_batch
        )

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """-log p of the tags; when measuring, also what the best tags get right."""
        output = Tags.of(model, batch, carry)
        counts_of = _words_in_rows(batch)
        words = int(counts_of.sum())
        total = output.loss(batch)
        if model.training:
            return Loss(total=total, items=words)
        best = self.named(output.best(self._legal), counts_of)
        counted = self.counted(self.named(batch["tags"], counts_of), best)
        counts = {"accuracy": float(counted.words_right), **as_counts(counted.kinds)}
        return Loss(total=total, items=words, counts=counts)

    def counted(self, true: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> Counted:
        """Chunks found and missed; where tags are no chunks, each word is one."""
        if self.data.scheme == "none":
            true = [[f"S-{tag}" for tag in row] for row in true]
            said = [[f"S-{tag}" for tag in row] for row in said]
            return Counted.of(true, said, "bioes")
        return Counted.of(true, said, self.data.learn)

    def named(self, tags: Int[Tensor, "B T"], lengths: Int[Tensor, "B"]) -> list[list[str]]:
        """Tags by name, without padding."""
        rows = zip(tags.tolist(), lengths.tolist(), strict=True)
        return [[self.labels[tag] for tag in row[:length]] for row, length in rows]

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The mean loss per word, the share of right tags, and F1 over chunks in per cent: of all
        together, and of the kinds, each counting alike."""
        figures = {"loss": totals["loss"], "accuracy": totals["accuracy"]}
        rates = rates_in(totals, self.kinds).values()
        if self.data.scheme == "none":
            return {**figures, "macro_f1": 100 * macro(rates)}
        total = sum(rates, Rates(0, 0, 0))
        return {
            **figures,
            "precision": 100 * total.precision,
            "recall": 100 * total.recall,
            "f1": 100 * total.f1,
            "macro_f1": 100 * macro(rates),
        }

    @property
    def kinds(self) -> list[str]:
        """What chunks there are; where tags are no chunks, the tags."""
        if self.data.scheme == "none":
            return list(self.labels)
        return sorted({split_tag(tag)[1] for tag in self.labels if tag != OUTSIDE})

    def report(self, model: nn.Module, split: Split) -> Report:
        """Precision and recall of each kind of chunk, and which kind of word was predicted as
        which."""
        chunks, words = self.counts(model, split)
        return Report(table=chunks.table(), labels=words.labels, counts=words.counts, items="words")

    def counts(self, model: nn.Module, split: Split) -> tuple[Counted, Confusion]:
        """Chunks of each kind, found and missed; and which kind of word was predicted as which."""
        held = list(_sentences_of(self.data, self.folder, split))
        said = [row for row, _ in self.tags_of(model, [each.words for each in held])]
        names = self.kinds if self.data.scheme == "none" else [OUTSIDE, *self.kinds]
        places = {name: place for place, name in enumerate(names)}

        def kinds_of(rows: Iterable[Sequence[str]]) -> list[int]:
            tags = (tag for row in rows for tag in row)
            return [places[tag if tag in places else split_tag(tag)[1]] for tag in tags]

        true = [each.tags for each in held]
        return self.counted(true, said), Confusion.of(names, kinds_of(true), kinds_of(said))

    def tags_of(
        self, model: nn.Module, texts: Sequence[Sequence[str]]
    ) -> list[tuple[list[str], list[float]]]:
        """The best tags of each sentence, and how likely each of them is."""
        found: list[tuple[list[str], list[float]]] = [([], []) for _ in texts]
        held = self.numbers_of(texts)
        for numbers, batch in batches_over(model, held, self.data.evaluate_batch):
            output = Tags.of(model, batch)
            best = output.best(self._legal)  # [B,T]
            likely = output.probabilities().gather(2, best[..., None]).squeeze(2)
            rows = zip(
                *(numbers.tolist(), self.named(best, _words_in_rows(batch)), likely.tolist()),
                strict=True,
            )
            for number, tags, probabilities in rows:
                found[number] = (tags, probabilities[: len(tags)])
        return found

    def inputs(self, path: str) -> list[Input]:
        """The sentences of a file: in columns as the recipe has them if its name ends in .conll,
        .iob or the like; else one a line, words separated by whitespace."""
        if path.removesuffix(".gz").endswith(CONLL_SUFFIXES):
            found = read_conll(path, self.data.word, self.data.word)
            return [Text(" ".join(each.words)) for each in found]
        return [Text(record.text) for record in read_lines(path)]

    def example(self) -> str:
        """The first sentence of the validation data."""
        first = next(iter(_sentences_of(self.data, self.folder, "validation")), None)
        return "" if first is None else " ".join(first.words)

    def read(self, model: nn.Module, given: Input) -> Reading:
        """Run the model on one sentence; its axis is tokens."""
        text = text_of(given, "tag")
        batch, tokens = self.labelled(self.words_of(text))
        with eval_mode(model), torch.no_grad():
            model(placed_with(model, batch))
        axes = {"position": Tokens(labels=tuple(tokens)), "text": TextAxis(labels=(text,))}
        return Reading(title=text, axes=axes)

    def labelled(self, words: Sequence[str]) -> tuple[Batch, list[str]]:
        """One sentence as a batch, and the text of each of its tokens."""
        batch = self.numbers_of([words]).gather(torch.tensor([0]))
        if self.tokeniser.template is None:
            return batch, list(words)
        return batch, [self.tokeniser.token(number) for number in batch["tokens"][0].tolist()]

    def words_of(self, text: str) -> list[str]:
        """The words of a sentence, as the recipe splits it."""
        return [text[begin:end] for begin, end in self.spans_of(text)]

    def spans_of(self, text: str) -> list[tuple[int, int]]:
        """The first and last character (exclusive) of each word of a sentence."""
        return word_spans(text) if self.data.words == "plain" else blank_spans(text)

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """A tag and its probability for every word of each sentence, and the chunks."""
        texts = [text_of(each, "tag") for each in inputs]
        every = [self.words_of(text) for text in texts]
        predictions = []
        for text, words, (best, likely) in zip(
            texts, every, self.tags_of(model, every), strict=True
        ):
            tags, spans = self.as_in_file(best), self.spans_of(text)
            shown = "".join(f"{w}\t{t}\n" for w, t in zip(words, tags, strict=True))
            fields: dict[str, object] = {
                "words": words,
                "tags": tags,
                "probabilities": [round(each, 6) for each in likely],
            }
            if self.data.scheme != "none":
                fields["chunks"] = [
                    {
                        "kind": chunk.kind,
                        "first": chunk.first,
                        "last": chunk.last,
                        "begin": spans[chunk.first][0],
                        "end": spans[chunk.last][1],
                        "text": text[spans[chunk.first][0] : spans[chunk.last][1]],
                    }
                    for chunk in to_chunks(best, self.data.learn)
                ]
            predictions.append(
                Prediction(text=shown, fields=fields, tokens=tuple(words), labels=tuple(tags))
            )
        return predictions

    @classmethod
    def checkpoint_data(cls, context: int) -> dict[str, object]:
        """Sentences in columns."""
        return {"train": "train.txt", "tokeniser": "source", "characters": False}

    def notes(self) -> list[str]:
        """How F1 is counted, and how much padding the training batches hold."""
        waste = self.batches().padding_fraction(0)
        return [
            "f1: over chunks, as conlleval counts them",
            f"padding of training batches: {waste:.1%}",
        ]

    def subject(self, split: Split, *, most: int, seed: int) -> Subject:
        """Words of the sentences of a split; the tag of each is predicted from the others."""

        def words() -> Iterator[Batch]:
            generator = torch.Generator().manual_seed(seed)
            for batch in every_batch(self.evaluation(split)):
                rows, word = sample_positions(_words_in_rows(batch), generator)
                chosen = {name: batch[name][rows] for name in batch if name not in _OF_WORDS}
                if "firsts" not in batch:
                    yield {**chosen, "place": word}
                    continue
                place = batch["firsts"][rows, word]  # [N]
                one = {"firsts": place[:, None], "words": torch.ones_like(place)}
                yield {**chosen, **one, "place": place}

        return Subject(
            batches=tuple(take_rows(words(), most)),
            predict=_log_probabilities_of_tag,
            special=special_tokens(self.tokeniser),
            padding={"parts": PADDING_PART},
            judged=_other_positions,
            pointers=("place", "firsts"),
            queries={"position": lambda batch: batch["place"]},
        )


_OF_WORDS = ("words", "tags", "firsts")
"""The tensors of a batch with a value for each word."""


def _log_probabilities_of_tag(model: nn.Module, batch: Batch) -> Float[Tensor, "B C"]:
    """Log p of the tags of the word at `place`, whatever the tags of the others are."""
    place = batch["place"]
    column = torch.zeros_like(place) if "firsts" in batch else place
    rows = torch.arange(len(place), device=place.device)
    likely = Tags.of(model, batch).probabilities()[rows, column]  # [B,C]
    return likely.clamp_min(torch.finfo(likely.dtype).tiny).log()


def _other_positions(batch: Batch) -> Bool[Tensor, "B T"]:
    """All positions but that of the word itself."""
    positions = torch.arange(batch["tokens"].shape[1], device=batch["place"].device)
    return positions != batch["place"][:, None]


def _words_in_rows(batch: Batch) -> Int[Tensor, "B"]:
    """How many words the rows of a batch have."""
    return batch["words"] if "words" in batch else batch["lengths"]


def _looked_up(words: Sequence[str], data: Columns) -> list[str]:
    """Words as the table has them.

    >>> _looked_up(["Rev", "1995"], Columns(train="a", lowercase=True, digits=True))
    ['rev', '0000']
    """
    found = [word.lower() for word in words] if data.lowercase else list(words)
    return [_DIGIT.sub("0", word) for word in found] if data.digits else found


def _sentences_of(data: Columns, folder: Path, split: Split) -> Iterator[TaggedSentence]:
    """The sentences of a split, with tags as the model writes them."""
    path = {"train": data.train, "validation": data.validation, "test": data.test}[split]
    if path is None:
        raise UserError(f"this recipe has no {split} sentences; set data.{split}")
    if split != "train" and not isinstance(path, float):
        yield from _read_sentences(data, folder, path)
        return
    every = list(_read_sentences(data, folder, data.train))
    apart, rest = divided(len(every), data.validation, data.limit, data.seed)
    yield from (every[each] for each in (rest if split == "train" else apart))


def _read_sentences(data: Columns, folder: Path, paths: Files) -> Iterator[TaggedSentence]:
    """The sentences of some files, with tags as the model writes them."""
    for path in each_file(paths):
        yield from _read_file(data, folder, path)


def _read_file(data: Columns, folder: Path, path: str) -> Iterator[TaggedSentence]:
    """The sentences of a file, with tags as the model writes them."""
    place = found(folder, path, data.origin)
    for sentence in read_conll(str(place), data.word, data.tag):
        if data.scheme == "none":
            yield sentence
            continue
        check_tags(sentence, data.scheme, lenient=data.lenient)
        tags = convert_tags(sentence.tags, data.scheme, data.learn)
        yield sentence._replace(tags=tuple(tags))
