"""Translation: write the target of a source. Dates to ISO, German to English, questions to answers.

Pairs come from files or are made up on the spot; batches are those of data/text/parallel.py. A model is
asked for the loss of a batch, or, as a Stepper, for outputs by beam search, which are compared with
references as METRICS of compare.py do.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp
from pathlib import Path

import torch
from torch import nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.mode import evaluating
from regard.core.protocols import Batch, Carry, Loss, Stepper
from regard.data import IGNORE, BucketBatches, Tokeniser
from regard.data.text.parallel import EncodedPairs, Kept, Numbering, encoded
from regard.data.text.synthetic import TextPair
from regard.decode.beam import Beam
from regard.decode.hypothesis import Hypothesis
from regard.decode.sentences import decode
from regard.tasks.task import OpenTask, Split
from regard.tasks.translation_data import (
    Pairs,
    new_tokenisers,
    readable,
    saved_tokenisers,
    texts_of,
)
from regard.tasks.translation_metrics import BANDS, LengthBand, by_length, score, signature

_log = logging.getLogger(__name__)

_BATCH = 64
"""Pairs to a batch unless the recipe says otherwise."""


@dataclass(frozen=True)
class Output:
    """One translation of a line."""

    text: str
    """One line, without its end."""
    hypothesis: Hypothesis
    """What the search found."""


@dataclass(frozen=True)
class Translated:
    """What became of one line."""

    source: str
    """As the tokeniser saw it."""
    outputs: tuple[Output, ...]
    """The best first; none for an empty line, which nobody asked the model about."""

    @property
    def text(self) -> str:
        """The best of them."""
        return self.outputs[0].text if self.outputs else ""


@dataclass(frozen=True)
class Outputs:
    """A whole split, translated."""

    sources: list[str]
    outputs: list[str]
    references: list[str]


@dataclass(frozen=True)
class Translation(OpenTask):
    """-log p of each token of the target, summed; batches are those of data/text/parallel.py."""

    Data = Pairs
    usage = "regard translate {run} < source.txt > target.txt"

    data: Pairs
    folder: Path
    """Where the files of the data are."""
    numbering: Numbering
    """From text to tokens, both sides."""

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "Translation":
        """The task on these data; its tokenisers are trained now if there are none yet."""
        assert isinstance(data, Pairs)
        sides = new_tokenisers(data, folder) if saved is None else saved_tokenisers(data, saved)
        return cls(data, folder, Numbering(*sides, copies=data.copies))

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

    @cached_property
    def _training(self) -> tuple[EncodedPairs, Kept]:
        pairs = self.texts("train")
        return encoded(pairs, self.numbering, longest=self.data.max_length)

    @property
    def kept(self) -> Kept:
        """How many pairs are learnt from, and how many are not and why."""
        return self._training[1]

    def texts(self, split: Split) -> Iterator[TextPair]:
        """The pairs of a split as the tokenisers see them."""
        for source, target in texts_of(self.data, self.folder, split):
            yield readable(source, self.data), readable(target, self.data)

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
        pairs, _ = encoded(self.texts(split), self.numbering, whole=True)
        return BucketBatches(pairs.lengths, pairs.gather, seed=0, batch=self.data.evaluate_batch)

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of a batch; a model may add to it what it is to learn besides."""
        prediction, further = model(batch)
        smoothing = self.data.smoothing if model.training else 0.0
        targets = batch["targets"]
        pad = self.numbering.target.pad
        total = prediction.surprise(targets, smoothing=smoothing, never=pad)
        if further is not None and model.training:
            total = total + further
        return Loss(total=total, items=int((targets != IGNORE).sum()))

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The mean loss per target token, and its perplexity."""
        return {"loss": totals["loss"], "perplexity": exp(min(totals["loss"], 700.0))}

    def score(self, model: nn.Module, split: Split) -> dict[str, float]:
        """Translate a split and compare: BLEU, say."""
        return self.compared(self.outputs(model, split)) if self.data.scores else {}

    def compared(self, done: Outputs) -> dict[str, float]:
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
        """The signature of each score, and what of the training pairs was not learnt from."""
        said = [f"{name}: {signature}" for name, signature in self.signatures().items()]
        return [*said, f"training pairs: {self.kept}"]

    def outputs(self, model: nn.Module, split: Split) -> Outputs:
        """A whole split, translated; references are as they stand in the file."""

        def translated(lines: Sequence[str]) -> list[str]:
            return [each.text for each in self.translate(model, lines, name=split)]

        return self.outputs_by(translated, split)

    def outputs_by(
        self, translate: Callable[[Sequence[str]], Sequence[str]], split: Split
    ) -> Outputs:
        """The same by whatever translates lines."""
        pairs = list(texts_of(self.data, self.folder, split))
        sources = [source for source, _ in pairs]
        return Outputs(sources, list(translate(sources)), [target for _, target in pairs])

    def by_length(
        self, model: nn.Module, split: Split, name: str = "bleu", bands: Sequence[int] = BANDS
    ) -> list[LengthBand]:
        """The score of sources of like length, the shortest first."""
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
        lines: Iterable[str],
        *,
        name: str = "input",
        numbers: Sequence[int] | None = None,
        beam: Beam | None = None,
        begins: Sequence[str] | None = None,
        weights: Callable[[object], torch.Tensor] | None = None,
    ) -> list[Translated]:
        """Each line translated, in their order; an empty line stays one.

        `name` is what warnings call the lines, a file say, and `numbers` those of the lines in it;
        `beam` may be another search than the recipe's, and `begins` has how each translation is to
        begin. A search with coverage needs `weights`, see decode/search.py.
        """
        if not isinstance(model, Stepper):
            raise UserError(f"a {type(model).__name__} cannot translate: it has no start and step")
        texts = [readable(line, self.data) for line in lines]
        places = [place for place, text in enumerate(texts) if text.strip()]
        given = [""] * len(texts) if begins is None else [readable(b, self.data) for b in begins]
        pairs = [(texts[place], given[place]) for place in places]
        asked, _ = encoded(pairs, self.numbering, whole=True)
        counted = range(1, len(texts) + 1) if numbers is None else numbers
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

        with evaluating(model):
            found = decode(
                model,
                read,
                lengths,
                beam,
                at_once=self.data.evaluate_batch * beam.width,
                prefixes=prefixes,
                weights=weights,
            )
        best = dict(zip(places, found, strict=True))
        return [
            Translated(
                text,
                tuple(Output(self.spelled(h.tokens, text), h) for h in best.get(place, ())),
            )
            for place, text in enumerate(texts)
        ]

    @property
    def beam(self) -> Beam:
        """The settings of the search."""
        target = self.numbering.target
        settings = self.data.search.model_dump(exclude={"pads"})
        never = () if self.data.search.pads else (target.pad,)
        return Beam(bos=target.bos, eos=target.eos, never=never, **settings)

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


def _cut(batch: Batch, lengths: torch.Tensor, numbering: Numbering) -> Batch:
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
