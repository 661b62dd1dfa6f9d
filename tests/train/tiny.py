"""A model, a task and data so small that hundreds of updates take a second."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.config import parse
from regard.core.protocols import Batch, Carry, Loss
from regard.train.checkpoint import Checkpoint, Checkpoints
from regard.train.display import SilentDisplay
from regard.train.evaluate import evaluate
from regard.train.loop import TrainingResult, train
from regard.train.settings import Training

VOCABULARY = 11


class Recurrent(nn.Module):
    """An LSTM language model with dropout, tied, that hands its state on."""

    def __init__(self, width: int = 8, dropout: float = 0.3) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.drop = nn.Dropout(dropout)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.norm = nn.BatchNorm1d(width)
        self.out = nn.Linear(width, VOCABULARY)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Tensor, state: tuple[Tensor, Tensor] | None):
        hidden, state = self.lstm(self.drop(self.embed(tokens)), state)
        hidden = self.norm(hidden.transpose(1, 2)).transpose(1, 2)
        return self.out(self.drop(hidden)), state


class NextToken:
    """The token after each, with the state carried."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        state = None if carry is None else (carry["h"], carry["c"])
        logits, (h, c) = model(batch["tokens"], state)
        total = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), reduction="sum")
        right = (logits.argmax(2) == batch["targets"]).sum().item()
        return Loss(
            total=total,
            items=batch["targets"].numel(),
            carry={"h": h.detach(), "c": c.detach()},
            counts={"right": float(right)},
        )


@dataclass(frozen=True)
class Stream:
    """Tokens that mostly count upward; a function of seed, epoch and index alone."""

    batches: int = 5
    rows: int = 4
    length: int = 6
    seed: int = 7

    def __len__(self) -> int:
        return self.batches

    def batch(self, epoch: int, index: int) -> Batch:
        generator = torch.Generator().manual_seed(self.seed + 1000 * epoch + index)
        first = torch.randint(VOCABULARY, (self.rows, 1), generator=generator)
        steps = torch.randint(1, 3, (self.rows, self.length), generator=generator)
        tokens = torch.cat([first, first + steps.cumsum(1)], 1) % VOCABULARY
        return {"tokens": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}


class Apart(Stream):
    """The same tokens as batches that have nothing to do with one another, made by a thread."""

    prefetchable = True

    def resets_carry(self, index: int) -> bool:
        return True


class Regress:
    """Squared error of a linear map, weighed by row; rows may hold what is not finite."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        error = (model(batch["x"]) - batch["y"]).square().sum()
        return Loss(total=error, items=len(batch["x"]))


@dataclass(frozen=True)
class Rows:
    """Given batches, the same in every epoch."""

    all: tuple[Batch, ...]

    def __len__(self) -> int:
        return len(self.all)

    def batch(self, epoch: int, index: int) -> Batch:
        return self.all[index]


def settings(**changes: object) -> Training:
    """Settings of a small training, changed as asked."""
    given: dict[str, object] = {
        "updates": 12,
        "optimiser": {"name": "adam", "lr": 0.01},
        "clip": 1.0,
        "log_every": 2,
        "save_every": 3,
        "evaluate_every": 4,
        "seed": 3,
    }
    return parse(Training, {**given, **changes})


def recurrent(width: int = 8, seed: int = 5) -> Recurrent:
    """The model, with the same weights every time."""
    torch.manual_seed(seed)
    return Recurrent(width)


def run(
    folder: Path, *, stream: Stream | None = None, **changes: object
) -> tuple[TrainingResult, nn.Module]:
    """Train the recurrent model in a folder, or go on there."""
    model = recurrent()
    unseen = Stream(batches=2, seed=99)
    result = train(
        model,
        NextToken(),
        stream or Stream(),
        settings(**changes),
        folder,
        validate=lambda: evaluate(model, NextToken(), unseen).metrics(),
        display=SilentDisplay(),
    )
    return result, model


def newest(folder: Path) -> Checkpoint:
    """The newest checkpoint of a run folder, which must be whole."""
    found = Checkpoints(folder / "state").newest()
    assert found is not None
    assert not found.corrupt
    return found.checkpoint


def essence(folder: Path) -> tuple[dict[str, Tensor], Mapping[str, object]]:
    """All that two runs must share to be the same: every tensor, every fact but the time."""
    checkpoint = newest(folder)
    tensors = {
        f"{part}/{name}": tensor
        for part, named in checkpoint.parts.items()
        for name, tensor in named.items()
    }
    tensors |= {f"result/{k}": v for k, v in load_file(folder / "model.safetensors").items()}
    progress = checkpoint.facts["progress"]
    assert isinstance(progress, dict)
    timeless = {k: v for k, v in progress.items() if k not in ("seconds", "took")}
    return tensors, {**checkpoint.facts, "progress": timeless}


def assert_same(one: Path, other: Path) -> None:
    """Bit for bit the same weights, moments, random states, carry, position and result."""
    (tensors, facts), (expected, expected_facts) = essence(one), essence(other)
    assert facts == expected_facts
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected[name]), name
