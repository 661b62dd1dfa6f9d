"""Language modelling: predict the next token of a text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn

from regard.core.axes import Tokens
from regard.core.config import Config, Seed
from regard.core.errors import UserError
from regard.core.inputs import Input
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Batches, Carry, InTurns, Loss, Selectable, Stepper
from regard.data import (
    IGNORE,
    WHOLE_TEXT,
    ContinuousBatches,
    Corpus,
    StridedBatches,
    TextPart,
    TextSource,
    Tokeniser,
    WindowBatches,
    prepare_corpus,
    source_at,
    split_held_out,
    train_tokeniser,
)
from regard.data import load_tokeniser as load_tokeniser
from regard.data.cache import copy_stdin
from regard.data.text.files import STDIN
from regard.decode import GenerationRequest, TextPiece, stream_text
from regard.decode.sliding import SlidingStepper
from regard.outputs.next_token import NextTokens
from regard.tasks.abilities import (
    Choice,
    LastPrediction,
    Prediction,
    Reading,
    Subject,
    TokenScores,
)
from regard.tasks.drafts import language_draft
from regard.tasks.over_texts import check_window, warn_once
from regard.tasks.sampling import every_batch, take_rows
from regard.tasks.task import TOKENISER, Draft, FileOrShare, Files, Split, each_file, found, text_of
from regard.tasks.tokenised import Tokenised

_CHOICES = 20
"""How many next tokens a prediction names, the most probable first."""
_PROMPT = 16
"""How many tokens the example has."""


class Texts(Config):
    """The `[data]` table of a recipe: which texts, how numbered, how dealt out."""

    train: Files
    """The text to learn from: a file in the data folder; plain, TSV or JSONL, perhaps .gz.

    `-` is stdin, of which the cache keeps a copy.
    """
    validation: FileOrShare = 0.1
    """Another file, or the share of the training text's end to keep for it."""
    test: Files | None = None
    field: str | int | None = None
    """The column of a TSV or the field of a JSONL file that holds the text."""
    record: Literal["line", "paragraph"] = "line"
    """In a plain text, what `<eos>` ends: a line, or the lines up to a blank one."""
    origin: str = ""
    """Where a user gets these files; said when they are missing."""
    words: Literal["whitespace", "plain"] = "whitespace"
    """Words are what stands between blanks; or a running text is split, signs apart."""
    lowercase: bool = False
    tokeniser: Literal["word", "char", "byte", "bpe", "unigram"] = "word"
    vocabulary: PositiveInt | None = None
    """The most tokens there may be."""
    min_frequency: PositiveInt = 1
    batch: PositiveInt = 20
    window: PositiveInt = 35
    """How many tokens of each row a batch holds."""
    order: Literal["continuous", "random"] = "continuous"
    """Go on where the batch before ended, or draw windows from anywhere."""
    steps: PositiveInt | None = None
    """Batches that count as an epoch of drawn windows; else enough to cover the text."""
    evaluate_batch: PositiveInt = 10
    smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of each target's probability that is spread over the vocabulary while training."""
    stop_at_end: bool = False
    """Does what is written end where the model ends a document?"""
    stop_at: tuple[NonNegativeInt, ...] = ()
    """The numbers of tokens at which it ends as well."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _agree(self) -> "Texts":
        if self.steps is not None and self.order == "continuous":
            raise UserError('steps is for order="random"; a continuous text has its own length')
        if self.record == "paragraph" and self.field is not None:
            raise UserError('record="paragraph" is for plain texts; field names a column of others')
        return self

    def with_stdin_kept(self) -> "Texts":
        """The same texts; of one on stdin, the copy that is made now."""
        piped = [name for name in ("train", "validation", "test") if getattr(self, name) == STDIN]
        return self.model_copy(update=dict.fromkeys(piped, str(copy_stdin()))) if piped else self


@dataclass(frozen=True)
class LanguageModelling(Tokenised):
    """-log p of each next token, summed; batches have `tokens` and `targets`."""

    Data = Texts
    output = NextTokens
    usage = "regard generate {run} --prompt 'Once upon'"

    data: Texts
    context: int | None = None
    """How many tokens the model can read, if that is limited."""

    @classmethod
    def draft(cls, files: Sequence[str], given: Mapping[str, object]) -> Draft:
        """A first recipe for these training files."""
        return language_draft(files, given)

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "LanguageModelling":
        """The task on these data; its tokeniser is trained now if there is none yet."""
        assert isinstance(data, Texts)
        data = data.with_stdin_kept()
        if saved is None:
            return cls(data, folder, _new_tokeniser(data, folder))
        return cls(data, folder, load_tokeniser(saved / TOKENISER))

    def limited_to(self, context: int) -> "LanguageModelling":
        """Texts after which something is predicted are read from so many tokens before the end."""
        check_window(self.data.window, context)
        return replace(self, context=context)

    def data_kept(self, data: Config) -> Config:
        """With the file that a text on stdin was copied to."""
        return self.data

    def initialise(self, model: nn.Module) -> list[str]:
        """Nothing to give; but a model of turns needs a text that has some."""
        if isinstance(model, InTurns):
            self._require_turns(model.turn_end)
        return []

    def _require_turns(self, end: int) -> None:
        pieces = self.corpus("train").ids.split(1 << 20)
        if any(bool((piece.long() == end).any()) for piece in pieces):
            return
        line_end = self.tokeniser.encode("\n")
        lines = f", such as {line_end[0]} for the end of a line" if len(line_end) == 1 else ""
        raise UserError(
            f"the token model.end={end} ({self.tokeniser.token(end)}), which closes a turn, is "
            f'nowhere in {self.data.train}: take tokeniser = "word", which ends every line with '
            f"<eos>, or TSV or JSONL, or another model.end{lines}"
        )

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of a batch that goes on where the batch before it ended."""
        output = NextTokens.of(model, batch, carry)
        smoothing = self.data.smoothing if model.training else 0.0
        targets = batch["targets"]
        # That of a tokeniser from elsewhere may be a token of the text too.
        excluded = self.tokeniser.pad if smoothing and self.tokeniser.kind else None
        nll = output.nll(targets, smoothing=smoothing, excluded=excluded)
        return Loss(
            total=output.with_auxiliary(nll) if model.training else nll,
            items=int((targets != IGNORE).sum()),
            carry=output.carry,
        )

    @property
    def ends(self) -> frozenset[int]:
        """The tokens after which nothing more is written."""
        return frozenset({self.tokeniser.eos} if self.data.stop_at_end else ()) | frozenset(
            self.data.stop_at
        )

    @property
    def lowercases(self) -> bool:
        """As its recipe has it."""
        return self.data.lowercase

    def batches(self) -> ContinuousBatches | WindowBatches:
        """The training batches."""
        ids, data = self.corpus("train").ids, self.data
        if data.order == "continuous":
            return ContinuousBatches(ids, data.batch, data.window)
        return WindowBatches(ids, data.batch, data.window, data.seed, data.steps)

    def evaluation(self, split: Split) -> Batches:
        """The batches that measure: every target once, in order."""
        ids, data = self.corpus(split).ids, self.data
        if data.order == "continuous":
            return ContinuousBatches(ids, data.evaluate_batch, data.window)
        return StridedBatches(ids, data.evaluate_batch, data.window)

    def corpus(self, split: Split) -> Corpus:
        """One of the texts, tokenised."""
        path, part = self._place(split)
        return prepare_corpus(_sources_in(self.folder, path, self.data), self.tokeniser, part=part)

    def example(self) -> str:
        """How the validation text begins."""
        return self.tokeniser.decode(self.corpus("validation").ids[:_PROMPT].long()).strip()

    def _place(self, split: Split) -> tuple[Files, TextPart]:
        share = self.data.validation if isinstance(self.data.validation, float) else None
        if split == "train":
            return self.data.train, WHOLE_TEXT if share is None else split_held_out(share)[0]
        if split == "validation":
            if not isinstance(self.data.validation, float):
                return self.data.validation, WHOLE_TEXT
            return self.data.train, split_held_out(share or 0.1)[1]
        if self.data.test is None:
            raise UserError("this recipe has no test text; set data.test, or use the validation")
        return self.data.test, WHOLE_TEXT

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """What people call the mean loss per token."""
        return metrics(totals["loss"])

    def generate(
        self, model: nn.Module, prompt: str, request: GenerationRequest, stops: Sequence[str] = ()
    ) -> Iterator[TextPiece]:
        """Continuations of a prompt, piece by piece; the prompt is not repeated.

        An empty prompt stands for the end of a line.
        """
        stepper = _stepper(model)
        tokens = self.tokeniser.encode_prompt(prompt or "\n") or [self.tokeniser.eos]
        device = next(model.parameters()).device
        request = replace(request, device=device, stop=frozenset(request.stop) | self.ends)
        limit, wanted = self.context, request.max_tokens
        if limit is not None and wanted is None and len(tokens) > limit:
            wanted = limit
            request = replace(request, max_tokens=wanted)
        if limit is not None and wanted is not None and len(tokens) + wanted - 1 > limit:
            warn_once(f"the model reads {limit:,} tokens; of a longer text it reads the end")
            sliding = SlidingStepper(stepper, limit)
            yield from stream_text(sliding, [tokens], self.tokeniser, request, stops=stops)
            return
        yield from stream_text(stepper, [tokens], self.tokeniser, request, stops=stops)

    def token_scores(
        self, model: nn.Module, tokens: Sequence[int], alternatives: int = 0
    ) -> TokenScores:
        """Log p of each token after those before it, and of the most probable ones there."""
        if len(tokens) < 2:
            return TokenScores((None,) * len(tokens), (None,) * len(tokens))
        device = next(model.parameters()).device
        ids = torch.tensor([tokens], device=device)  # [1,T]
        with eval_mode(model), torch.no_grad():
            output = NextTokens.of(model, {"tokens": ids[:, :-1]}, None)
            if not alternatives:
                logs = output.log_probability(ids[:, 1:])[0]  # [T]
                return TokenScores((None, *logs.tolist()), (None,) * len(tokens))
            every = output.logits()[0].float().log_softmax(-1)  # [T,V]
        logs = every.gather(1, ids[0, 1:, None]).squeeze(1)  # [T]
        best = every.topk(min(alternatives, every.shape[1]))
        tops = [
            tuple(zip(numbers, values, strict=True))
            for numbers, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        return TokenScores((None, *logs.tolist()), (None, *tops))

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """The most probable next tokens after each text."""
        with eval_mode(model), torch.no_grad():
            return [self._next(_stepper(model), model, self._text(each)) for each in inputs]

    def _next(self, stepper: Stepper[Selectable], model: nn.Module, text: str) -> Prediction:
        ids = self._ids(text)
        tokens = torch.tensor([ids], device=next(model.parameters()).device)  # [1,T]
        logits, _ = stepper.step(tokens[:, -1], stepper.start({"tokens": tokens}))  # [1,V]
        best, numbers = logits[0].float().softmax(-1).topk(min(_CHOICES, logits.shape[1]))
        choices = tuple(
            Choice(self.tokeniser.decode([number]) or f"<token {number}>", probability)
            for number, probability in zip(numbers.tolist(), best.tolist(), strict=True)
        )
        shown = [{"token": each.text, "p": round(each.probability, 6)} for each in choices]
        return Prediction(
            text="",
            fields={"text": text, "next": shown},
            tokens=self._labels(text),
            choices=choices,
        )

    def read(self, model: nn.Module, given: Input) -> Reading:
        """Run the model on a text; each token attends to those before it."""
        text = self._text(given)
        tokens = torch.tensor([self._ids(text)], device=next(model.parameters()).device)
        with eval_mode(model), torch.no_grad():
            model({"tokens": tokens}, None)
        return Reading(title=text, axes={"position": Tokens(labels=self._labels(text))})

    def _text(self, given: Input) -> str:
        """The text of an input, which must not be empty."""
        text = text_of(given, "language_model")
        if not self.tokeniser.encode(text):
            raise UserError("the text is empty")
        return text

    def _ids(self, text: str) -> list[int]:
        """The tokens of a text, as many from its end as the model reads."""
        return self.tokeniser.encode_prompt(text)[-(self.context or 0) :]

    def _labels(self, text: str) -> tuple[str, ...]:
        """The part of the text that each of these tokens stands for."""
        frame = self.tokeniser.frames.single
        before, after = (
            [self.tokeniser.token(n) for n in each] for each in (frame.before, frame.after)
        )
        inner = (text[begin:end] for begin, end in self.tokeniser.offsets(text))
        return (*before, *inner, *after)[-(self.context or 0) :]

    @classmethod
    def checkpoint_data(cls, context: int) -> dict[str, object]:
        """A text, in windows as long as the context."""
        return {"train": "train.txt", "tokeniser": "bpe", "window": context}

    def subject(self, split: Split, *, most: int, seed: int) -> Subject:
        """Windows of a split; the token after each is predicted."""

        def windows() -> Iterator[Batch]:
            for batch in every_batch(self.evaluation(split)):
                tokens = batch["tokens"]
                yield {"tokens": tokens, "lengths": torch.full((len(tokens),), tokens.shape[1])}

        def last(batch: Batch) -> Int[Tensor, "B"]:
            return batch["lengths"].clamp_min(1) - 1

        def predict(model: nn.Module, batch: Batch) -> Float[Tensor, "B V"]:
            logits = NextTokens.of(model, {"tokens": batch["tokens"]}).logits()
            return logits[torch.arange(len(logits), device=logits.device), last(batch)]

        return Subject(
            batches=tuple(take_rows(windows(), most)), predict=predict, queries={"position": last}
        )

    def last_prediction(self, model: nn.Module, given: Input) -> LastPrediction:
        """The token that a model predicts after a text."""
        text = self._text(given)
        tokens = torch.tensor([self._ids(text)], device=next(model.parameters()).device)

        def log_probability() -> Float[Tensor, ""]:
            logits = NextTokens.of(model, {"tokens": tokens}).logits()[0, -1]
            return logits.log_softmax(0).max()

        return LastPrediction(
            axis=Tokens(labels=self._labels(text)), inputs=tokens, log_probability=log_probability
        )


def _stepper(model: nn.Module) -> Stepper[Selectable]:
    """A model that can generate."""
    if not isinstance(model, Stepper):
        raise UserError(f"a {type(model).__name__} cannot generate: it has no start and step")
    return model


def _new_tokeniser(data: Texts, folder: Path) -> Tokeniser:
    """A tokeniser trained on the training text."""
    sources = _sources_in(folder, data.train, data)
    texts = (text for each in sources for record in each.records() for text in record.texts)
    return train_tokeniser(data.tokeniser, texts, data.vocabulary, data.min_frequency)


def _source_in(folder: Path, path: str, data: Texts) -> TextSource:
    """A text in the data folder."""
    place = str(found(folder, path, data.origin))
    source = replace(source_at(place, data.field), words=data.words, lowercase=data.lowercase)
    return replace(source, form="paragraphs") if data.record == "paragraph" else source


def _sources_in(folder: Path, paths: Files, data: Texts) -> list[TextSource]:
    """Texts in the data folder."""
    return [_source_in(folder, path, data) for path in each_file(paths)]


def metrics(loss: float) -> dict[str, float]:
    """What people call the mean loss per token, in nats.

    >>> {name: round(value, 3) for name, value in metrics(4.0).items()}
    {'loss': 4.0, 'perplexity': 54.598, 'bits': 5.771}
    """
    return {"loss": loss, "perplexity": exp(min(loss, 700.0)), "bits": loss / log(2)}
