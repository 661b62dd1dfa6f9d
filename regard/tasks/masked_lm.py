"""Masked language modelling: guess words that are hidden, and whether a passage follows another.

Documents come from files (data/text/documents.py), batches from data/text/pretraining.py. A model
returns `MaskedLMOutput` (outputs/masked_lm.py): the word at each position, and whether the second
part follows the first. The loss is that of BERT: the mean over masked words plus the mean over
pairs (Devlin et al. 2019).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp
from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import BeforeValidator, Field, PositiveInt, model_validator
from torch import Tensor, nn

from regard.core.axes import Tokens
from regard.core.config import Config, Seed
from regard.core.errors import UserError
from regard.core.inputs import Input, Pair, Text, check_kind
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Carry, Loss
from regard.data import IGNORE, pad_rows
from regard.data import load_tokeniser as load_tokeniser
from regard.data.batch import random_permutation
from regard.data.text.documents import (
    DocumentSource,
    TokenisedDocuments,
    document_sources,
    tokenise_documents,
)
from regard.data.text.encoding import PADDING_PART
from regard.data.text.masking import Masking
from regard.data.text.pipeline import MASK
from regard.data.text.pretraining import PretrainingBatches, PretrainingInputs
from regard.data.text.special_tokens import InputTemplate
from regard.outputs.masked_lm import MaskedLMOutput, masked_in, pairs_in
from regard.tasks.abilities import Choice, Prediction, Reading
from regard.tasks.over_texts import check_window, learnt, placed_with
from regard.tasks.task import TOKENISER, Split, found, parts_of
from regard.tasks.tokenised import Tokenised

_EXAMPLE_TOKENS = 24
"""How many tokens the example has."""
_BEST = 5
"""How many words are named for a hidden one."""


def _several(given: object) -> object:
    """Files as a tuple, also if it is only one."""
    return (
        (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list) else given
    )


_Files = Annotated[tuple[str, ...], BeforeValidator(_several)]


class DocumentTexts(Config):
    """The `[data]` table of a recipe: which documents, how numbered, what is hidden."""

    train: _Files
    """The documents to learn from: files, archives or folders in the data folder."""
    validation: _Files | float = 0.02
    """Others, or the share of the documents to keep for it."""
    test: _Files | None = None
    field: str | int | None = None
    """The column of TSV or the field of JSONL files that holds a document."""
    document_boundary: Literal["blank_line", "line", "file", "archive"] | None = None
    """What sets documents apart; without it, what the names tell."""
    sentences: Literal["lines", "punctuation"] = "lines"
    """Sentences are lines, or end at . ! ? too."""
    origin: str = ""
    """Where a user gets these files; said when they are missing."""
    tokeniser: Literal["wordpiece", "wordpiece_cased", "source"] = "wordpiece"
    """Learnt from the documents; or that of the run the model begins with."""
    vocabulary: PositiveInt | None = None
    """The most tokens there may be."""
    min_frequency: PositiveInt = 1
    window: PositiveInt = 128
    """The most tokens of an input, marks included."""
    next_sentence: bool = True
    """Inputs have two parts, of which the second may be from another document."""
    short: float = Field(0.1, ge=0, lt=1)
    """How many inputs aim at fewer tokens."""
    share: float = Field(0.15, gt=0, lt=1)
    """How many tokens are chosen to be guessed."""
    masked: float = Field(0.8, ge=0, le=1)
    """How many of those become [MASK]."""
    swapped: float = Field(0.1, ge=0, lt=1)
    """How many of those become another token."""
    whole_words: bool = False
    """Choose words instead of pieces."""
    copies: PositiveInt | None = None
    """After so many epochs inputs and what is hidden come again (static masking); None draws them
    anew each time."""
    batch: PositiveInt = 32
    evaluate_batch: PositiveInt = 32
    seed: Seed = 0

    @model_validator(mode="after")
    def _agree(self) -> "DocumentTexts":
        if isinstance(self.validation, float) and not 0 < self.validation < 1:
            raise UserError(
                f"validation={self.validation} must be files, or a share between 0 and 1"
            )
        if self.masked + self.swapped > 1 + 1e-9:
            raise UserError(
                f"masked={self.masked} and swapped={self.swapped} are shares of the chosen tokens: "
                "together at most 1"
            )
        return self


@dataclass(frozen=True)
class MaskedLM(Tokenised):
    """-log p of hidden words and of whether a passage follows; items are hidden words."""

    Data = DocumentTexts
    output = MaskedLMOutput
    usage = "echo 'What a [MASK] film.' | regard predict {run}"

    data: DocumentTexts

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "MaskedLM":
        """The task on these documents; its tokeniser is trained now if there is none yet."""
        assert isinstance(data, DocumentTexts)
        if saved is not None:
            return cls(data, folder, load_tokeniser(saved / TOKENISER))
        texts = (
            record.text
            for source in _sources_of(data, folder, data.train)
            for record in source.records()
        )
        tokeniser = learnt(data.tokeniser, texts, data.vocabulary, data.min_frequency)
        return cls(data, folder, tokeniser)

    @property
    def template(self) -> InputTemplate:
        """What stands around inputs."""
        if self.tokeniser.template is None:
            raise UserError(
                "the tokeniser of this run puts no marks around a text, so it is none of a masked "
                'language model; take tokeniser = "wordpiece"'
            )
        return self.tokeniser.template

    @cached_property
    def _trained_on(self) -> TokenisedDocuments:
        return tokenise_documents(
            list(_sources_of(self.data, self.folder, self.data.train)), self.tokeniser
        )

    def documents(self, split: Split) -> TokenisedDocuments:
        """The documents of a split; a share of the training documents is drawn by the seed."""
        data = self.data
        if split == "test" and data.test is None:
            raise UserError("this recipe has no test documents; set data.test")
        named = {"train": data.train, "validation": data.validation, "test": data.test}[split]
        if split != "train" and isinstance(named, tuple):
            return tokenise_documents(list(_sources_of(data, self.folder, named)), self.tokeniser)
        if not isinstance(data.validation, float):
            return self._trained_on
        every = self._trained_on
        order = random_permutation(len(every), data.seed, 0)
        kept = max(1, round(data.validation * len(every)))
        if len(every) - kept < 1:
            raise UserError(f"{data.train[0]}: too few documents to keep some for validation")
        chosen = order[:kept] if split == "validation" else order[kept:]
        return every.only(chosen.sort().values)

    def passages(self, split: Split) -> PretrainingInputs:
        """How the documents of a split become inputs."""
        data, tokeniser = self.data, self.tokeniser
        return PretrainingInputs(
            documents=self.documents(split),
            template=self.template,
            pad=tokeniser.pad,
            masking=Masking(
                mask=tokeniser.mask,
                special=tokeniser.special,
                continues=tokeniser.continues if data.whole_words else None,
                share=data.share,
                masked=data.masked,
                swapped=data.swapped,
            ),
            window=data.window,
            next_sentence=data.next_sentence,
            short=data.short,
            seed=data.seed,
        )

    @cached_property
    def _batches(self) -> PretrainingBatches:
        return PretrainingBatches(self.passages("train"), self.data.batch, self.data.copies)

    def batches(self) -> PretrainingBatches:
        """The training batches."""
        return self._batches

    def evaluation(self, split: Split) -> PretrainingBatches:
        """The batches that measure: every input of the first epoch once."""
        return PretrainingBatches(self.passages(split), self.data.evaluate_batch)

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The mean over hidden words and that over pairs, times the number of hidden words.

        Of a batch that several processes share, both numbers are those of the whole batch, so that
        the losses of all processes add up to the loss of one.
        """
        output, targets = MaskedLMOutput.of(model, batch, carry), batch["targets"]
        where = targets != IGNORE
        items, hidden, words = int(where.sum()), masked_in(batch), output.masked_words()
        pairs, apart = pairs_in(batch) if self.data.next_sentence else 0, batch["random_next"]
        nll = output.next_sentence_nll(apart) if pairs else None
        beside = right = torch.zeros((), device=targets.device)
        if nll is not None and output.next_sentence is not None:
            beside = nll / pairs
            right = (output.next_sentence.argmax(1) == apart).sum()
        if model.training:
            total = words.nll(targets)
            counts = {"words": total.item()}
            if nll is not None:
                counts["next_accuracy"] = float(right) / pairs * hidden
            return Loss(total=total + beside * hidden, items=items, counts=counts)
        logits = words.at(where).logits()[0]  # [N,V]
        total = F.cross_entropy(logits, targets[where], reduction="sum")
        guessed = (logits.argmax(1) == targets[where]).sum()
        counts = {"words": total.item(), "guessed": float(guessed)}
        if nll is not None:
            counts |= {"pairs": float(pairs), "right": float(right)}
        return Loss(total=total + beside * hidden, items=items, counts=counts)

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Of hidden words the mean loss, its exponential and how many were guessed; of pairs too.

        The share of right pairs is over pairs, not over words, which a batch has more or fewer of.
        """
        figures = {
            "loss": totals["loss"],
            "masked_loss": totals["words"],
            "perplexity": exp(min(totals["words"], 700.0)),
            "masked_accuracy": totals["guessed"],
        }
        if totals.get("pairs"):
            figures["next_accuracy"] = totals["right"] / totals["pairs"]
        return figures

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """A text with masked words, or a pair of texts."""
        return (Text, Pair)

    def example(self) -> str:
        """How a document of the validation data begins, with one word masked."""
        documents = self.documents("validation")
        numbers = documents.tokens(torch.arange(min(_EXAMPLE_TOKENS, int(documents.lengths[0]))))
        words = self.tokeniser.decode(numbers).split()
        words[len(words) // 2 : len(words) // 2 + 1] = [MASK]
        return " ".join(words)

    def _parts(self, given: Input) -> tuple[str, ...]:
        """The text of an input, or the two of a pair."""
        check_kind(given, self.takes, "masked_lm")
        return tuple(self._masked(part) for part in parts_of(given))

    def _masked(self, text: str) -> str:
        """A text in which hidden words are written as here: RoBERTa writes `<mask>`."""
        own = self.tokeniser.special_token(MASK)
        return text if own is None else text.replace(own, MASK)

    def framed(self, texts: Sequence[str]) -> tuple[list[int], list[int]]:
        """A text with marks around it, and the part of each token."""
        own = self.tokeniser.special_token(MASK) or MASK
        written = [self._masked(text).replace(MASK, own) for text in texts]
        held = self.tokeniser.encode_masked(written)
        tokens, parts = self.template.apply(held, self.data.window)
        if sum(text.count(own) for text in written) and tokens.count(self.tokeniser.mask) < sum(
            row.count(self.tokeniser.mask) for row in held
        ):
            raise UserError(
                f"{texts[0][:60]!r}: a masked word is behind the {self.data.window} tokens, marks "
                "included, that this model reads; shorten the text"
            )
        return tokens, parts

    def limited_to(self, context: int) -> "MaskedLM":
        """Its windows must fit."""
        check_window(self.data.window, context)
        return self

    def encode(self, inputs: Sequence[Input]) -> Batch:
        """Texts as a batch; only what is masked in the text is masked."""
        return self._batch([self._parts(each) for each in inputs])

    def _batch(self, texts: Sequence[Sequence[str]]) -> Batch:
        framed = [self.framed(each) for each in texts]
        return {
            "tokens": pad_rows([tokens for tokens, _ in framed], self.tokeniser.pad),
            "lengths": torch.tensor([len(tokens) for tokens, _ in framed]),
            "parts": pad_rows([parts for _, parts in framed], PADDING_PART),
        }

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """The most probable words for each mask; for two texts without one, does the second follow?

        A model without the head for it refuses.
        """
        texts = [_with_a_question(self._parts(each)) for each in inputs]
        predictions: list[Prediction] = []
        for first in range(0, len(texts), self.data.evaluate_batch):
            some = texts[first : first + self.data.evaluate_batch]
            batch = placed_with(model, self._batch(some))
            with eval_mode(model), torch.no_grad():
                output = MaskedLMOutput.of(model, batch)
                best: Iterator[list[tuple[str, float]]] = iter(())
                if output.words is not None:
                    where = batch["tokens"] == self.tokeniser.mask
                    guessed = output.words.at(where).logits()[0].softmax(1)  # [N,V]
                    best = iter([self._named(row) for row in guessed.cpu()])
            scores = output.next_sentence
            follows = [None] * len(some) if scores is None else scores.softmax(1)[:, 0].tolist()
            for text, likely in zip(some, follows, strict=True):
                hidden = sum(each.count(MASK) for each in text)
                if hidden and output.words is not None:
                    predictions.append(_filled(text, [next(best) for _ in range(hidden)]))
                elif len(text) == 2 and likely is not None:
                    predictions.append(_following(text, likely))
                else:
                    raise _without_head(
                        text, words=output.words is not None, follows=scores is not None
                    )
        return predictions

    def _named(self, likely: Tensor) -> list[tuple[str, float]]:
        """The most probable tokens that are not special, and their probabilities."""
        words = torch.where(self.tokeniser.special, 0.0, likely)
        top = words.topk(min(_BEST, int((~self.tokeniser.special).sum())))
        named = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return [(self.tokeniser.decode([number]).strip(), round(p, 6)) for number, p in named]

    def read(self, model: nn.Module, given: Input) -> Reading:
        """Run the model on one text; its axis is tokens, special ones included."""
        batch = self.encode([given])
        with eval_mode(model), torch.no_grad():
            model(placed_with(model, batch))
        tokens = (self.tokeniser.token(number) for number in batch["tokens"][0].tolist())
        return Reading(title=given.title, axes={"position": Tokens(labels=tuple(tokens))})

    @classmethod
    def checkpoint_data(cls, context: int) -> dict[str, object]:
        """Documents, in windows as long as the context."""
        return {"train": ["train.txt"], "tokeniser": "source", "window": context}

    def notes(self) -> list[str]:
        """What was learnt from, and how much padding the training batches hold."""
        documents = self.documents("train")
        return [
            f"{len(documents):,} documents of {int(documents.begins[-1]):,} tokens",
            f"padding of training batches: {self.batches().padding_fraction(0):.1%}",
        ]


def _with_a_question(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The texts, if there is something to predict."""
    if len(texts) == 1 and MASK not in texts[0]:
        raise UserError(
            f"{texts[0][:60]!r}: there is nothing to predict; write {MASK} for a masked word, or "
            "two texts separated by a tab for whether the second follows the first"
        )
    return texts


def _filled(texts: Sequence[str], best: Sequence[Sequence[tuple[str, float]]]) -> Prediction:
    """A text with its masks replaced, and the most probable words for each mask."""
    filled, left = "\t".join(texts), iter(best)
    while MASK in filled:
        filled = filled.replace(MASK, next(left)[0][0], 1)
    shown = ["  ".join(f"{word} {p:.3f}" for word, p in each) for each in best]
    fields = {
        "text": "\t".join(texts),
        "filled": filled,
        "masks": [[{"word": word, "p": p} for word, p in each] for each in best],
    }
    choices = tuple(Choice(word, p) for word, p in best[0]) if len(best) == 1 else ()
    return Prediction(text="\t".join([filled, *shown]), fields=fields, choices=choices)


def _following(texts: Sequence[str], likely: float) -> Prediction:
    """Whether the second text follows the first, and the probability of that."""
    label, p = ("follows", likely) if likely >= 0.5 else ("does not follow", 1 - likely)
    fields = {"text": "\t".join(texts), "follows": likely >= 0.5, "p": round(likely, 6)}
    return Prediction(text=f"{label}\t{p:.4f}", fields=fields)


def _without_head(texts: Sequence[str], *, words: bool, follows: bool) -> UserError:
    """The error for an input that a model has no output layer for."""
    if words:
        what = f"only words for {MASK}, not whether a text follows another"
    elif follows:
        what = "only whether the second of two texts, separated by a tab, follows the first"
    else:
        what = (
            "nothing, since it is an encoder alone: show its attention with `regard look`, or "
            "start a recipe from it with model.source"
        )
    return UserError(f"{texts[0][:60]!r}: this model predicts {what}")


def _sources_of(
    data: DocumentTexts, folder: Path, names: Sequence[str]
) -> Iterator[DocumentSource]:
    """Where the documents of some files are."""
    for name in names:
        place = str(found(folder, name, data.origin))
        yield from document_sources(
            place, data.field, boundary=data.document_boundary, sentences=data.sentences
        )
