"""Translation: write the target of a source. Dates to ISO, German to English, questions to answers.

Pairs come from files or are generated; batches are those of data/text/parallel.py. A model returns
`NextTokens` (outputs/next_token.py) and, as a Stepper, writes outputs by beam search, which
translation_metrics.py compares with references.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.axes import Tokens
from regard.core.config import Config
from regard.core.errors import UserError, choose
from regard.core.inputs import Input, Text
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Carry, Loss, Stepper
from regard.data import IGNORE, BucketBatches, Tokeniser
from regard.data.text.alignment import Links, hard, merged, words_of
from regard.data.text.parallel import EncodedPairs, PairCounts, PairTokenisers, encode_pairs
from regard.data.text.synthetic import TextPair
from regard.decode.beam import Beam
from regard.decode.sentences import decode
from regard.outputs.next_token import NextTokens
from regard.tasks.abilities import (
    LastPrediction,
    LengthBand,
    Output,
    Outputs,
    Prediction,
    Reading,
    Subject,
)
from regard.tasks.drafts import translation_draft
from regard.tasks.over_texts import warn_once
from regard.tasks.sampling import every_batch, sample_positions, special_tokens, take_rows
from regard.tasks.task import Draft, OpenTask, Split, text_of
from regard.tasks.translation_data import (
    Pairs,
    new_tokenisers,
    readable,
    saved_tokenisers,
    texts_of,
)
from regard.tasks.translation_metrics import BANDS, METRICS, by_length, score, signature

_log = logging.getLogger(__name__)

_BATCH = 64
"""Pairs to a batch unless the recipe says otherwise."""


_END = "<eos>"
"""The label of the end of a sentence."""


@dataclass(frozen=True)
class TranslatedSplit:
    """The translations of a whole split."""

    sources: list[str]
    outputs: list[str]
    references: list[str]


@dataclass(frozen=True)
class Translation(OpenTask):
    """-log p of each token of the target, summed; batches are those of data/text/parallel.py."""

    Data = Pairs
    output = NextTokens
    usage = "regard translate {run} < source.txt > target.txt"

    data: Pairs
    folder: Path
    """Where the files of the data are."""
    numbering: PairTokenisers
    """From text to tokens, both sides."""
    context: int | None = None
    """How many tokens of a side the model can read, <eos> included, if that is limited."""

    @classmethod
    def draft(cls, files: Sequence[str], given: Mapping[str, object]) -> Draft:
        """A first recipe for these training files."""
        return translation_draft(files, given)

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "Translation":
        """The task on these data; its tokenisers are trained now if there are none yet."""
        assert isinstance(data, Pairs)
        sides = new_tokenisers(data, folder) if saved is None else saved_tokenisers(data, saved)
        return cls(data, folder, PairTokenisers(*sides, copies=data.copies))

    def save(self, folder: Path) -> None:
        """Leave the tokenisers."""
        self.numbering.target.save(folder / "tokenizer.json")
        if not self.data.joint:
            self.numbering.source.save(folder / "source.tokenizer.json")

    @property
    def sizes(self) -> dict[str, int]:
        """Both vocabularies."""
        return {
            "vocabulary": self.numbering.target.vocabulary,
            "source_vocabulary": self.numbering.source.vocabulary,
        }

    def grouped(self, files: list[str]) -> list[list[str]]:
        """Sources with their targets; a TSV or JSONL has both."""
        if self.data.fields is not None:
            return super().grouped(files)
        if len(files) % 2:
            raise UserError(f"files come in pairs, source and target; {len(files)} given")
        return [files[place : place + 2] for place in range(0, len(files), 2)]

    @property
    def splits(self) -> tuple[Split, ...]:
        """Files to test on are not always there."""
        tested = self.data.generate is not None or self.data.test is not None
        return ("train", "validation", *(("test",) if tested else ()))

    @property
    def reads(self) -> Tokeniser:
        """The tokens of its sources."""
        return self.numbering.source

    @property
    def lowercases(self) -> bool:
        """As its recipe has it."""
        return self.data.lowercase

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """Texts."""
        return (Text,)

    @property
    def tokenisers(self) -> tuple[Tokeniser, ...]:
        """Of the source and of the target."""
        return self.numbering.source, self.numbering.target

    @classmethod
    def checkpoint_data(cls, context: int) -> dict[str, object]:
        """Sources and targets, line by line."""
        return {
            "train": ["train.source", "train.target"],
            "validation": ["validation.source", "validation.target"],
            "tokeniser": "bpe",
        }

    @cached_property
    def _training(self) -> tuple[EncodedPairs, PairCounts]:
        pairs = self.texts("train")
        limits = (self.data.max_length, None if self.context is None else self.context - 1)
        longest = min((each for each in limits if each is not None), default=None)
        return encode_pairs(pairs, self.numbering, longest=longest)

    def limited_to(self, context: int) -> "Translation":
        """Longer pairs are not learnt from; what is measured and translated is truncated."""
        return replace(self, context=context)

    def _fitting(self, text: str, where: str, tokeniser: Tokeniser) -> str:
        """As much of a text as the model can read; a warning if that is not all."""
        if self.context is None or len(text.encode()) < self.context:
            return text
        spans = tokeniser.offsets(text)
        if len(spans) < self.context:
            return text
        warn_once(
            f"{where}: {len(spans):,} tokens, of which the model reads {self.context - 1:,}; the "
            "rest is left out, here and of longer ones"
        )
        kept = text[: spans[self.context - 2][1]]
        while len(tokeniser.offsets(kept)) >= self.context:  # tokens may differ at the new end
            kept = kept[:-1]
        return kept

    @property
    def kept(self) -> PairCounts:
        """How many pairs are learnt from, and how many are not and why."""
        return self._training[1]

    def texts(self, split: Split) -> Iterator[TextPair]:
        """The pairs of a split as the tokenisers see them."""
        for source, target in texts_of(self.data, self.folder, split):
            yield readable(source, self.data), readable(target, self.data)

    def example(self) -> str:
        """The first source of the validation data."""
        return next((source for source, _ in self.texts("validation")), "")

    def batches(self) -> BucketBatches:
        """The training batches."""
        pairs, kept = self._training
        if not len(pairs):
            raise UserError(f"there is nothing to learn from: {kept}; raise max_length")
        batch, tokens = self.data.batch, self.data.tokens_per_batch
        return BucketBatches(
            pairs.lengths,
            pairs.gather,
            seed=self.data.seed,
            batch=_BATCH if batch is None and tokens is None else batch,
            tokens_per_batch=tokens,
        )

    def evaluation(self, split: Split) -> BucketBatches:
        """The batches that measure: every pair once, empty and long ones too."""
        sides = (self.numbering.source, self.numbering.target)
        fitting = (
            tuple(
                self._fitting(text, f"{split}:{number}", side)
                for text, side in zip(pair, sides, strict=True)
            )
            for number, pair in enumerate(self.texts(split), start=1)
        )
        pairs, _ = encode_pairs(((a, b) for a, b in fitting), self.numbering, whole=True)
        return BucketBatches(pairs.lengths, pairs.gather, seed=0, batch=self.data.evaluate_batch)

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of a batch; a model may add to it what it is to learn besides."""
        output = NextTokens.of(model, batch, carry)
        smoothing = self.data.smoothing if model.training else 0.0
        targets = batch["targets"]
        pad = self.numbering.target.pad
        nll = output.nll(targets, smoothing=smoothing, excluded=pad)
        total = output.with_auxiliary(nll) if model.training else nll
        return Loss(total=total, items=int((targets != IGNORE).sum()))

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The mean loss per target token, and its perplexity."""
        return {"loss": totals["loss"], "perplexity": exp(min(totals["loss"], 700.0))}

    def score(self, model: nn.Module, split: Split) -> dict[str, float]:
        """Translate a split and compare: BLEU, say."""
        return self.compared(self.outputs(model, split)) if self.data.scores else {}

    def score_outputs(
        self, translate: Callable[[Sequence[Input]], Sequence[str]], split: Split
    ) -> dict[str, float]:
        """The same for what a function writes."""
        return self.compared(self.outputs_by(translate, split)) if self.data.scores else {}

    def compared(self, done: TranslatedSplit) -> dict[str, float]:
        """Every score of the recipe."""
        lowercase = self.data.lowercase
        return {
            name: score(name, done.outputs, done.references, lowercase=lowercase).value
            for name in self.data.scores
        }

    def signatures(self) -> dict[str, str]:
        """What exactly each score is."""
        return {name: signature(name, lowercase=self.data.lowercase) for name in self.data.scores}

    def notes(self) -> list[str]:
        """The signature of each score, and how many training pairs are left out."""
        scores = [f"{name}: {signature}" for name, signature in self.signatures().items()]
        return [*scores, f"training pairs: {self.kept}"]

    def outputs(self, model: nn.Module, split: Split) -> TranslatedSplit:
        """The translations of a whole split; references are as they stand in the file."""

        def translated(inputs: Sequence[Input]) -> list[str]:
            return [each.text for each in self.translate(model, inputs, name=split)]

        return self.outputs_by(translated, split)

    def outputs_by(
        self, translate: Callable[[Sequence[Input]], Sequence[str]], split: Split
    ) -> TranslatedSplit:
        """The same for what a function writes."""
        pairs = list(texts_of(self.data, self.folder, split))
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        return TranslatedSplit(sources, list(translate([Text(each) for each in sources])), targets)

    @property
    def scores(self) -> tuple[str, ...]:
        """Those of the recipe, then all others."""
        return tuple(dict.fromkeys((*self.data.scores, *METRICS)))

    def by_length(
        self, model: nn.Module, split: Split, name: str = "bleu", bands: Sequence[int] = BANDS
    ) -> list[LengthBand]:
        """The score of sources of similar length, the shortest first."""
        choose("score", name, METRICS)
        done = self.outputs(model, split)
        return by_length(
            done.sources,
            done.outputs,
            done.references,
            name=name,
            lowercase=self.data.lowercase,
            bands=bands,
        )

    def translate(
        self,
        model: nn.Module,
        inputs: Sequence[Input],
        *,
        name: str = "input",
        numbers: Sequence[int] | None = None,
        beam: Beam | None = None,
        begins: Sequence[str] | None = None,
        weights: Callable[[object], torch.Tensor] | None = None,
    ) -> list[Outputs]:
        """Translations of each text, in their order; an empty text has none.

        `name` is what warnings call the texts, a file say, and `numbers` their lines in it. `beam`
        replaces the search of the recipe. Each translation starts with its text in `begins`. A
        search with coverage needs `weights`, see decode/search.py.
        """
        if not isinstance(model, Stepper):
            raise UserError(f"a {type(model).__name__} cannot translate: it has no start and step")
        counted = range(1, len(inputs) + 1) if numbers is None else numbers
        texts = [
            self._fitting(self._text(each), f"{name}:{number}", self.numbering.source)
            for each, number in zip(inputs, counted, strict=True)
        ]
        places = [place for place, text in enumerate(texts) if text.strip()]
        given = [""] * len(texts) if begins is None else [readable(b, self.data) for b in begins]
        pairs = [(texts[place], given[place]) for place in places]
        asked, _ = encode_pairs(pairs, self.numbering, whole=True)
        called = [counted[place] for place in places]
        lengths, beam = self._cut_lengths(asked, called, name), beam or self.beam
        prefixes = [asked.target[each][:-1].tolist() for each in range(len(places))]
        for number, prefix, length in zip(called, prefixes, lengths, strict=True):
            if len(prefix) > beam.longest(length):
                raise UserError(
                    f"{name}:{number}: the beginning has {len(prefix)} tokens, but only "
                    f"{beam.longest(length)} may be written: raise max_length"
                )
            if beam.eos in prefix:
                raise UserError(f"{name}:{number}: the beginning has the mark of the end in it")
        device = next(model.parameters()).device

        def read(some: Sequence[int]) -> Batch:
            batch = asked.gather(torch.tensor(some))
            batch = _cut(batch, torch.tensor([lengths[each] for each in some]), self.numbering)
            return {key: rows.to(device) for key, rows in batch.items()}

        with eval_mode(model):
            found = decode(
                model,
                read,
                lengths,
                beam,
                max_rows=self.data.evaluate_batch * beam.width,
                prefixes=prefixes,
                weights=weights,
            )
        best = dict(zip(places, found, strict=True))
        return [
            Outputs(
                Text(text),
                tuple(Output(self.spelled(h.tokens, text), h) for h in best.get(place, ())),
            )
            for place, text in enumerate(texts)
        ]

    def _text(self, given: Input) -> str:
        """The text of an input as its tokeniser reads it."""
        return readable(text_of(given, "translate"), self.data)

    @property
    def read_limit(self) -> int | None:
        """The maximum length, if longer sources are cut."""
        return self.data.max_length if self.data.too_long == "cut" else None

    @property
    def search_batch(self) -> int:
        """How many texts are searched together."""
        return self.data.evaluate_batch

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """The greedy translation of each text, in which an intervention shows at once."""
        greedy = replace(self.beam, width=1, n_best=1, groups=1)
        return [
            Prediction(
                text=each.text,
                fields={"source": each.source.title, "translation": each.text},
                tokens=tuple(self.source_axis(each.source))[:-1],
                labels=tuple(self.pieces(each)),
            )
            for each in self.translate(model, inputs, beam=greedy)
        ]

    def read(
        self,
        model: nn.Module,
        given: Input,
        weights: Callable[[object], torch.Tensor] | None = None,
    ) -> Reading:
        """Search the best translation; each of its tokens attends to those of the source."""
        (outputs,) = self.translate(model, [given], weights=weights)
        if not outputs.outputs:
            raise UserError("the text is empty")
        return Reading(
            title=given.title,
            axes={
                "source": self.source_axis(given),
                "target": Tokens(labels=(*self.pieces(outputs), _END)),
            },
            rows=tuple(outputs.outputs[0].hypothesis.rows),
            beams=self.beam.width,
        )

    def pieces(self, outputs: Outputs, number: int = 0) -> list[str]:
        """The text of each token of one output."""
        if not outputs.outputs:
            return []
        tokens = outputs.outputs[number].hypothesis.tokens
        return [self.spelled([token], outputs.source.title) for token in tokens]

    def source_axis(self, given: Input) -> Tokens:
        """The tokens that are read of a source, and the end."""
        text = self._fitting(self._text(given), "the source", self.numbering.source)
        parts = [text[begin:end] for begin, end in self.numbering.source.offsets(text)]
        most = self.data.max_length if self.data.too_long == "cut" else None
        return Tokens(labels=(*parts[:most], _END))

    def pair_batches(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[list[int], Batch]]:
        """Sources and their translations in batches of similar length, with their numbers."""
        texts = [
            (readable(source, self.data), readable(target, self.data)) for source, target in pairs
        ]
        known, _ = encode_pairs(texts, self.numbering, whole=True)
        there = [place for place, sides in enumerate(texts) if all(side.strip() for side in sides)]
        there.sort(key=known.lengths.__getitem__)
        for begin in range(0, len(there), self.data.evaluate_batch):
            places = there[begin : begin + self.data.evaluate_batch]
            yield places, known.gather(torch.tensor(places))

    def link_words(self, weights: Float[Tensor, "T S"], source: str, target: str) -> Links:
        """Each target word with the source word that it attends to most."""
        sides = zip((source, target), self.tokenisers, strict=True)
        return hard(
            merged(weights, *(words_of(side, readable(text, self.data)) for text, side in sides))
        )

    def link_output(
        self, weights: Float[Tensor, "T S"], outputs: Outputs, number: int = 0
    ) -> Links:
        """Each word of a translation with the source word that it attends to most."""
        source = outputs.source.title
        columns = words_of(self.numbering.source, source)[: weights.shape[1]]
        tokens = outputs.outputs[number].hypothesis.tokens
        return hard(merged(weights, columns, self.target_words(tokens, source)))

    def target_words(self, tokens: Sequence[int], source: str) -> list[int | None]:
        """For each token of an output the number of its word; whitespace separates words."""
        numbers: list[int | None] = []
        written, count = "", 0
        for place in range(len(tokens)):
            before = written
            written = self.spelled(tokens[: place + 1], source)
            new = written[len(before) :]
            count += bool(new.strip()) and (
                not before.strip() or before[-1:].isspace() or new[0].isspace()
            )
            numbers.append(count - 1 if new.strip() and count else None)
        return numbers

    @property
    def beam(self) -> Beam:
        """The settings of the search."""
        target = self.numbering.target
        chosen = self.data.search
        settings = chosen.model_dump(exclude={"pads", "banned", "stop"})
        return Beam(
            bos=target.bos,
            eos=target.eos,
            banned=(*chosen.banned, *(() if chosen.pads else (target.pad,))),
            early=chosen.stop == "first",
            estimate=chosen.stop == "estimate",
            **settings,
        )

    def _cut_lengths(self, asked: EncodedPairs, places: Sequence[int], name: str) -> list[int]:
        """How much of each source is read, <eos> included; a warning for each that is cut."""
        lengths: list[int] = asked.source.lengths.tolist()
        most = self.data.max_length
        if self.data.too_long == "whole" or most is None:
            return lengths
        for place, length in zip(places, lengths, strict=True):
            if length - 1 > most:
                _log.warning(
                    "%s:%d: %d tokens are more than max_length=%d; the rest is not translated",
                    *(name, place, length - 1, most),
                )
        return [min(length, most + 1) for length in lengths]

    def spelled(self, tokens: Sequence[int], source: str) -> str:
        """The text of an output, on one line; numbers beyond the vocabulary are source words."""
        target = self.numbering.target
        if not self.data.copies:
            return _flat(target.decode(tokens))
        words = {number: word for word, number in self.numbering.unknown(source).items()}
        parts = (words[token] if token in words else target.decode([token]) for token in tokens)
        return _flat(" ".join(part for part in parts if part))

    def subject(self, split: Split, *, most: int, seed: int) -> Subject:
        """Steps of the references of a split; each token is predicted after those before it."""

        def steps() -> Iterator[Batch]:
            generator = torch.Generator().manual_seed(seed)
            for batch in every_batch(self.evaluation(split)):
                pair, step = sample_positions((batch["targets"] >= 0).sum(1), generator)
                chosen = {name: batch[name][pair] for name in batch if name != "targets"}
                # The model does not read the tokens after the last step.
                chosen["tokens"] = chosen["tokens"][:, : int(step.max()) + 1]
                yield {**chosen, "step": step}

        def predict(model: nn.Module, batch: Batch) -> Float[Tensor, "B V"]:
            logits = NextTokens.of(model, batch).logits()
            return logits[torch.arange(len(logits), device=logits.device), batch["step"]]

        return Subject(
            batches=tuple(take_rows(steps(), most)),
            predict=predict,
            axis="source",
            inputs="source",
            lengths="source_lengths",
            special=special_tokens(self.numbering.source),
            along=("source", "source_extended"),
            queries={"target": lambda batch: batch["step"]},
        )

    def last_prediction(self, model: nn.Module, given: Input) -> LastPrediction:
        """The last token of the best translation of a text."""
        (outputs,) = self.translate(model, [given])
        pairs, _ = encode_pairs([(outputs.source.title, outputs.text)], self.numbering, whole=True)
        device = next(model.parameters()).device
        pair = {name: each.to(device) for name, each in pairs.gather(torch.tensor([0])).items()}
        last = max(int(pairs.target.lengths[0]) - 2, 0)  # before the end token

        def log_probability() -> Float[Tensor, ""]:
            return NextTokens.of(model, pair).log_probability(pair["targets"])[0, last]

        return LastPrediction(
            axis=self.source_axis(given), inputs=pair["source"], log_probability=log_probability
        )


def _cut(batch: Batch, lengths: torch.Tensor, numbering: PairTokenisers) -> Batch:
    """Sources of at most these lengths: what is cut still ends with <eos>."""
    width = int(lengths.max())
    last = torch.arange(width) == lengths[:, None] - 1  # [B,S]
    rows: dict[str, torch.Tensor] = {"source_lengths": lengths}
    for name, side in (("source", numbering.source), ("source_extended", numbering.target)):
        if name in batch:
            taken = torch.where(last, side.eos, batch[name][:, :width])
            rows[name] = torch.where(torch.arange(width) < lengths[:, None], taken, side.pad)
    return rows


def _flat(text: str) -> str:
    r"""A text on one line, whatever a model wrote.

    >>> _flat("a\nb\u2028c\n")
    'a b c'
    """
    return " ".join(text.splitlines())
