"""Captioning: a sentence about an image, whose features come from a frozen network.

    loss = -Σ_t log p(y_t | y_<t, image)

The network (data/image/lite0.py) and the vocabulary are kept in the run, so that a run folder is
all it takes to describe another image.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from regard.core.axes import Patches, Tokens
from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.inputs import Image, Input, check_kind
from regard.core.mode import eval_mode
from regard.core.padding import IGNORE
from regard.core.protocols import Batch, Carry, Loss, Stepper
from regard.data import BucketBatches, Tokeniser, load_tokeniser, train_tokeniser
from regard.data.image.features import FeatureProgress, cached_features, features_of, grid_of
from regard.data.image.lite0 import CHANNELS, Lite0, load_lite0
from regard.decode.beam import Beam
from regard.decode.hypothesis import Hypothesis
from regard.decode.sentences import decode
from regard.outputs.next_token import NextTokens
from regard.tasks.abilities import Output, Outputs, Prediction, Reading, Subject
from regard.tasks.caption_data import (
    CaptionFiles,
    CaptionNumbers,
    Captions,
    caption_words,
    open_captions,
)
from regard.tasks.caption_metrics import caption_scores
from regard.tasks.sampling import every_batch, sample_positions, take_rows
from regard.tasks.task import TOKENISER, OpenTask, Split, found

ENCODER = "encoder.safetensors"
"""The file of a run that holds the frozen network."""
_END = "<eos>"


@dataclass(frozen=True)
class Captioning(OpenTask):
    """-log p of each word of a caption, summed."""

    Data = Captions
    usage = "regard caption {run} photo.jpg"

    data: Captions
    folder: Path
    """Where the files of the data are."""
    tokeniser: Tokeniser
    network: Lite0

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "Captioning":
        """The task on these data; the vocabulary is that of the training captions."""
        assert isinstance(data, Captions)
        if saved is not None:
            network = Lite0()
            network.load_state_dict(load_file(saved / ENCODER))
            return cls(data, folder, load_tokeniser(saved / TOKENISER), network.eval())
        training = open_captions(data, folder).splits["train"]
        texts = (" ".join(caption_words(text)) for each in training for text in each.captions)
        tokeniser = train_tokeniser("word", texts, data.vocabulary, data.min_frequency)
        weights = None if data.weights is None else found(folder, data.weights, data.origin)
        return cls(data, folder, tokeniser, load_lite0(weights))

    def save(self, folder: Path) -> None:
        """Leave the vocabulary and the frozen network."""
        self.tokeniser.save(folder / TOKENISER)
        save_file(self.network.state_dict(), folder / ENCODER)

    @property
    def sizes(self) -> dict[str, int]:
        """The vocabulary, and the channels of the features."""
        return {"vocabulary": self.tokeniser.vocabulary, "features": CHANNELS[self.data.layer]}

    @property
    def splits(self) -> tuple[Split, ...]:
        """Something to test on is not always there."""
        return ("train", "validation", *(() if self.data.test is None else ("test",)))

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """Images."""
        return (Image,)

    @cached_property
    def files(self) -> CaptionFiles:
        """The captions and images of the recipe."""
        return open_captions(self.data, self.folder)

    @cached_property
    def _features(self) -> tuple[torch.Tensor, dict[str, int]]:
        names = self.files.names
        table = cached_features(
            self.network, self.files.images, names, self.data.layer, progress=_shown(len(names))
        )
        return table, {name: place for place, name in enumerate(names)}

    def _numbers(self, split: Split, longest: int | None = None) -> CaptionNumbers:
        table, places = self._features
        return CaptionNumbers(self.files.splits[split], table, places, self.tokeniser, longest)

    @cached_property
    def _training(self) -> CaptionNumbers:
        return self._numbers("train", self.data.max_length)

    def batches(self) -> BucketBatches:
        """The training batches, a row a caption."""
        numbers = self._training
        if not numbers.sentences:
            raise UserError("there is nothing to learn from: every caption is above max_length")
        return BucketBatches(
            numbers.lengths, numbers.gather, seed=self.data.seed, batch=self.data.batch
        )

    def evaluation(self, split: Split) -> BucketBatches:
        """The batches that measure: every caption once."""
        numbers = self._numbers(split)
        batch = self.data.evaluate_batch
        return BucketBatches(numbers.lengths, numbers.gather, seed=0, batch=batch)

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of a batch; a model may add to it what it is to learn besides."""
        output = NextTokens.of(model, batch, carry)
        nll = output.nll(batch["targets"])
        total = output.with_auxiliary(nll) if model.training else nll
        return Loss(total=total, items=int((batch["targets"] != IGNORE).sum()))

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The mean loss per word, and its perplexity."""
        return {"loss": totals["loss"], "perplexity": exp(min(totals["loss"], 700.0))}

    def score(self, model: nn.Module, split: Split) -> dict[str, float]:
        """Describe the images of a split and compare with what people wrote."""
        if not self.data.scores:
            return {}
        table, places = self._features
        captioned = self.files.splits[split]
        rows = torch.tensor([places[each.image] for each in captioned])
        found = self._search(model, lambda some: table[rows[list(some)]], len(captioned), self.beam)
        texts = [caption_words(self.spelled(best[0].tokens)) if best else [] for best in found]
        known = [[caption_words(text) for text in each.captions] for each in captioned]
        values = caption_scores(texts, known)
        return {name: values[name] for name in self.data.scores}

    # what can be done with a trained model -----------------------------------------------------

    @property
    def beam(self) -> Beam:
        """The settings of the search."""
        own, chosen = self.tokeniser, self.data.search
        return Beam(
            bos=own.bos,
            eos=own.eos,
            banned=(own.pad, own.bos, *chosen.banned),
            early=chosen.stop == "first",
            estimate=chosen.stop == "estimate",
            **chosen.model_dump(exclude={"pads", "banned", "stop"}),
        )

    @property
    def search_batch(self) -> int:
        """How many images are searched together."""
        return self.data.evaluate_batch

    def length(self, given: Input) -> int:
        """The places of an image, whatever its size."""
        return grid_of(self.data.layer) ** 2

    def _images(self, inputs: Sequence[Input]) -> list[Image]:
        for each in inputs:
            check_kind(each, self.takes, "caption")
        return [each for each in inputs if isinstance(each, Image)]

    def _search(
        self,
        model: nn.Module,
        features: Callable[[Sequence[int]], torch.Tensor],
        count: int,
        beam: Beam,
        weights: Callable[[object], torch.Tensor] | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        if not isinstance(model, Stepper):
            raise UserError(f"a {type(model).__name__} cannot write: it has no start and step")
        device = next(model.parameters()).device

        def read(some: Sequence[int]) -> Batch:
            return {"patches": features(some).float().to(device)}

        rows = self.data.evaluate_batch * beam.width
        lengths = [grid_of(self.data.layer) ** 2] * count
        with eval_mode(model):
            return decode(
                model, read, lengths, beam, max_rows=rows, weights=weights, prefixes=prefixes
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
        """Captions of each image, in their order; each starts with its text in `begins`."""
        images = self._images(inputs)

        def features(some: Sequence[int]) -> torch.Tensor:
            return features_of(self.network, [images[each] for each in some], self.data.layer)

        starts = [""] * len(images) if begins is None else begins
        prefixes = [self.tokeniser.encode(" ".join(caption_words(each))) for each in starts]
        found = self._search(model, features, len(images), beam or self.beam, weights, prefixes)
        return [
            Outputs(image, tuple(Output(self.spelled(each.tokens), each) for each in best))
            for image, best in zip(images, found, strict=True)
        ]

    def spelled(self, tokens: Sequence[int]) -> str:
        """The text of a caption."""
        return self.tokeniser.decode(tokens)

    def pieces(self, outputs: Outputs, number: int = 0) -> list[str]:
        """The words of one caption."""
        tokens = outputs.outputs[number].hypothesis.tokens if outputs.outputs else ()
        return [self.tokeniser.decode([token]) for token in tokens]

    def source_axis(self, given: Input) -> Patches:
        """The places of the image, with the image under them."""
        (image,) = self._images([given])
        _, height, width = image.pixels.shape
        side = grid_of(self.data.layer)
        return Patches.grid(side, side, width, height, picture=image.data_address())

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """The greedy caption of each image, in which an intervention shows at once."""
        greedy = replace(self.beam, width=1, n_best=1, groups=1)
        return [
            Prediction(
                text=each.text, fields={"caption": each.text}, labels=tuple(self.pieces(each))
            )
            for each in self.translate(model, inputs, beam=greedy)
        ]

    def read(
        self,
        model: nn.Module,
        given: Input,
        weights: Callable[[object], torch.Tensor] | None = None,
    ) -> Reading:
        """Search the best caption; each of its words attends to the places of the image."""
        (outputs,) = self.translate(model, [given], weights=weights)
        best = outputs.outputs[0]
        return Reading(
            title=outputs.text,
            axes={
                "target": Tokens(labels=(*self.pieces(outputs), _END)),
                "patch": self.source_axis(given),
            },
            rows=tuple(best.hypothesis.rows),
            beams=self.beam.width,
        )

    def subject(self, split: Split, *, most: int, seed: int) -> Subject:
        """Steps of the captions of a split; each word is predicted after those before it."""

        def steps() -> Iterator[Batch]:
            generator = torch.Generator().manual_seed(seed)
            for batch in every_batch(self.evaluation(split)):
                row, step = sample_positions((batch["targets"] >= 0).sum(1), generator)
                chosen = {name: batch[name][row] for name in ("patches", "tokens")}
                chosen["tokens"] = chosen["tokens"][:, : int(step.max()) + 1]
                count = torch.full((len(step),), chosen["patches"].shape[1])
                yield {**chosen, "step": step, "lengths": count}

        def predict(model: nn.Module, batch: Batch) -> torch.Tensor:
            logits = NextTokens.of(model, batch).logits()
            return logits[torch.arange(len(logits), device=logits.device), batch["step"]]

        return Subject(
            batches=tuple(take_rows(steps(), most)),
            predict=predict,
            axis="patch",
            inputs="patches",
            along=("patches",),
            queries={"target": lambda batch: batch["step"]},
        )

    def notes(self) -> list[str]:
        """How scores are computed, and which images were not there."""
        note = (
            "scores: words in lower case without punctuation, every caption of an image a "
            "reference; BLEU with brevity penalty"
        )
        skipped = self.files.skipped
        return [note, *([f"images that were not there: {skipped:,}"] if skipped else [])]


def _shown(count: int) -> FeatureProgress | None:
    """FeatureProgress of the features on a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, of: int) -> None:
        end = "\n" if done >= of else ""
        sys.stderr.write(f"\rfeatures of images: {done:,} of {of:,}{end}")
        sys.stderr.flush()

    return show
