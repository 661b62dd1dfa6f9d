"""The pictures of docs/, computed with the real parts of the package.

    python docs/pictures/draw.py                # draws all of them anew beside this file

Seeds are fixed, so that a picture changes only where the package does. Colours are those of Okabe
and Ito, and maps go from light to dark, so that people who see colours differently lose nothing.
"""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.attention import (
    WEIGHS,
    Attend,
    Cosine,
    Dot,
    Entmax15,
    LocalMonotonic,
    LocalPredictive,
    MixtureWindow,
    Past,
    ShiftSharpen,
    Softmax,
    Sparsemax,
    TopK,
    Weigh,
    causal,
    weigh_named,
)

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#BBBBBB"
INK = "#222222"
SHADES = "Blues"
"""For numbers from zero up."""
SIDES = "PuOr_r"
"""For numbers on both sides of zero."""


def sheet(width: float, height: float) -> Figure:
    """An empty figure that finds room for all its labels."""
    return Figure(figsize=(width, height), dpi=100, layout="constrained", facecolor="white")


def plain(axes: Axes, title: str) -> None:
    """A title, and no more frame than a reader needs."""
    axes.set_title(title, fontsize=11, color=INK)
    axes.tick_params(labelsize=9, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)


def heat(
    axes: Axes,
    numbers: Tensor,
    title: str,
    rows: list[str],
    columns: list[str],
    *,
    allowed: Tensor | None = None,
    digits: int = 1,
) -> None:
    """A table as colours, with the numbers written in; what is not allowed stays grey and empty."""
    shown = torch.ones_like(numbers, dtype=torch.bool) if allowed is None else allowed
    signed = bool(numbers.min() < 0)
    most = float(numbers.abs().max())
    painted = numbers.masked_fill(~shown, float("nan")).numpy()
    low = -most if signed else 0.0
    axes.imshow(painted, cmap=SIDES if signed else SHADES, vmin=low, vmax=most, aspect="auto")
    axes.set_facecolor("#E8E8E8")
    plain(axes, title)
    axes.spines[:].set_visible(False)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks([row - 0.5 for row in range(1, len(rows))], minor=True)
    axes.set_xticks([column - 0.5 for column in range(1, len(columns))], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    for row, column in shown.nonzero().tolist():
        number = float(numbers[row, column])
        text = f"{number:.{digits}f}"
        if signed or float(text) > 0:  # what rounds to nothing needs no text
            ink = "white" if abs(number) > 0.6 * most else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=9, color=ink)


def four_slots() -> Figure:
    """score -> mask -> weigh -> read, for the letters of one word that look back at themselves."""
    word = list("regard")
    letters = sorted(set(word))
    draws = torch.Generator().manual_seed(4)
    code = torch.randn(len(letters), 6, generator=draws)
    spelled = torch.tensor([letters.index(letter) for letter in word])
    query = code[spelled][None, None]  # [1,1,Q,E]
    value = F.one_hot(spelled, len(letters)).float()[None, None]  # [1,1,K,W]

    attend = Attend(Cosine(6, beta=2.0))
    memory = attend.remember(query, value)
    scores = attend.score(query, memory.key)
    allowed = causal().table(len(word), len(word))
    weights = attend.weights(query, memory, causal())
    read = attend(query, memory, causal())

    figure = sheet(13, 4.2)
    panels = figure.subplots(1, 4)
    slot = "1  score: how well does\nthis key match this query?"
    heat(panels[0], scores[0, 0], slot, word, word)
    slot = "2  mask: which keys\nmay be looked at?"
    heat(panels[1], allowed[0, 0].float(), slot, word, word, allowed=allowed[0, 0], digits=0)
    for text in panels[1].texts:
        text.set_text("may")
    slot = "3  weigh: how are scores\nturned into weights?"
    heat(panels[2], weights[0, 0], slot, word, word, allowed=allowed[0, 0], digits=2)
    slot = "4  read: what is\ntaken home?"
    heat(panels[3], read[0, 0], slot, word, letters, digits=2)
    for axes in panels[:3]:
        axes.set_xlabel("key", fontsize=10, color=INK)
    panels[0].set_ylabel("query", fontsize=10, color=INK)
    panels[3].set_xlabel("so much of each letter", fontsize=10, color=INK)
    return figure


def chosen_weighings(width: int) -> dict[str, Weigh]:
    """Every weighing of the table, by its title; windows are narrow enough for nine keys."""
    small: dict[str, tuple[str, Weigh]] = {
        "topk": ("topk, k=3", TopK(3)),
        "local_m": ("local_m, 2 either side of key 3", LocalMonotonic(reach=2)),
        "local_p": ("local_p, reach 3", LocalPredictive(width, reach=3)),
        "mixture_window": ("mixture_window of 2", MixtureWindow(width, mixtures=2)),
        "shift_sharpen": ("shift_sharpen, before: key 5", ShiftSharpen(width)),
    }
    return dict(small.get(name) or (name, weigh_named(name, width)) for name in WEIGHS)


def all_weighings() -> Figure:
    """The same scores through every weighing of the table; one key is forbidden."""
    scores = torch.tensor([0.4, 1.6, -0.5, 2.0, 2.6, 0.1, -1.2, 2.3, 0.9])
    keys = len(scores)
    allowed = torch.arange(keys) != 7
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        weighs = chosen_weighings(width=4)
        query = torch.randn(1, 1, 1, 4)
    before = F.one_hot(torch.tensor(5), keys).float().view(1, 1, 1, keys)
    past = Past(first=3, weights=before, state=torch.tensor([2.0, 4.5]).view(1, 1, 1, 2))

    figure = sheet(12, 9)
    tall = 1 + -(-len(weighs) // 4)
    grid = figure.add_gridspec(tall, 4)
    top = figure.add_subplot(grid[0, :])
    bars(top, scores, allowed, "the scores of nine keys; key 7 is masked out", GREY)
    top.axhline(0, color=INK, linewidth=0.8)
    top.set_ylabel("score", fontsize=10)
    with torch.no_grad():
        for i, (title, weigh) in enumerate(weighs.items()):
            weights = weigh(scores.view(1, 1, 1, keys), allowed.view(1, 1, 1, keys), query, past)
            row = weights.flatten()
            axes = figure.add_subplot(grid[1 + i // 4, i % 4])
            colour = BLUE if weigh.normalised else ORANGE
            bars(axes, row, allowed, f"{title}\nsum {float(row.sum()):.2f}", colour)
            axes.set_ylim(0, max(1.05, 1.05 * float(row.max())))
            if i % 4 == 0:
                axes.set_ylabel("weight", fontsize=10)
    figure.supxlabel(
        "key          blue: weights sum to one by construction;  orange: they need not", fontsize=10
    )
    return figure


def bars(axes: Axes, heights: Tensor, allowed: Tensor, title: str, colour: str) -> None:
    """One bar per key; keys that may not be looked at stand on a hatched ground."""
    axes.bar(range(len(heights)), heights.tolist(), color=colour, edgecolor=INK, linewidth=0.6)
    for key in (~allowed).nonzero().flatten().tolist():
        axes.axvspan(key - 0.5, key + 0.5, facecolor="none", edgecolor=GREY, hatch="///", zorder=0)
    axes.set_xticks(range(len(heights)))
    plain(axes, title)


def gate_keys(keep: Tensor) -> Tensor:
    """log(1 - z_t) - Σ_{s≤t} log z_s, and 0 for the start: [T,U] to [1,U,T+1,1]."""
    keys = (1 - keep).log() - keep.log().cumsum(0)
    return F.pad(keys, (0, 0, 1, 0)).t()[None, :, :, None]


def gate_weights(keep: Tensor) -> Tensor:
    """Where every state of a gated recurrence looks, asked of Attend: [U,T+1,T+1]."""
    key = gate_keys(keep)
    attend = Attend(Dot(1))
    return attend.weights(torch.ones_like(key), attend.remember(key, key), causal())[0]


def gru_gates(steps: int, units: int) -> Tensor:
    """The update gates of a real torch.nn.GRU on noise, [T,U]; unit by unit it keeps for longer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        gru = nn.GRU(4, units)
        inputs = torch.randn(steps, 4) * 2
    with torch.no_grad():
        gru.bias_ih_l0[units : 2 * units] = torch.linspace(-1.5, 4.0, units)
        state, gates = torch.zeros(units), []
        for x in inputs:
            of_input = F.linear(x, gru.weight_ih_l0, gru.bias_ih_l0).chunk(3)
            of_state = F.linear(state, gru.weight_hh_l0, gru.bias_hh_l0).chunk(3)
            gates.append((of_input[1] + of_state[1]).sigmoid())
            state = gru(x[None], state[None])[1][0]
    return torch.stack(gates)


def gates_to_attention() -> Figure:
    """Gates, the attention that they are, and the same for the units of a GRU."""
    keep = torch.tensor([0.6, 0.9, 0.95, 0.15, 0.9, 0.97, 0.9, 0.4, 0.9, 0.85])
    steps = len(keep)
    names = ["$h_0$", *(f"$c_{{{t}}}$" for t in range(1, steps + 1))]
    states = [f"$h_{{{t}}}$" for t in range(1, steps + 1)]
    figure = sheet(13, 4.4)
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1.35, 1.35])

    kept, written = keep.tolist(), (1 - keep).tolist()
    left.barh(range(1, steps + 1), kept, color=BLUE, label="z: kept of the old state")
    left.barh(range(1, steps + 1), written, left=kept, color=ORANGE, label="1 − z: written")
    left.set_ylim(steps + 0.5, 0.5)
    left.set_xlim(0, 1)
    left.set_yticks(range(1, steps + 1))
    plain(left, "the gate at each step")
    left.set_ylabel("step", fontsize=10)
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), fontsize=9, frameon=False)

    weights = gate_weights(keep[:, None])[0, 1:]
    seen = causal().table(steps, steps + 1, first=1)[0, 0]
    title = "the attention that these gates are"
    heat(middle, weights, title, states, names, allowed=seen)
    middle.set_xlabel("how much of the start and of each candidate", fontsize=10)

    units = 8
    last = gate_weights(gru_gates(steps, units))[:, -1]
    rows = [f"unit {unit}" for unit in range(units)]
    heat(right, last, f"a real GRU: $h_{{{steps}}}$ unit by unit", rows, names)
    right.set_xlabel("how much of the start and of each candidate", fontsize=10)
    return figure


def soft_to_exact() -> Figure:
    """A dictionary asked for one of its words, ever more sharply; and how the error falls."""
    words = ["cat", "dog", "hen", "owl", "pig", "rat", "yak"]
    draws = torch.Generator().manual_seed(2)
    key = torch.randn(1, 1, len(words), 5, generator=draws, dtype=torch.float64)
    asked = words.index("owl")

    figure = sheet(12, 4.6)
    grid = figure.add_gridspec(4, 2, width_ratios=[1, 1.6])
    for row, beta in enumerate((1.0, 4.0, 16.0, 64.0)):
        axes = figure.add_subplot(grid[row, 0])
        weights = looked_up(key, asked, beta, Softmax()).tolist()
        axes.bar(words, weights, color=[RED if word == "owl" else BLUE for word in words])
        plain(axes, "softmax weights when asked for “owl”" if row == 0 else "")
        axes.set_ylim(0, 1.05)
        axes.set_yticks([0, 1])
        axes.text(0.02, 0.68, f"β = {beta:.0f}", transform=axes.transAxes, fontsize=10)
        if row < 3:
            axes.set_xticklabels([])
    weights_astray(figure.add_subplot(grid[:, 1]), key, asked)
    return figure


def looked_up(key: Tensor, asked: int, beta: float, weigh: Weigh) -> Tensor:
    """The weights of all keys when one of them is asked for, `[K]`."""
    attend = Attend(Cosine(key.shape[3], beta=beta), weigh)
    return attend.weights(key[:, :, asked : asked + 1], attend.remember(key, key)).flatten()


def weights_astray(axes: Axes, key: Tensor, asked: int) -> None:
    """How much weight the other keys get, for growing β, between its two bounds."""
    cosine = Cosine(key.shape[3], beta=1.0)
    scores = cosine(key[:, :, asked : asked + 1], cosine.prepare(key))  # [1,1,1,K]
    others = torch.arange(key.shape[2]) != asked
    gap = float(1 - scores[..., others].max())
    betas = torch.linspace(0.05, 30, 600, dtype=torch.float64)
    nearest = torch.exp(-betas * gap)
    above, below = int(others.sum()) * nearest, nearest / (1 + nearest)
    axes.plot(betas, above, "--", color=INK, label="no more than (n − 1) exp(−β gap)")
    axes.plot(betas, below, ":", color=INK, label="no less than exp(−β gap) / (1 + exp(−β gap))")
    for label, weigh, colour in (
        ("softmax", Softmax(), RED),
        ("entmax15: exactly 0 from β = 2 / gap on", Entmax15(), GREEN),
        ("sparsemax: exactly 0 from β = 1 / gap on", Sparsemax(), BLUE),
    ):
        weights = weigh(betas.view(1, 1, 600, 1) * scores)  # [1,1,Q,K], a row for each β
        wrong = weights[0, 0, :, others].sum(-1)
        axes.plot(betas, wrong.clamp_min(1e-9), color=colour, linewidth=2.5, label=label)
    axes.set_yscale("log")
    axes.set_ylim(1e-5, 20)
    axes.set_xlim(0, 30)
    axes.set_xlabel("β", fontsize=10)
    axes.set_ylabel("weight of all the other keys", fontsize=10)
    plain(axes, f"how much goes astray; gap = 1 − cosine of the nearest other key = {gap:.2f}")
    axes.legend(fontsize=9, frameon=False, loc="upper right")


PICTURES: dict[str, Callable[[], Figure]] = {
    "slots.png": four_slots,
    "weighings.png": all_weighings,
    "gates-to-attention.png": gates_to_attention,
    "soft-to-exact.png": soft_to_exact,
}
"""Every picture, by the name of its file."""


def draw(folder: Path) -> list[Path]:
    """Draw all pictures into a folder."""
    paths = [folder / name for name in PICTURES]
    for path, picture in zip(paths, PICTURES.values(), strict=True):
        # Without the name of the software, equal pictures are equal files.
        picture().savefig(path, metadata={"Software": None}, pil_kwargs={"optimize": True})
    return paths


if __name__ == "__main__":
    for drawn in draw(Path(__file__).parent):
        print(drawn)
