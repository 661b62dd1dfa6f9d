"""Few-shot classification: tell classes apart that were never seen, from a few examples of each.

Classes of images come from folders or .npz files (data/image/classes.py). A batch is some episodes:
`images` [B,T,C,S,S], examples first and then queries, the `labels` [B,n] of the examples, and the
`classes` [B,Q] of the queries. A model returns `Classes` [B*Q, ways].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import nn

from regard.core.axes import Steps
from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.inputs import Image, Input, Several, check_kind
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Carry, Loss
from regard.data.image.classes import (
    EpisodeBatches,
    ImageClasses,
    class_split,
    read_image_classes,
    square_image,
)
from regard.outputs.classes import Classes
from regard.tasks.abilities import Choice, Prediction, Reading
from regard.tasks.over_texts import placed_with
from regard.tasks.task import OpenTask, Split, found


class EpisodeData(Config):
    """The `[data]` table of a recipe: which classes, and what an episode is."""

    train: str
    """The classes to learn from: a folder with a folder of images for each, or an .npz file."""
    validation: str | float = 0.05
    """Other classes, or the share of the training classes to keep for it."""
    test: str | None = None
    origin: str = ""
    """Where a user gets these files; part of the error if they are missing."""
    ways: PositiveInt = 5
    """The classes of an episode."""
    shots: PositiveInt = 1
    """The examples of each class."""
    queries: PositiveInt = 5
    """The images of an episode to classify."""
    size: PositiveInt = 28
    """The width and height of images, to which they are scaled."""
    colours: Literal[1, 3] = 1
    """Channels of an image: 1 is grey, 3 is red, green and blue."""
    rotations: bool = True
    """Are rotations of a training class by 90, 180 and 270 degrees further classes?"""
    batch: PositiveInt = 16
    """Episodes to a batch."""
    steps: PositiveInt = 250
    """Batches to an epoch."""
    evaluate_episodes: PositiveInt = Field(1000, ge=10)
    """Episodes to measure on."""
    seed: int = 0


@dataclass(frozen=True)
class FewShot(OpenTask):
    """-log p of the class of each query, summed."""

    Data = EpisodeData
    usage = "regard predict {run} episode.json"

    data: EpisodeData
    folder: Path

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "FewShot":
        """The task on these classes."""
        assert isinstance(data, EpisodeData)
        return cls(data, folder)

    def save(self, folder: Path) -> None:
        """There is nothing to keep but the recipe."""

    @property
    def sizes(self) -> dict[str, int]:
        """Of an episode and its images."""
        data = self.data
        return {
            "ways": data.ways,
            "shots": data.shots,
            "colours": data.colours,
            "size": data.size,
        }

    @property
    def splits(self) -> tuple[Split, ...]:
        """Something to test on is not always there."""
        return ("train", "validation", *(() if self.data.test is None else ("test",)))

    @cached_property
    def _kept(self) -> dict[str, ImageClasses]:
        return {}

    def _read(self, path: str) -> ImageClasses:
        if path not in self._kept:
            place = found(self.folder, path, self.data.origin)
            self._kept[path] = read_image_classes(place, self.data.size, self.data.colours)
        return self._kept[path]

    def classes(self, split: Split) -> ImageClasses:
        """The classes of a split; no class is in two of them."""
        data = self.data
        if split == "test":
            if data.test is None:
                raise UserError("this recipe has no test classes; set data.test")
            return self._read(data.test)
        if isinstance(data.validation, str):
            return self._read(data.train if split == "train" else data.validation)
        train, apart = class_split(self._read(data.train), data.validation, data.seed)
        return train if split == "train" else apart

    def batches(self) -> EpisodeBatches:
        """The training episodes."""
        classes = self.classes("train")
        return self._episodes(
            classes.rotated() if self.data.rotations else classes, self.data.steps, "training"
        )

    def evaluation(self, split: Split) -> EpisodeBatches:
        """The same episodes each time."""
        steps = -(-self.data.evaluate_episodes // self.data.batch)
        return self._episodes(self.classes(split), steps, split)

    def _episodes(self, classes: ImageClasses, steps: int, what: str) -> EpisodeBatches:
        data = self.data
        return EpisodeBatches(
            classes,
            ways=data.ways,
            shots=data.shots,
            queries=data.queries,
            batch=data.batch,
            steps=steps,
            seed=data.seed,
            what=what,
        )

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """Cross-entropy over all queries."""
        output = Classes.of(model, batch, carry)
        classes = batch["classes"].flatten()
        nll = output.nll(classes)
        right = (output.logits.argmax(1) == classes).sum()
        total = output.with_auxiliary(nll) if model.training else nll
        return Loss(total=total, items=len(classes), counts={"accuracy": 100.0 * float(right)})

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The mean loss, the accuracy in per cent, and half its 95 per cent interval."""
        share = totals["accuracy"] / 100
        queries = self.data.evaluate_episodes * self.data.queries
        half = 196 * sqrt(max(0.0, share * (1 - share)) / queries)
        return {"loss": totals["loss"], "accuracy": totals["accuracy"], "interval": half}

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """Several images: the examples of each class in turn, then the image to classify."""
        return (Several,)

    def _episode(self, given: Input) -> Batch:
        """The images of an input as an episode."""
        check_kind(given, (Several,), "few_shot")
        assert isinstance(given, Several)
        images = [each for each in given.parts if isinstance(each, Image)]
        needed = self.data.ways * self.data.shots
        if len(images) != len(given.parts) or len(images) <= needed:
            raise UserError(
                f"expected {needed} images, {self.data.shots} of each of {self.data.ways} classes "
                f"in turn, and the images to classify after them; there are {len(images)} images "
                f"among {len(given.parts)} parts"
            )
        size, colours = self.data.size, self.data.colours
        pixels = torch.stack([square_image(each, size, colours) for each in images])
        labels = torch.arange(self.data.ways).repeat_interleave(self.data.shots)
        return {"images": pixels[None], "labels": labels[None]}

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """The class of the last images of each input, by the number of its class."""
        return [self._prediction(model, self._episode(each)) for each in inputs]

    def _prediction(self, model: nn.Module, batch: Batch) -> Prediction:
        with eval_mode(model), torch.no_grad():
            rows = Classes.of(model, placed_with(model, batch)).logits.softmax(1).tolist()
        names = [f"class {number + 1}" for number in range(self.data.ways)]
        best = [names[max(range(len(row)), key=row.__getitem__)] for row in rows]
        choices = [Choice(name, p) for name, p in zip(names, rows[0], strict=True)]
        fields = {
            "classes": best,
            "probabilities": [dict(zip(names, row, strict=True)) for row in rows],
        }
        ordered = tuple(sorted(choices, key=lambda each: -each.probability))
        return Prediction(text="\t".join(best), fields=fields, choices=ordered)

    def read(self, model: nn.Module, given: Input) -> Reading:
        """Run the model on an episode; its axis is the examples and then the queries."""
        batch = self._episode(given)
        with eval_mode(model), torch.no_grad():
            model(placed_with(model, batch))
        examples = [f"class {each + 1}" for each in batch["labels"][0].tolist()]
        queries = [f"query {each + 1}" for each in range(batch["images"].shape[1] - len(examples))]
        return Reading(title=given.title, axes={"position": Steps(labels=(*examples, *queries))})

    def notes(self) -> list[str]:
        """How many classes there are."""
        count = len(self.classes("train"))
        turned = ", and their rotations" if self.data.rotations else ""
        return [f"{count:,} classes to learn from{turned}"]
