"""Classification: which of some classes a text, a pair of texts or a document is.

Examples come from files (data/text/labelled.py); batches are those of data/text/encoding.py with
`classes` [B]. A model returns `Classes` (outputs/classes.py).
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.axes import Sentences, Tokens
from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.inputs import Document, Input, Pair, Text, check_kind
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Carry, Loss
from regard.data import EMPTY_ROW, BucketBatches
from regard.data import load_tokeniser as load_tokeniser
from regard.data.text.encoding import PADDING_PART, EncodedTexts, encode_texts
from regard.data.text.encoding import TextEncoding as TextReading
from regard.data.text.files import read_lines
from regard.data.text.labelled import (
    FORMS_WITH_FIELDS,
    LabelledExample,
    LabelledText,
    files_in,
    labelled_form,
)
from regard.data.text.pipeline import EOS
from regard.data.text.special_tokens import InputTemplate
from regard.outputs.classes import Classes
from regard.tasks.abilities import Prediction, Reading, Report, Subject
from regard.tasks.classification_data import Examples, all_examples, examples_of, pieces
from regard.tasks.confusion import Confusion
from regard.tasks.drafts import classification_draft
from regard.tasks.over_texts import batches_over, learnt, placed_with, report_truncated
from regard.tasks.problems import PROBLEMS, Label, Problem
from regard.tasks.sampling import AUDIT_ROWS, every_batch, special_tokens
from regard.tasks.task import LABELS, TOKENISER, Draft, Split, each_file, parts_of, read_labels
from regard.tasks.tokenised import Labelling

_log = logging.getLogger(__name__)

_BATCH = 32
"""Texts to a batch unless the recipe says otherwise."""


@dataclass(frozen=True)
class LabelledNumbers:
    """Texts as numbers, and the class of each."""

    texts: EncodedTexts
    classes: Int[Tensor, "N"] | Float[Tensor, "N C"]
    problem: Problem

    def gather(self, numbers: Int[Tensor, "B"]) -> Batch:
        """These examples as a batch; one that is not there has no class."""
        known = self.problem.without(self.classes[numbers], numbers == EMPTY_ROW)
        return {**self.texts.gather(numbers), "classes": known}


@dataclass(frozen=True)
class Classification(Labelling):
    """-log p of the class of each text, summed."""

    Data = Examples
    output = Classes
    usage = "regard predict {run} < texts.txt"

    data: Examples

    @classmethod
    def draft(cls, files: Sequence[str], given: Mapping[str, object]) -> Draft:
        """A first recipe for these training files."""
        return classification_draft(files, given)

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "Classification":
        """The task on these data; vocabulary and classes are found now if there are none yet."""
        assert isinstance(data, Examples)
        if saved is not None:
            tokeniser = load_tokeniser(saved / TOKENISER)
            if (saved / LABELS).exists():
                return cls(data, folder, tokeniser, read_labels(saved / LABELS))
        else:
            examples = examples_of(data, folder, "train")
            texts = (" ".join(words) for each in examples for words in pieces(each.texts, data))
            tokeniser = learnt(data.tokeniser, texts, data.vocabulary, data.min_frequency)
        return cls(data, folder, tokeniser, _labels_in(data, folder))

    @property
    def sizes(self) -> dict[str, int]:
        """The vocabulary, with the marks of a template, and the number of classes."""
        marks = 3 if self.data.template == "gpt" else 0
        return {**super().sizes, "vocabulary": self.tokeniser.vocabulary + marks}

    @property
    def reading(self) -> TextReading:
        """How texts become numbers."""
        data = self.data
        pairs = len(data.text) == 2
        return TextReading(
            self.tokeniser,
            pairs,
            data.characters,
            self.longest,
            self.source,
            self.source_lowercase,
            self.template,
            data.both_orders,
        )

    @property
    def template(self) -> InputTemplate | None:
        """The marks around texts, if there are any."""
        if self.data.template == "own":
            return self.tokeniser.template
        if self.data.template == "exact":
            return self.tokeniser.frames
        start, delimiter, extract = (self.tokeniser.vocabulary + mark for mark in range(3))
        return InputTemplate(before=(start,), between=(delimiter,), after=(extract,))

    @property
    def read_limit(self) -> int | None:
        """The maximum length without special tokens."""
        marks = 0 if self.template is None else self.template.size(len(self.data.text))
        return None if self.data.max_length is None else self.data.max_length - marks

    @property
    def problem(self) -> Problem:
        """What a label is."""
        return PROBLEMS[self.data.problem]

    @cached_property
    def _numbered(self) -> dict[Split, LabelledNumbers]:
        return {}

    def numbers(self, split: Split) -> LabelledNumbers:
        """The examples of a split, read once; what is empty is not learnt from."""
        if split not in self._numbered:
            self._numbered[split] = self._numbers(split)
        return self._numbered[split]

    def _numbers(self, split: Split) -> LabelledNumbers:
        examples = list(examples_of(self.data, self.folder, split))
        if split == "train":
            empty = [each for each in examples if not any(map(str.strip, each.texts))]
            if empty:
                _log.warning(
                    "%s: an empty text, which is not learnt from (the first of %d)",
                    *(empty[0].where, len(empty)),
                )
            examples = [each for each in examples if any(map(str.strip, each.texts))]
        classes = [self.target_of(each) for each in examples]
        texts = encode_texts((pieces(each.texts, self.data) for each in examples), self.reading)
        report_truncated(texts, [each.where for each in examples], strict=self.data.strict)
        return LabelledNumbers(texts, self.problem.stack(classes), self.problem)

    def target_of(self, example: LabelledExample) -> int | list[float]:
        """An example's label as numbers."""
        assert example.label is not None
        return self.problem.target(example.label, self.labels, example.where)

    def batches(self) -> BucketBatches:
        """The training batches: texts of about one length."""
        data, examples = self.data, self.numbers("train")
        if not len(examples.texts):
            raise UserError(f"{data.train}: there is nothing to learn from: no texts")
        return BucketBatches(
            examples.texts.lengths,
            examples.gather,
            seed=data.seed,
            batch=_BATCH if data.batch is None and data.tokens_per_batch is None else data.batch,
            tokens_per_batch=data.tokens_per_batch,
        )

    def evaluation(self, split: Split) -> BucketBatches:
        """The batches that measure: every text once, empty ones too."""
        examples = self.numbers(split)
        if not len(examples.texts):
            raise UserError(f"there are no {split} examples to measure on")
        return BucketBatches(
            examples.texts.lengths, examples.gather, seed=0, batch=self.data.evaluate_batch
        )

    @cached_property
    def weights(self) -> Float[Tensor, "C"] | None:
        """How much an example of each class counts in training; None where all count one."""
        chosen = self.data.class_weights
        if chosen == "none":
            return None
        if isinstance(chosen, dict):
            if set(chosen) != set(self.labels):
                raise UserError(
                    f"class_weights are for {', '.join(sorted(chosen))}; the classes are "
                    f"{', '.join(self.labels)}"
                )
            return torch.tensor([chosen[label] for label in self.labels])
        counts = self.numbers("train").classes.bincount(minlength=len(self.labels))
        return counts.sum() / (len(self.labels) * counts.clamp_min(1)).float()

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of the problem; weights and smoothing are for training alone.

        When measuring, it is also counted how often each class was there, was said, and was right.
        """
        output = _classes_of(model, batch)
        targets, problem = batch["classes"], self.problem
        if model.training and self.data.problem == "single_label":
            total = output.nll(targets, weight=self.weights, smoothing=self.data.smoothing)
        else:
            total = problem.loss(output, targets)
        real = problem.real(targets)
        counts = problem.counts(
            output.logits[real], targets[real], self.labels, detailed=not model.training
        )
        total = output.with_auxiliary(total) if model.training else total
        return Loss(total=total, items=int(real.sum()), counts=counts)

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The mean loss per text, and the figures of the problem: accuracy and F1, or errors."""
        return {"loss": totals["loss"], **self.problem.metrics(totals, self.labels)}

    def report(self, model: nn.Module, split: Split) -> Report:
        """Precision and recall of each class, and which class was predicted as which."""
        self._require_classes("a report counts which class was predicted as which")
        counted = self.confusion(model, split)
        return Report(
            table=counted.table(), labels=counted.labels, counts=counted.counts, items="texts"
        )

    def confusion(self, model: nn.Module, split: Split) -> Confusion:
        """How often each class of a split was predicted as which."""
        examples = self.numbers(split)
        said = self.values(model, examples.texts).argmax(1)
        return Confusion.of(self.labels, examples.classes.tolist(), said.tolist())

    def _require_classes(self, why: str) -> None:
        if self.data.problem != "single_label":
            raise UserError(
                f"{why}; the labels of this run are {self.data.problem} (data.problem), and each "
                "text has one class only with single_label"
            )

    def values(self, model: nn.Module, texts: EncodedTexts) -> Float[Tensor, "N C"]:
        """p of each class for each text, in their order; or the numbers of a regression."""
        found = torch.zeros(len(texts), len(self.labels))
        for numbers, batch in batches_over(model, texts, self.data.evaluate_batch):
            found[numbers] = self.problem.values(_classes_of(model, batch).logits.float()).cpu()
        return found

    def numbers_of(self, texts: Iterable[Sequence[str]]) -> EncodedTexts:
        """Texts without labels, as numbers."""
        return encode_texts((pieces(each, self.data) for each in texts), self.reading)

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """Texts, or pairs if the recipe has two fields."""
        return (Pair,) if len(self.data.text) == 2 else (Text,)

    def inputs(self, path: str) -> list[Input]:
        """The texts of a file: in the fields of the recipe if it has any, else one a line.

        Where training took whole files, or lines as sentences, a file is one text, and a folder is
        all the files in it.
        """
        form = labelled_form(path)
        own = self.data.format or labelled_form(str(self.folder / each_file(self.data.train)[0]))
        if form == "folder" and own == "folder":
            return [text for file in files_in(path) for text in self.inputs(file)]
        if form == "line" and (own == "folder" or self.data.sentences == "lines"):
            return [Document("\n".join(text for _, (text,) in read_lines(path)))]
        if form in FORMS_WITH_FIELDS and not self.data.text:
            raise UserError(
                f"{path}: the recipe of this run names no fields, so its texts are lines; give a "
                ".txt file, a text a line"
            )
        if form in FORMS_WITH_FIELDS:
            source = LabelledText(path=path, form=form, text=self.data.text)
            return [_input_of(each.texts) for each in source.examples()]
        return [self.parse(text, f"{path}:{number}") for number, (text,) in read_lines(path)]

    def example(self) -> str:
        """The first text of the validation data; the texts of a pair have a tab between them."""
        first = next(iter(examples_of(self.data, self.folder, "validation")), None)
        return "" if first is None else "\t".join(" ".join(each.split()) for each in first.texts)

    def _parts(self, given: Input) -> tuple[str, ...]:
        """The text of an input, or the two of a pair."""
        check_kind(given, self.takes, "classify")
        return parts_of(given)

    def read(self, model: nn.Module, given: Input) -> Reading:
        """Run the model on one text; its axes are tokens, sentences and the whole text."""
        batch, tokens, sentences = self.labelled(self._parts(given))
        with eval_mode(model), torch.no_grad():
            logits = Classes.of(model, placed_with(model, batch)).logits.float()
        found = self.problem.title(self.problem.values(logits)[0].tolist(), self.labels)
        # In both orders, a class comes from two passes, and this is only one of them.
        title = given.title if self.data.both_orders else found
        return Reading(
            title=title,
            axes={
                "position": Tokens(labels=tuple(tokens)),
                "sentence": Sentences(labels=tuple(sentences)),
                "text": Sentences(labels=(title,)),
            },
        )

    def labelled(self, parts: Sequence[str]) -> tuple[Batch, list[str], list[str]]:
        """One text as a batch, the text of each of its tokens, and its sentences if it has any."""
        batch = self.numbers_of([parts]).gather(torch.tensor([0]))
        if self.template is not None:
            numbers, known = batch["tokens"][0].tolist(), self.tokeniser.vocabulary
            marks = {known: "<start>", known + 1: "<delimiter>", known + 2: "<extract>"}
            return batch, [marks.get(each) or self.tokeniser.token(each) for each in numbers], []
        held = pieces(parts, self.data)
        if self.reading.pairs:
            held = [[*held[0], EOS], *held[1:]]
        joined = [" ".join(words) for words in held]
        if self.tokeniser.kind == "word":
            tokens = [word for words in held for word in words]
        else:
            spans = [(text, self.tokeniser.offsets(text)) for text in joined]
            tokens = [text[begin:end] for text, each in spans for begin, end in each]
        read = batch["tokens"].shape[1], int(batch["parts"].max()) + 1  # what max_length leaves
        return batch, tokens[: read[0]], joined[: read[1]]

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """The class of each text, with the probability of every class; or its labels or number."""
        texts = [self._parts(each) for each in inputs]
        rows = self.values(model, self.numbers_of(texts)).tolist()
        shown = [each[0] if len(each) == 1 else list(each) for each in texts]
        return [
            self.problem.prediction(text, row, self.labels)
            for text, row in zip(shown, rows, strict=True)
        ]

    @property
    def adds_special_tokens(self) -> bool:
        """A start, a delimiter and an extract token, as GPT's classifiers have them."""
        return self.data.template == "gpt"

    @classmethod
    def checkpoint_data(cls, context: int) -> dict[str, object]:
        """Texts and labels in columns."""
        return {
            "train": "train.tsv",
            "text": ["text"],
            "label": "label",
            "tokeniser": "source",
            "words": "raw",
            "template": "exact",
            "max_length": context,
        }

    def checkpoint_problem(self) -> str | None:
        """Models of transformers read a pair in one order."""
        if not self.data.both_orders:
            return None
        return (
            "reads pairs in both orders and adds up their logits (data.both_orders), which no "
            "model of transformers does; train with data.both_orders=false to write it"
        )

    def notes(self) -> list[str]:
        """The classes, and how much padding the training batches hold."""
        waste = self.batches().padding_fraction(0)
        return [f"classes: {', '.join(self.labels)}", f"padding of training batches: {waste:.1%}"]

    def subject(self, split: Split, *, most: int, seed: int) -> Subject:
        """Texts, pairs or documents of a split; the class of each is predicted."""
        self._require_classes("an audit is of the class that is predicted")
        examples = self.numbers(split)
        classes = set(examples.classes.tolist())
        if len(classes) == 1:
            raise UserError(
                f"all {split} texts are {self.labels[classes.pop()]!r}; with one class there is "
                "nothing to explain"
            )
        every = examples.texts.lengths
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(every), generator=generator)[:most].sort().values
        batches = BucketBatches(
            [every[each] for each in chosen.tolist()],
            lambda numbers: examples.gather(chosen[numbers]),
            seed=0,
            batch=AUDIT_ROWS,
        )
        return Subject(
            batches=tuple(every_batch(batches)),
            predict=lambda model, batch: Classes.of(model, batch).logits,
            special=special_tokens(self.tokeniser),
            padding={"parts": PADDING_PART},
            units={"sentence": _part_numbers} if self.data.sentences != "none" else {},
            segments=_part_numbers if self.reading.pairs else None,
            targets="classes",
        )


def _part_numbers(batch: Batch) -> Int[Tensor, "B T"]:
    """The sentence, or the part of a pair, that each token belongs to."""
    return batch["parts"]


def _classes_of(model: nn.Module, batch: Batch) -> Classes:
    """The classes of texts, or of pairs.

    For a pair in both orders logits are added up, as Radford et al. (2018, section 3.3) do with the
    states under a linear layer.
    """
    swapped = {n.removeprefix("swapped_"): each for n, each in batch.items() if "swapped_" in n}
    output = Classes.of(model, batch)
    if not swapped:
        return output
    other = Classes.of(model, swapped)
    both = [each.auxiliary for each in (output, other) if each.auxiliary is not None]
    return Classes(
        output.logits + other.logits, auxiliary=torch.stack(both).sum() if both else None
    )


def _input_of(texts: Sequence[str]) -> Input:
    """A text, or a pair of two."""
    return Text(texts[0]) if len(texts) == 1 else Pair(texts[0], texts[1])


def _labels_in(data: Examples, folder: Path) -> tuple[str, ...]:
    """The classes of the training data in their order; for a regression, the name of its number."""
    if data.problem == "regression":
        return (data.label if isinstance(data.label, str) else "value",)
    known = {each for example in all_examples(data, folder) for each in _names(example.label)}
    if len(known) < 2 and data.problem == "single_label":
        raise UserError(f"{data.train}: all labels are {next(iter(known))!r}; two are needed")
    return tuple(sorted(known, key=_by_number))


def _names(label: Label | None) -> list[str]:
    """The classes that a label names: one, or each of several."""
    return [str(label)] if isinstance(label, str | float | int) else list(map(str, label or []))


def _by_number(label: str) -> tuple[int, float, str]:
    """Labels that are numbers in their order, then others in that of the alphabet.

    >>> sorted(["10", "b", "2"], key=_by_number)
    ['2', '10', 'b']
    """
    try:
        return (0, float(label), label)
    except ValueError:
        return (1, 0.0, label)
