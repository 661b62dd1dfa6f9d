"""Recurrent translators beside the usual loop of tutorials; run by bench/translate.py."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.measure import Work, medians, missing, show
from regard.core.protocols import Batch
from regard.models.translation.bahdanau import Bahdanau
from regard.models.translation.luong import Luong

ROWS, SOURCE, TARGET, WIDTH, VOCABULARY = 64, 30, 30, 256, 8000


class Tutorial(nn.Module):
    """The usual loop: embed, attend, concatenate, one step of nn.GRU, project, cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Embedding(VOCABULARY, WIDTH)
        self.target = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.begin = nn.Linear(WIDTH, WIDTH)
        self.ask = nn.Linear(WIDTH, WIDTH)
        self.answer = nn.Linear(2 * WIDTH, WIDTH)
        self.vector = nn.Linear(WIDTH, 1)
        self.decoder = nn.GRU(3 * WIDTH, WIDTH, batch_first=True)
        self.output = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, batch: Batch) -> Tensor:
        """The summed loss."""
        states, last = self.encoder(self.source(batch["source"]))
        hidden = self.begin(last[1]).tanh()[None]  # [1,B,D]
        loss: Tensor = states.new_zeros(())
        for step in range(batch["tokens"].shape[1]):
            word = self.target(batch["tokens"][:, step : step + 1])  # [B,1,D]
            asked = self.ask(hidden.transpose(0, 1))
            scores = self.vector((asked + self.answer(states)).tanh())  # [B,S,1]
            context = torch.bmm(scores.softmax(1).transpose(1, 2), states)  # [B,1,W]
            row, hidden = self.decoder(torch.cat((word, context), dim=2), hidden)
            logits = self.output(row[:, 0])
            loss += F.cross_entropy(logits, batch["targets"][:, step], reduction="sum")
        return loss


def texts() -> Batch:
    """Random sentences, all of full length."""
    return {
        "source": torch.randint(4, VOCABULARY, (ROWS, SOURCE)),
        "source_lengths": torch.full((ROWS,), SOURCE),
        "tokens": torch.randint(4, VOCABULARY, (ROWS, TARGET)),
        "targets": torch.randint(4, VOCABULARY, (ROWS, TARGET)),
    }


def their_pass(model: Tutorial, batch: Batch) -> Work:
    """Forward and backward of the tutorial's."""

    def work() -> None:
        model.zero_grad()
        model(batch).backward()

    return work


def our_pass(model: nn.Module, batch: Batch) -> Work:
    """Forward and backward of ours."""

    def work() -> None:
        model.zero_grad()
        prediction = model(batch)
        prediction.nll(batch["targets"]).backward()

    return work


def recurrent(repeats: int, sizes: list[str], workers: int) -> None:
    """Recurrent translators, a line for each."""
    both, same = (VOCABULARY, VOCABULARY), {"width": WIDTH, "hidden": WIDTH}
    stack = {"cell": "gru", "width": WIDTH, "layers": 1, "bidirectional": True}
    models: dict[str, nn.Module] = {
        "bahdanau, tanh readout": Bahdanau(
            Bahdanau.Config.model_validate({**same, "readout": "tanh"}), *both
        ),
        "bahdanau, maxout readout": Bahdanau(Bahdanau.Config.model_validate(same), *both),
        "luong, input feeding": Luong(Luong.Config.model_validate(stack), *both),
        "luong, not fed": Luong(Luong.Config.model_validate({**stack, "feeding": False}), *both),
    }
    batch = texts()
    theirs = their_pass(Tutorial(), batch)
    rows = []
    for name, model in models.items():
        works = {"ours": our_pass(model, batch), "theirs": theirs}
        seconds = medians(works, repeats)
        rate = ROWS * TARGET / seconds["ours"]
        rows.append((name, f"{rate:,.0f}", f"{seconds['theirs'] / seconds['ours']:.2f}"))
    show(
        f"Training, {ROWS} rows of {SOURCE} and {TARGET}, width {WIDTH}, vocabulary {VOCABULARY:,}",
        ["model", "tokens/s", "by the tutorial's loop (goal 1.4)"],
        rows,
    )
    missing("joeynmt")
