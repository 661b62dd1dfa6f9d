"""Algorithms on random bits: copy, repeat, recall, count, sort. Nothing is read from files.

Training draws lengths from a range; validation is at one length, test at another, longer one, to
see whether the model has learned the algorithm or the examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.core.axes import Slots, Steps
from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.inputs import Input, Text
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Batches, Carry, Loss
from regard.data.algorithms import AlgorithmBatches, AnyAlgorithm
from regard.data.batch import ShardableBatches
from regard.outputs.bits import Bits
from regard.tasks.abilities import Prediction, Reading, Table
from regard.tasks.task import OpenTask, Split, text_of

LONGEST_DRAWN = 2_000
"""The largest length of an input that is drawn on request."""

_PLACES: dict[Split, int] = {"train": 0, "validation": 1, "test": 2}


@runtime_checkable
class Traces(Protocol):
    """A machine that can show more of its memory than its attention."""

    def trace(self, batch: Batch) -> tuple[Bits, dict[str, Tensor]]:
        """The bits, and named tables [B,T,n] over the steps; "links" are [B,K,K] over the slots."""
        ...


class AlgorithmData(Config):
    """The `[data]` table of a recipe: which algorithm, how long, how many."""

    algorithm: AnyAlgorithm
    """Which algorithm, by `name`, and its own settings."""
    lengths: tuple[PositiveInt, PositiveInt]
    """The least and the largest length in training."""
    validation: PositiveInt
    """The length in validation."""
    test: PositiveInt
    """The length in the test."""
    sequences: PositiveInt = 128
    """The number of sequences in validation, and in the test."""
    batch: PositiveInt = 16
    epoch: PositiveInt = 1000
    """The number of batches that count as an epoch."""
    seed: int = 0


@dataclass(frozen=True)
class AlgorithmTask(OpenTask):
    """Sequences of bits in, sequences of bits out."""

    Data = AlgorithmData
    usage = "regard look {run} 10"

    data: AlgorithmData

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "AlgorithmTask":
        """The task; there is nothing to read."""
        assert isinstance(data, AlgorithmData)
        task = cls(data)
        for split in task.splits:
            task._dealt(split)  # refuses lengths that do not exist
        return task

    def save(self, folder: Path) -> None:
        """There is nothing to leave."""

    @property
    def sizes(self) -> dict[str, int]:
        """The width of an input and the bits of an output."""
        return {"inputs": self.data.algorithm.inputs, "outputs": self.data.algorithm.outputs}

    @property
    def splits(self) -> tuple[Split, ...]:
        """All three."""
        return ("train", "validation", "test")

    def batches(self) -> ShardableBatches:
        """The training batches; no two epochs are alike."""
        return self._dealt("train")

    def evaluation(self, split: Split) -> Batches:
        """Sequences of the length of the split; of the training data, as many as elsewhere."""
        return self._dealt(split, self._evaluated)

    @property
    def _evaluated(self) -> int:
        return -(-self.data.sequences // self.data.batch)

    def _dealt(self, split: Split, count: int | None = None) -> AlgorithmBatches:
        data = self.data
        fixed = {"validation": data.validation, "test": data.test}
        return AlgorithmBatches(
            data.algorithm,
            data.lengths if split == "train" else (fixed[split], fixed[split]),
            rows=data.batch,
            count=data.epoch if count is None else count,
            place=(data.seed, _PLACES[split]),
        )

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """-log p per bit that is scored, with the wrong bits and the sequences without any."""
        output = Bits.of(model, batch, carry)
        bits, scored = batch["bits"], batch["scored"]
        items = int(scored.sum()) * bits.shape[2]
        with torch.no_grad():
            wrong = output.wrong(bits, scored)
        counts = {
            "wrong": float(wrong.sum()),
            "exact": float((wrong == 0).sum()),
            "sequences": float(len(bits)),
        }
        if "optimal" in batch:
            best = Bits(batch["optimal"].logit())
            counts["optimal"] = float(best.nll(bits, scored))
        return Loss(total=output.loss(batch), items=items, counts=counts)

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Loss per bit, wrong bits in per cent and per sequence, sequences without any."""
        found = {
            "loss": totals["loss"],
            "error": 100 * totals["wrong"],
            "wrong_bits": totals["wrong"] / totals["sequences"],
            "exact": 100 * totals["exact"] / totals["sequences"],
        }
        return found | ({"optimal": totals["optimal"]} if "optimal" in totals else {})

    @property
    def takes(self) -> tuple[type[Input], ...]:
        """A length, and perhaps which sequence of that length, as text: "20" or "20 3"."""
        return (Text,)

    def draw(self, given: Input) -> tuple[int, Batch]:
        """The length of an input, and the one sequence that it names."""
        words = text_of(given, "algorithm").split()
        if not 1 <= len(words) <= 2 or not all(word.isdecimal() for word in words):
            raise UserError(
                f'{" ".join(words)[:60]!r} is not an input: give a length, such as "20", or a '
                'length and which sequence, "20 3"'
            )
        length, number = int(words[0]), int(words[1]) if len(words) == 2 else 0
        shortest = self.data.algorithm.shortest
        if not shortest <= length <= LONGEST_DRAWN:
            raise UserError(f"a length of {length}: it must be from {shortest} to {LONGEST_DRAWN}")
        return length, self.data.algorithm.draw(1, length, self.data.seed, 3, length, number)

    def predict(self, model: nn.Module, inputs: Sequence[Input]) -> list[Prediction]:
        """The bits of the answer, a line for each step, with the wrong ones counted."""
        device = next(model.parameters()).device
        found = []
        with eval_mode(model), torch.no_grad():
            for given in inputs:
                _, batch = self.draw(given)
                batch = {name: each.to(device) for name, each in batch.items()}
                found.append(_answer(Bits.of(model, batch), batch))
        return found

    def read(self, model: nn.Module, given: Input) -> Reading:
        """Run the model on one sequence; its steps have names, slots have numbers."""
        length, batch = self.draw(given)
        device = next(model.parameters()).device
        sent = {name: each.to(device) for name, each in batch.items()}
        with eval_mode(model), torch.no_grad():
            if isinstance(model, Traces):
                output, traced = model.trace(sent)
            else:
                output, traced = Bits.of(model, sent), {}
        steps = Steps(labels=self.data.algorithm.label(length, batch["inputs"].shape[1]))
        wrong = int(output.wrong(batch["bits"].to(device), batch["scored"].to(device)).sum())
        return Reading(
            axes={"step": steps},
            title=f"{self.data.algorithm.name} of {length}: {wrong} bits wrong",
            tables={name: _table(name, each[0].cpu(), steps) for name, each in traced.items()},
        )


def _table(name: str, values: Tensor, steps: Steps) -> Table:
    """A table of one sequence with its axes."""
    count = values.shape[1]
    heads = Steps.of(count, "head") if name == "free gates" else None
    return Table(
        values=values.clamp(0, 1),
        queries=Slots.of(count) if name == "links" else steps,
        keys=heads or Slots.of(count),
    )


def _answer(output: Bits, batch: Batch) -> Prediction:
    scored = batch["scored"][0]
    written = (output.logits[0][scored] > 0).int()
    expected = batch["bits"][0][scored].int()
    wrong = int((written != expected).sum())
    return Prediction(
        text="\n".join([*_lines(written), f"{wrong} of {expected.numel()} bits wrong"]),
        fields={"bits": _lines(written), "expected": _lines(expected), "wrong": wrong},
    )


def _lines(bits: Tensor) -> list[str]:
    return ["".join(map(str, row)) for row in bits.tolist()]
