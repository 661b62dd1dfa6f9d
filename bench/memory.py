"""Memory machines: time and memory per step by the number of slots, and beside peers.

    python -m bench.memory                        both tables
    python -m bench.memory --slots 8 16           from 2^8 to 2^16 slots
    python -m bench.memory --picture memory.svg   the curves of the first table

The first table repeats figure 1 of Rae et al. (2016): one training step, forward and backward, of
sparse access memory and of the dense Neural Turing Machine, with four heads each, slots of 32, an
LSTM of 100 and sequences of `--steps` steps. The initial memory is not counted, as in the paper.

The second has training steps on the copy task at the peers' sizes: the package `dnc` from PyPI, if
it is installed, and a plain loop over the equations of the Neural Turing Machine with a layer for
each parameter of each head, as most ports have it. The sparse models of that package need FLANN or
FAISS for GPUs; no others are to be had.
"""

import argparse
import gc
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.measure import Work, medians, missing, peak_bytes, show
from regard.data.algorithms import CopyBits
from regard.models.memory.dnc import DNC
from regard.models.memory.ntm import NTM
from regard.models.memory.sam import SAM
from regard.outputs.bits import Bits

INPUTS, OUTPUTS, HEADS = 9, 8, 4


def machine(kind: str, slots: int, heads: int) -> NTM | SAM:
    """A machine with so many slots of 32."""
    if kind == "NTM":
        dense = NTM.Config(slots=slots, width=32, read_heads=heads, write_heads=heads)
        return NTM(dense, INPUTS, OUTPUTS)
    sparse = SAM.Config(slots=slots, width=32, heads=heads, nearest=4, index="hashed")
    return SAM(sparse, INPUTS, OUTPUTS)


def sequence(model: NTM | SAM, steps: int) -> Callable[[], Work]:
    """Starts a sequence, which is not timed, and returns its forward and backward pass."""
    inputs = torch.randn(1, steps, INPUTS)

    def start() -> Work:
        first = model.start(1)

        def run() -> None:
            outputs, state = [], first
            for drive in model.controller.drive(inputs):
                both, state = model.step(drive, state)  # type: ignore[arg-type]
                outputs.append(both)
            model.output(torch.stack(outputs, 1)).square().sum().backward()

        return run

    return start


def seconds_per_step(model: NTM | SAM, steps: int, repeats: int) -> float:
    """The least time of forward and backward, by the clock of this process."""
    start, best = sequence(model, steps), float("inf")
    for _ in range(repeats + 1):
        run = start()
        gc.collect()
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best / steps


def bytes_per_sequence(model: NTM | SAM, steps: int) -> int:
    """The most memory held at once in forward and backward, beyond the initial memory."""
    runs = [sequence(model, steps)() for _ in range(2)]
    return peak_bytes(lambda: runs.pop()())


def by_slots(powers: range, steps: int, heads: int) -> list[list[float]]:
    """The first table: rows of log2 slots, then time and memory of each machine."""
    rows, table = [], []
    for power in powers:
        found: list[float] = [power]
        for kind in ("SAM", "NTM"):
            few = steps if kind == "SAM" or power <= 12 else max(4, steps // 8)
            model = machine(kind, 2**power, heads)
            found.append(seconds_per_step(model, few, 2) * 1e3)
            found.append(bytes_per_sequence(model, few) / few * steps / 2**20)
        rows.append(found)
        table.append(
            [
                f"2^{power}", f"{found[1]:.2f}", f"{found[3]:.2f}", f"{found[3] / found[1]:.1f}",
                f"{found[2]:.2f}", f"{found[4]:.1f}", f"{found[4] / found[2]:.0f}",
            ]
        )  # fmt: skip
        print(*table[-1], flush=True)
    header = ["slots", "SAM ms", "NTM ms", "ratio", "SAM MiB", "NTM MiB", "ratio"]
    show(f"one step, forward and backward, {heads} heads; memory of {steps} steps", header, table)
    return rows


def draw(rows: list[list[float]], path: Path) -> None:
    """The curves of the first table."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    slots = [2 ** row[0] for row in rows]
    for place, (column, label) in enumerate(((1, "ms per step"), (2, "MiB per sequence"))):
        axes = figure.add_subplot(1, 2, place + 1)
        for name, at, colour in (("SAM", column, "#0072B2"), ("NTM", column + 2, "#D55E00")):
            axes.plot(slots, [row[at] for row in rows], "o-", label=name, color=colour)
        axes.set(xscale="log", yscale="log", xlabel="slots", ylabel=label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


class PlainNTM(nn.Module):
    """The usual port: a layer for each parameter, rows convolved one by one."""

    def __init__(self, slots: int = 128, width: int = 20, hidden: int = 100) -> None:
        super().__init__()
        self.slots, self.width, self.hidden = slots, width, hidden
        self.cell = nn.LSTMCell(INPUTS + width, hidden)
        sizes = {"key": width, "beta": 1, "gate": 1, "shift": 3, "gamma": 1}
        self.reading = nn.ModuleDict({name: nn.Linear(hidden, n) for name, n in sizes.items()})
        sizes |= {"erase": width, "add": width}
        self.writing = nn.ModuleDict({name: nn.Linear(hidden, n) for name, n in sizes.items()})
        self.output = nn.Linear(hidden + width, OUTPUTS)

    def address(self, head: nn.ModuleDict, h: Tensor, memory: Tensor, before: Tensor) -> Tensor:
        """Equations 5 to 9."""
        key, beta = head["key"](h), F.softplus(head["beta"](h))
        gate, shift = torch.sigmoid(head["gate"](h)), F.softmax(head["shift"](h), 1)
        gamma = 1 + F.softplus(head["gamma"](h))
        content = F.softmax(beta * F.cosine_similarity(memory, key[:, None], dim=2), 1)
        gated = gate * content + (1 - gate) * before
        moved = torch.zeros_like(gated)
        for row in range(len(gated)):
            ring = torch.cat((gated[row, -1:], gated[row], gated[row, :1]))
            moved[row] = F.conv1d(ring[None, None], shift[row].flip(0)[None, None])[0, 0]
        powers = (moved + 1e-16) ** gamma
        return powers / powers.sum(1, keepdim=True)

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits of every step."""
        rows = len(inputs)
        memory = inputs.new_full((rows, self.slots, self.width), 1e-6)
        h = c = inputs.new_zeros(rows, self.hidden)
        read = inputs.new_zeros(rows, self.width)
        reading = writing = F.one_hot(torch.zeros(rows, dtype=torch.long), self.slots).float()
        found = []
        for step in range(inputs.shape[1]):
            h, c = self.cell(torch.cat((inputs[:, step], read), 1), (h, c))
            reading = self.address(self.reading, h, memory, reading)
            read = (reading[:, None] @ memory)[:, 0]
            writing = self.address(self.writing, h, memory, writing)
            erase, add = torch.sigmoid(self.writing["erase"](h)), self.writing["add"](h)
            memory = memory * (1 - writing[:, :, None] * erase[:, None])
            memory = memory + writing[:, :, None] * add[:, None]
            found.append(self.output(torch.cat((h, read), 1)))
        return torch.stack(found, 1)


class PeerDNC(nn.Module):
    """The Differentiable Neural Computer of the package `dnc`, with a last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = import_module("dnc").DNC(
            INPUTS, 64, num_hidden_layers=1, nr_cells=16, cell_size=16, read_heads=4
        )
        self.output = nn.Linear(INPUTS, OUTPUTS)

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits of every step."""
        states, _ = self.machine(inputs, (None, None, None), reset_experience=True)
        logits: Tensor = self.output(states)
        return logits


def training(model: nn.Module, logits: Callable[[Tensor], Tensor], rows: int) -> Work:
    """One update on copies of ten vectors."""
    batch = CopyBits().draw(rows, 10, 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def work() -> None:
        optimiser.zero_grad()
        Bits(logits(batch["inputs"])).loss(batch).backward()
        optimiser.step()

    return work


def of_regard(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The logits of one of our machines."""
    return lambda inputs: Bits.of(model, {"inputs": inputs}).logits


def beside_peers(repeats: int) -> None:
    """The second table."""
    table = []
    for rows in (1, 16):
        ours, plain = NTM(NTM.Config(), INPUTS, OUTPUTS), PlainNTM()
        works = {
            "regard": training(ours, of_regard(ours), rows),
            "plain loop": training(plain, plain, rows),
        }
        table += _compared(f"NTM 128 x 20, LSTM 100, batch {rows}", works, repeats)
    for rows in () if missing("dnc") else (1, 16):
        computer, peer = DNC(DNC.Config(), INPUTS, OUTPUTS), PeerDNC()
        works = {
            "regard": training(computer, of_regard(computer), rows),
            "dnc": training(peer, peer, rows),
        }
        table += _compared(f"DNC 16 x 16, 4 reads, LSTM 64, batch {rows}", works, repeats)
    show("updates per second on copies of ten vectors", ["model", "", "per second", "x"], table)


def _compared(name: str, works: dict[str, Work], repeats: int) -> list[list[str]]:
    spent = medians(works, repeats)
    return [
        [name if each == "regard" else "", each, f"{1 / seconds:.1f}",
         f"{spent[each] / spent['regard']:.2f}"]
        for each, seconds in spent.items()
    ]  # fmt: skip


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--slots", type=int, nargs=2, default=(8, 16), help="powers of two")
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--heads", type=int, default=HEADS)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--picture", type=Path)
    options.add_argument("--only", choices=["slots", "peers"])
    chosen = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if chosen.only != "peers":
        powers = range(chosen.slots[0], chosen.slots[1] + 1)
        found = by_slots(powers, chosen.steps, chosen.heads)
        if chosen.picture:
            draw(found, chosen.picture)
    if chosen.only != "slots":
        beside_peers(chosen.repeats)
