"""A modality of its own, outside the package: grids of coloured cells, described in words.

The input is an image, the output a text: the colours of the cells, row by row. The task implements
the abilities that it has, the model is a recurrent decoder that attends to the cells, and a recipe
names both by this file. Nothing in the package knows them.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.attention import Attend, score_named
from regard.core.axes import Axis, Patches, Tokens
from regard.core.config import Config
from regard.core.inputs import Image, Input, check_kind
from regard.core.mode import eval_mode
from regard.core.padding import IGNORE
from regard.core.protocols import Batch, Carry, Loss
from regard.data import BucketBatches
from regard.decode.beam import Beam
from regard.decode.sentences import decode
from regard.layers.source_memory import SourceMemory
from regard.outputs.next_token import NextTokens, SoftmaxOutput
from regard.tasks.abilities import Output, Outputs, Prediction, Reading, Subject
from regard.tasks.task import OpenTask, Split

COLOURS = {"red": (220, 30, 30), "green": (30, 180, 60), "blue": (40, 60, 220)}
WORDS = ["<pad>", "<bos>", "<eos>", *COLOURS]
PAD, BOS, EOS = range(3)
CELL = 8
"""Pixels along each side of a cell."""


class Grids(Config):
    """The `[data]` table: how many grids, and how large."""

    train: int = 64
    validation: int = 16
    rows: int = 2
    columns: int = 2
    batch: int = 16
    seed: int = 0


class GridTask(OpenTask):
    """-log p of each word of the description, summed."""

    Data = Grids
    usage = "regard translate {run} grid.png"
    takes = (Image,)

    def __init__(self, data: Grids) -> None:
        self.data = data

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "GridTask":
        assert isinstance(data, Grids)
        return cls(data)

    def save(self, folder: Path) -> None:
        """There is nothing besides the recipe."""

    @property
    def sizes(self) -> dict[str, int]:
        return {"vocabulary": len(WORDS), "channels": 3}

    @property
    def splits(self) -> tuple[Split, ...]:
        return ("train", "validation")

    def examples(self, split: Split) -> list[tuple[Image, list[str]]]:
        count = self.data.train if split == "train" else self.data.validation
        draw = random.Random(f"{self.data.seed} {split}")
        cells = self.data.rows * self.data.columns
        every = [draw.choices(list(COLOURS), k=cells) for _ in range(count)]
        return [(self.painted(words), words) for words in every]

    def painted(self, words: Sequence[str]) -> Image:
        """The image of a description."""
        rows, columns = self.data.rows, self.data.columns
        colours = torch.tensor([COLOURS[word] for word in words], dtype=torch.uint8)
        cells = colours.view(rows, columns, 3).permute(2, 0, 1)  # [C,R,K]
        return Image(cells.repeat_interleave(CELL, 1).repeat_interleave(CELL, 2))

    def patches(self, image: Image) -> Tensor:
        """The mean colour of each cell, [N,3]."""
        rows, columns = self.data.rows, self.data.columns
        pixels = image.pixels.float().expand(3, -1, -1) / 255
        cells = nn.functional.adaptive_avg_pool2d(pixels, (rows, columns))  # [C,R,K]
        return cells.flatten(1).t()

    def sources(self, images: Sequence[Image]) -> Batch:
        patches = torch.stack([self.patches(each) for each in images])  # [B,N,3]
        return {"patches": patches, "lengths": torch.full((len(images),), patches.shape[1])}

    def dealt(self, split: Split, seed: int) -> BucketBatches:
        examples = self.examples(split)
        known = self.sources([image for image, _ in examples])
        target = torch.tensor([[WORDS.index(word) for word in words] for _, words in examples])

        def gather(numbers: Tensor) -> Batch:
            there = (numbers >= 0)[:, None]
            words = torch.where(there, target[numbers], IGNORE)
            ends = torch.where(there, EOS, IGNORE)
            read = torch.cat((torch.full_like(ends, BOS), words.clamp_min(PAD)), 1)
            source = {name: each[numbers] for name, each in known.items()}
            return {**source, "tokens": read, "targets": torch.cat((words, ends), 1)}

        lengths = [target.shape[1]] * len(examples)
        return BucketBatches(lengths, gather, seed=seed, batch=self.data.batch)

    def batches(self) -> BucketBatches:
        return self.dealt("train", self.data.seed)

    def evaluation(self, split: Split) -> BucketBatches:
        return self.dealt(split, 0)

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        output = NextTokens.of(model, batch, carry)
        items = int((batch["targets"] != IGNORE).sum())
        return Loss(total=output.loss(batch), items=items)

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        return {"loss": totals["loss"]}

    def score(self, model: nn.Module, split: Split) -> dict[str, float]:
        examples = self.examples(split)
        found = self.translate(model, [image for image, _ in examples])
        pairs = zip(found, examples, strict=True)
        right = sum(each.text == " ".join(words) for each, (_, words) in pairs)
        return {"exact": right / len(examples)}

    # what can be done with a trained model -----------------------------------------------------

    @property
    def beam(self) -> Beam:
        return Beam(bos=BOS, eos=EOS, banned=(PAD,), width=3, max_length=12, max_per_source=0.0)

    @property
    def search_batch(self) -> int:
        return 16

    def length(self, given: Input) -> int:
        return self.data.rows * self.data.columns

    def images(self, inputs: Sequence[Input]) -> list[Image]:
        for each in inputs:
            check_kind(each, self.takes, "grids")
        return [each for each in inputs if isinstance(each, Image)]

    def translate(self, model, inputs, *, name="input", numbers=None, beam=None, begins=None,
                  weights=None) -> list[Outputs]:  # fmt: skip
        images = self.images(list(inputs))
        batch = self.sources(images)
        device = next(model.parameters()).device

        def read(some: Sequence[int]) -> Batch:
            return {name: each[list(some)].to(device) for name, each in batch.items()}

        with eval_mode(model):
            found = decode(
                model, read, batch["lengths"].tolist(), beam or self.beam,
                max_rows=self.search_batch * 3, weights=weights,
            )  # fmt: skip
        return [
            Outputs(image, tuple(Output(self.spelled(each.tokens), each) for each in best))
            for image, best in zip(images, found, strict=True)
        ]

    def spelled(self, tokens: Sequence[int]) -> str:
        return " ".join(WORDS[token] for token in tokens if token > EOS)

    def pieces(self, outputs: Outputs, number: int = 0) -> list[str]:
        return [WORDS[token] for token in outputs.outputs[number].hypothesis.tokens]

    def source_axis(self, given: Input) -> Axis:
        (image,) = self.images([given])
        _, height, width = image.pixels.shape
        rows, columns = self.data.rows, self.data.columns
        return Patches.grid(rows, columns, width, height, picture=image.data_address())

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        every = self.translate(model, inputs)
        return [Prediction(text=each.text, fields={"text": each.text}) for each in every]

    def read(self, model: nn.Module, given: Input) -> Reading:
        (outputs,) = self.translate(model, [given])
        best = outputs.outputs[0]
        labels = (*self.pieces(outputs), "<eos>")
        return Reading(
            axes={"target": Tokens(labels=labels), "patch": self.source_axis(given)},
            title=outputs.text,
            rows=tuple(best.hypothesis.rows),
            beams=self.beam.width,
        )

    def subject(self, split: Split, *, most: int, seed: int) -> Subject:
        batches = self.dealt(split, 0)
        rows, left = [], most
        for index in range(len(batches)):
            whole = batches.batch(0, index)
            batch = {name: each[: max(left, 0)] for name, each in whole.items()}
            left -= len(whole["tokens"])
            if len(batch["tokens"]):
                first = {**batch, "tokens": batch["tokens"][:, :1]}
                rows.append({name: first[name] for name in ("patches", "lengths", "tokens")})

        def predict(model: nn.Module, batch: Batch) -> Tensor:
            return NextTokens.of(model, batch).logits()[:, 0]  # the first word

        return Subject(
            batches=rows,
            predict=predict,
            axis="patch",
            inputs="patches",
            along=("patches",),
            queries={"target": lambda batch: torch.zeros_like(batch["lengths"])},
        )


@dataclass(frozen=True)
class GridState:
    """Where a decoder has come to."""

    source: SourceMemory
    hidden: Tensor

    def select(self, rows: Tensor) -> "GridState":
        return GridState(self.source.select(rows), self.hidden.index_select(0, rows))


class GridCaptioner(nn.Module):
    """A GRU that attends to the cells before each word."""

    class Config(Config):
        """What a recipe may choose."""

        width: int = 16
        score: str = "additive"

    def __init__(self, config: "GridCaptioner.Config", vocabulary: int, channels: int) -> None:
        super().__init__()
        width = config.width
        self.cells = nn.Linear(channels, width)
        self.places = nn.Embedding(64, width)
        self.embed = nn.Embedding(vocabulary, width)
        self.start_state = nn.Parameter(torch.zeros(width))
        self.attend = Attend(
            score_named(config.score, width), kind="alignment", axes=("target", "patch")
        )
        self.cell = nn.GRUCell(2 * width, width)
        self.output = nn.Linear(2 * width, vocabulary)

    def start(self, source: Batch) -> GridState:
        patches = source["patches"]  # [B,N,3]
        numbers = torch.arange(patches.shape[1], device=patches.device)
        cells = (self.cells(patches) + self.places(numbers))[:, None]  # [B,1,N,D]
        memory = self.attend.remember(cells, cells)
        known = SourceMemory.of(memory, source["lengths"], attends=[self.attend])
        return GridState(known, self.start_state.expand(len(patches), -1))

    def go_on(self, tokens: Tensor, state: GridState) -> tuple[Tensor, GridState]:
        read = state.source.read(self.attend, state.hidden[:, None, None])[:, 0, 0]  # [B,D]
        hidden = self.cell(torch.cat((self.embed(tokens), read), 1), state.hidden)
        return torch.cat((hidden, read), 1), GridState(state.source, hidden)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        state, states = self.start(batch), []
        for tokens in batch["tokens"].unbind(1):
            both, state = self.go_on(tokens, state)
            states.append(both)
        return SoftmaxOutput(torch.stack(states, 1), self.output.weight, self.output.bias)

    def step(self, tokens: Tensor, state: GridState) -> tuple[Tensor, GridState]:
        both, state = self.go_on(tokens, state)
        return self.output(both), state
