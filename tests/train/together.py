"""One process of several that train together: `python -m tests.train.together FOLDER UPDATES`.

Each takes its own rows of every batch; the test compares with one process that takes all.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from regard.core.protocols import Batch, Carry, Loss
from regard.train.display import SilentDisplay
from regard.train.loop import train
from tests.train.tiny import VOCABULARY, NextToken, Stream, settings

CHANGES: dict[str, object] = {
    "log_every": 1,
    "save_every": 4,
    "evaluate_every": 5,
    "accumulate": 2,
    "schedule": {"name": "plateau"},
}


class Plain(nn.Module):
    """The recurrent model without dropout and batch norm, which look at a process's own rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, VOCABULARY)
        self.rare = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, tokens: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None):
        hidden, state = self.lstm(self.embed(tokens), state)
        logits, begins = self.out(hidden), tokens[:, 0] == 0
        if begins.any():  # in one process only, at times: then only that one has a gradient of it
            logits = logits + begins[:, None, None] * self.rare
        return logits, state


class Share(Stream):
    """The rows of every batch that fall to one process; unevenly many."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rows=6)
        object.__setattr__(self, "mine", slice(0, 2) if rank == 0 else slice(2, 6))
        if size == 1:
            object.__setattr__(self, "mine", slice(0, 6))

    def batch(self, epoch: int, index: int) -> Batch:
        return {name: each[self.mine] for name, each in super().batch(epoch, index).items()}


class Stopping(NextToken):
    """The task, which may stop one process in the middle of an update.

    It counts the rows that begin with token 0, if there are any: at times in one process only.
    """

    def __init__(self, after: int | None) -> None:
        self.after, self.calls = after, 0

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        self.calls += 1
        if self.calls == self.after:
            os.kill(os.getpid(), signal.SIGTERM)
        loss, begins = super().loss(model, batch, carry), int((batch["tokens"][:, 0] == 0).sum())
        return replace(loss, counts={**loss.counts, "begins": float(begins)}) if begins else loss


def learn(folder: Path, updates: int, after: int | None = None) -> str:
    """Train in a folder; all processes but the first have another, as on other machines."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    model = Plain()
    if rank:  # the leading process's weights are what counts
        nn.init.zeros_(model.out.weight)
    result = train(
        model,
        Stopping(after if rank == size - 1 else None),
        Share(rank, size),
        settings(updates=updates, **CHANGES),
        folder if rank == 0 else folder / "another-disk",
        # Grows with training, so that the schedule has something to divide for.
        validate=lambda: {"loss": model.lstm.weight_ih_l0.square().sum().item()},
        display=SilentDisplay(),
    )
    return f"{result.outcome} {result.update}"


def gloo_threads() -> list[str]:
    """The threads of gloo in this process, where the system lists threads."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


if __name__ == "__main__":
    torch.set_num_threads(1)
    stop = int(sys.argv[3]) if len(sys.argv) > 3 else None
    print(json.dumps(learn(Path(sys.argv[1]), int(sys.argv[2]), stop)))
    assert not gloo_threads(), "a thread that outlives the process group may abort the process"
