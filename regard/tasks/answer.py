"""Answering: the words of a passage that answer a question, or that there are none.

Questions come from files (data/text/questions.py), batches from data/text/windows.py. A model
returns `Spans` (outputs/spans.py). Answers are scored as SQuAD's own scripts do (squad_metrics.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import nn

from regard.core.axes import Tokens
from regard.core.config import Config, Seed
from regard.core.errors import UserError
from regard.core.inputs import Input, Pair, check_kind
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Carry, Loss
from regard.data import IGNORE, BucketBatches
from regard.data import load_tokeniser as load_tokeniser
from regard.data.text.files import read_lines
from regard.data.text.labelled import labelled_form
from regard.data.text.questions import PassageQuestion, read_questions
from regard.data.text.windows import EncodedWindows, PassageWindow, Windowing
from regard.outputs.spans import Spans
from regard.tasks.abilities import Prediction, Reading
from regard.tasks.classification_data import divided
from regard.tasks.over_texts import check_window, learnt, placed_with
from regard.tasks.squad_metrics import exact_match, f1, over_all
from regard.tasks.task import TOKENISER, FileOrShare, Files, Split, each_file, found, parts_of
from regard.tasks.tokenised import Tokenised


class Questions(Config):
    """The `[data]` table of a recipe: which questions, how numbered, how read."""

    train: Files
    """The questions to learn from: SQuAD's JSON, JSONL or bAbI's .txt, perhaps packed."""
    validation: FileOrShare = 0.1
    """Another file, or the share of the training questions to keep for it."""
    test: Files | None = None
    origin: str = ""
    """Where a user gets these files; said when they are missing."""
    tokeniser: Literal["wordpiece", "wordpiece_cased", "source"] = "wordpiece"
    """Learnt from the passages and questions; or that of the run that the model begins with."""
    vocabulary: PositiveInt | None = None
    """The most tokens there may be."""
    min_frequency: PositiveInt = 1
    window: PositiveInt = 384
    """The most tokens that are read at a time: question, passage and marks."""
    stride: PositiveInt = 128
    """How many tokens further on the next window of a long passage begins."""
    longest_question: PositiveInt = 64
    longest_answer: PositiveInt = 30
    """Tokens of an answer."""
    unanswerable: bool = False
    """May there be no answer, as in SQuAD 2.0?"""
    threshold: float = 0.0
    """How much better than an answer no answer must score to be given."""
    batch: PositiveInt = 16
    evaluate_batch: PositiveInt = 32
    seed: Seed = 0


def _read_files(data: Questions, folder: Path, paths: Files) -> Iterator[PassageQuestion]:
    """The questions of some files."""
    for path in each_file(paths):
        yield from read_questions(str(found(folder, path, data.origin)))


@dataclass(frozen=True)
class Found:
    """The best answer to a question."""

    text: str
    """Nothing if there is no answer."""
    begin: int
    """Where in the passage, in characters."""
    score: float
    """Of its two ends together."""
    empty: float
    """That of no answer."""


@dataclass(frozen=True)
class Answering(Tokenised):
    """-log p of the two ends of an answer, their mean; items are windows."""

    Data = Questions
    output = Spans
    usage = "printf 'Who came?\\tAnn came.\\n' | regard predict {run}"

    data: Questions

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "Answering":
        """The task on these questions; its tokeniser is trained now if there is none yet."""
        assert isinstance(data, Questions)
        if saved is not None:
            return cls(data, folder, load_tokeniser(saved / TOKENISER))

        def texts() -> Iterator[str]:
            last = ""
            for each in _read_files(data, folder, data.train):
                yield each.text
                if each.passage != last:
                    yield from each.passage.splitlines()
                last = each.passage

        tokeniser = learnt(data.tokeniser, texts(), data.vocabulary, data.min_frequency)
        return cls(data, folder, tokeniser)

    @property
    def windowing(self) -> Windowing:
        """How questions become windows."""
        data, template = self.data, self.tokeniser.template
        if template is None:
            raise UserError("the tokeniser of this run puts no marks around a question")
        return Windowing(
            tokeniser=self.tokeniser,
            template=template,
            window=data.window,
            stride=data.stride,
            longest_question=data.longest_question,
        )

    def limited_to(self, context: int) -> "Answering":
        """Its windows must fit."""
        check_window(self.data.window, context)
        return self

    def questions(self, split: Split) -> list[PassageQuestion]:
        """The questions of a split."""
        data = self.data
        path = {"train": data.train, "validation": data.validation, "test": data.test}[split]
        if path is None:
            raise UserError(f"this recipe has no {split} questions; set data.{split}")
        if split != "train" and not isinstance(path, float):
            return list(_read_files(data, self.folder, path))
        every = list(_read_files(data, self.folder, data.train))
        apart, rest = divided(len(every), data.validation, None, data.seed)
        chosen = [every[each] for each in (rest if split == "train" else apart)]
        if split == "train" and not data.unanswerable:
            for each in chosen:
                if not each.answers:
                    raise UserError(
                        f"{each.where}: there is no answer; set data.unanswerable = true if "
                        "questions may have none"
                    )
        return chosen

    def numbers(self, asked: Sequence[PassageQuestion]) -> EncodedWindows:
        """Questions as numbers."""
        return EncodedWindows(self.windowing.windows(asked), self.tokeniser.pad)

    @cached_property
    def _training(self) -> EncodedWindows:
        return self.numbers(self.questions("train"))

    def batches(self) -> BucketBatches:
        """The training batches: windows of about one length."""
        held = self._training
        return BucketBatches(held.lengths, held.gather, seed=self.data.seed, batch=self.data.batch)

    def evaluation(self, split: Split) -> BucketBatches:
        """The batches that measure: every window once."""
        held = self.numbers(self.questions(split))
        return BucketBatches(held.lengths, held.gather, seed=0, batch=self.data.evaluate_batch)

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The mean over both ends."""
        total = Spans.of(model, batch, carry).loss(batch)
        return Loss(total=total, items=int((batch["first"] != IGNORE).sum()))

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The mean loss per window; what answers are worth only `score` can say."""
        return {"loss": totals["loss"]}

    def score(self, model: nn.Module, split: Split) -> dict[str, float]:
        """Exact match and F1 over questions, in per cent."""
        asked = self.questions(split)
        said = [each.text for each in self.found(model, asked)]
        golds = [[text for _, text in each.answers] for each in asked]
        scored = {
            "exact_match": over_all(exact_match, said, golds),
            "f1": over_all(f1, said, golds),
        }
        if self.data.unanswerable:
            empty = [n for n, gold in enumerate(golds) if not gold]
            right = sum(not said[n] for n in empty)
            scored["no_answer_right"] = 100 * right / len(empty) if empty else 0.0
        return scored

    def found(self, model: nn.Module, asked: Sequence[PassageQuestion]) -> list[Found]:
        """The best answer to each question, over all windows of its passage."""
        best: list[Found | None] = [None] * len(asked)
        held = self.numbers(asked)
        device = next(model.parameters()).device
        batches = BucketBatches(held.lengths, held.gather, seed=0, batch=self.data.evaluate_batch)
        with eval_mode(model), torch.no_grad():
            for index in range(len(batches)):
                batch = {n: each.to(device) for n, each in batches.batch(0, index).items()}
                spans = Spans.of(model, batch)
                places, scores = spans.best(batch["passage"], self.data.longest_answer)
                empty = (spans.first[:, 0] + spans.last[:, 0]).tolist()
                rows = zip(
                    *(batches.numbers(0, index).tolist(), places.tolist(), scores.tolist(), empty),
                    strict=True,
                )
                for number, place, score, none in rows:
                    window = held.windows[number]
                    here = self._spelled(asked[window.question], window, place, score, none)
                    best[window.question] = better(best[window.question], here)
        return [self._given(each) for each in best if each is not None]

    def _spelled(
        self,
        asked: PassageQuestion,
        window: PassageWindow,
        place: Sequence[int],
        score: float,
        empty: float,
    ) -> Found:
        """A span of tokens as a part of the passage."""
        if score == float("-inf"):
            return Found("", 0, score, empty)
        first, last = (window.spans[each - window.begin] for each in place)
        return Found(asked.passage[first[0] : last[1]], first[0], score, empty)

    def _given(self, best: Found) -> Found:
        """The answer, or none if that scores better and is possible."""
        refused = self.data.unanswerable and best.empty - best.score > self.data.threshold
        return Found("", 0, best.score, best.empty) if refused else best

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """A question and its passage."""
        return (Pair,)

    def inputs(self, path: str) -> list[Input]:
        """The questions of a file, or lines of question, tab and passage."""
        if path.endswith((".txt", ".tsv")) or labelled_form(path) == "tsv":
            return [self.parse(text, f"{path}:{number}") for number, (text,) in read_lines(path)]
        return [Pair(each.text, each.passage) for each in read_questions(path)]

    def example(self) -> str:
        """The first question of the validation data, a tab, and its passage."""
        first = next(iter(self.questions("validation")), None)
        return "" if first is None else f"{first.text}\t{' '.join(first.passage.split())}"

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """The answer to each question, its place in the passage, and its score."""
        asked = [_question_of(each) for each in inputs]
        predictions = []
        for question, best in zip(asked, self.found(model, asked), strict=True):
            fields = {
                "question": question.text,
                "answer": best.text,
                "begin": best.begin,
                "end": best.begin + len(best.text),
                "score": round(best.score, 4),
                "no_answer_score": round(best.empty, 4),
            }
            predictions.append(Prediction(text=best.text, fields=fields))
        return predictions

    def read(self, model: nn.Module, given: Input) -> Reading:
        """Run the model on the first window of a question; its axis is tokens, special ones too."""
        batch = self.numbers([_question_of(given)]).gather(torch.tensor([0]))
        with eval_mode(model), torch.no_grad():
            model(placed_with(model, batch))
        tokens = (self.tokeniser.token(number) for number in batch["tokens"][0].tolist())
        return Reading(title=given.title, axes={"position": Tokens(labels=tuple(tokens))})

    @classmethod
    def checkpoint_data(cls, context: int) -> dict[str, object]:
        """Questions, in windows of at most 384 tokens."""
        window = min(384, context)
        return {
            "train": "train.json",
            "tokeniser": "source",
            "window": window,
            "stride": max(1, window // 3),
            "longest_question": max(1, window // 6),
        }

    def notes(self) -> list[str]:
        """How answers are scored, and how many windows there are."""
        return [
            "exact_match and f1: as SQuAD's scripts count them",
            f"{len(self._training):,} windows to learn from",
        ]


def _question_of(given: Input) -> PassageQuestion:
    """A question with its passage, and without an answer."""
    check_kind(given, (Pair,), "answer")
    text, passage = parts_of(given)
    return PassageQuestion("", text, passage, (), "")


def better(one: Found | None, other: Found) -> Found:
    """The better answer of two; no answer scores as in the window where it scores least."""
    if one is None:
        return other
    best = one if one.score >= other.score else other
    return Found(best.text, best.begin, best.score, min(one.empty, other.empty))
