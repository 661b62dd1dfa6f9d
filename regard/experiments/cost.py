"""Cost: what self-attention, recurrence and convolution of one width take as texts grow.

The table of Vaswani et al. 2017 (table 1) says n²d, nd² and knd² multiplications, 1, n and 1 steps
that wait for one another, and paths of 1, n and n/k between the farthest positions. Here the
multiplications are counted by torch as it runs the layers, and time and memory are measured.

>>> attention, recurrence, _ = (counted(layer, 64) for layer in layers(64, heads=4))
>>> attention == recurrence == 2 * 64 * 64 * 64           # as many positions as width
True
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import Attend, score_named
from regard.core.errors import UserError, divides, positive
from regard.layers.multihead import SelfAttention

_Length = int
"""Positions."""


@dataclass(frozen=True)
class Layer:
    """A kind of layer, as the table speaks of it and as it is built."""

    name: str
    formula: str
    """Multiplications of its core by the table."""
    multiplications: Callable[[int, int], int]
    """The same as a number, of a length and a width; constant factors included."""
    core: Callable[[_Length], tuple[nn.Module, Tensor]]
    """What the formula speaks of, with its input, on the meta device."""
    whole: nn.Module
    """The layer with its projections."""
    steps: Callable[[_Length], int]
    """Steps that wait for one another."""
    path: Callable[[_Length], int]
    """Layers between the first and the last position."""

    @property
    def parameters(self) -> int:
        """Of the whole layer."""
        return sum(each.numel() for each in self.whole.parameters())


class Attention(nn.Module):
    """Scores and read of self-attention, without projections."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.each = heads, divides("width", width, "heads", heads)
        self.attend = Attend(score_named("scaled_dot", self.each))

    def forward(self, x: Tensor) -> Tensor:
        """All positions look at all."""
        split = x.unflatten(2, (self.heads, self.each)).transpose(1, 2)  # [B,H,T,E]
        read: Tensor = self.attend(split, self.attend.remember(split, split))
        return read.transpose(1, 2).flatten(2)


class Recurrence(nn.Module):
    """An Elman network: what came, and what was before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cells = nn.RNN(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """One position after another."""
        states: Tensor = self.cells(x)[0]
        return states


class Convolution(nn.Module):
    """A window of `kernel` positions slides along."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.slide = nn.Conv1d(width, width, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        """Each position sees its neighbours."""
        slid: Tensor = self.slide(x.transpose(1, 2))
        return slid.transpose(1, 2)


def layers(width: int, *, heads: int = 1, kernel: int = 3) -> tuple[Layer, Layer, Layer]:
    """Self-attention, recurrence and convolution of one width."""
    positive("width", width)
    if positive("kernel", kernel) % 2 == 0 or kernel < 3:
        raise UserError(f"kernel={kernel} must be odd and at least 3, to keep the length")

    def given(module: Callable[[], nn.Module]) -> Callable[[int], tuple[nn.Module, Tensor]]:
        def core(length: int) -> tuple[nn.Module, Tensor]:
            with torch.device("meta"):
                return module(), torch.empty(1, length, width)

        return core

    attention = Layer(
        "self-attention",
        "n² d",
        lambda n, d: 2 * n * n * d,
        given(lambda: Attention(width, heads)),
        SelfAttention(width, heads),
        lambda n: 1,
        lambda n: 1,
    )
    recurrence = Layer(
        "recurrence",
        "n d²",
        lambda n, d: 2 * n * d * d,
        given(lambda: Recurrence(width)),
        Recurrence(width),
        lambda n: n,
        lambda n: n,
    )
    convolution = Layer(
        "convolution",
        "k n d²",
        lambda n, d: kernel * n * d * d,
        given(lambda: Convolution(width, kernel)),
        Convolution(width, kernel),
        lambda n: 1,
        lambda n: max(1, ceil((n - 1) / (kernel - 1))),
    )
    return attention, recurrence, convolution


def counted(layer: Layer, length: int) -> int:
    """Multiplications of the core, as torch counts them; nothing is computed.

    Where steps wait for one another, one is counted for all.
    """
    steps = layer.steps(length)
    module, given = layer.core(length // steps)
    return steps * _multiplications_of(module, given)


def _multiplications_of(module: nn.Module, given: Tensor) -> int:
    """Multiplications of a pass; each is one multiplication and one addition in torch's count."""
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():  # fused kernels go uncounted
        module(given)
    return int(counter.get_total_flops()) // 2


@dataclass(frozen=True)
class Cost:
    """One layer at one length."""

    layer: str
    formula: str
    length: int
    multiplications: int
    """Of its core, counted."""
    expected: int
    """The same by the formula."""
    parameters: int
    steps: int
    path: int
    kept_bytes: int
    """What a forward pass of the whole layer keeps for the backward pass, measured."""
    milliseconds: float
    """Forward and backward of the whole layer with a batch of one, the best of several."""


def costs(
    width: int,
    lengths: Sequence[int],
    *,
    heads: int = 1,
    kernel: int = 3,
    device: torch.device | str = "cpu",
    repeats: int = 3,
    told: Callable[[str], None] = lambda text: None,
) -> list[Cost]:
    """Every layer at every length, counted and measured."""
    found = []
    for length in lengths:
        for layer in layers(width, heads=heads, kernel=kernel):
            told(f"{layer.name}, {length} positions")
            x = torch.randn(1, positive("length", length), width, device=device)
            whole = layer.whole.to(device)
            found.append(
                Cost(
                    layer.name,
                    layer.formula,
                    length,
                    counted(layer, length),
                    layer.multiplications(length, width),
                    layer.parameters,
                    layer.steps(length),
                    layer.path(length),
                    kept_bytes(whole, x),
                    1000 * min(_seconds(whole, x) for _ in range(repeats)),
                )
            )
    return found


def kept_bytes(module: nn.Module, x: Tensor) -> int:
    """What autograd keeps of a forward pass, each memory once, parameters not."""
    own = {each.untyped_storage().data_ptr() for each in module.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = module(x.detach().requires_grad_())  # alive until counted, or memory is used twice
    del out
    return sum(kept.values())


def _seconds(module: nn.Module, x: Tensor) -> float:
    """One forward and backward pass."""
    begun = time.perf_counter()
    module(x.detach().requires_grad_()).sum().backward()
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)
    module.zero_grad()
    return time.perf_counter() - begun


def crossing(found: Sequence[Cost], first: str, second: str, of: str) -> float | None:
    """The length at which the first layer begins to cost more than the second.

    `of` is what is compared, such as multiplications; between two lengths that were tried it is
    found on straight lines between logarithms. None if they do not cross.
    """
    lines = {
        name: [(cost.length, float(getattr(cost, of))) for cost in found if cost.layer == name]
        for name in (first, second)
    }
    pairs = list(zip(lines[first], lines[second], strict=True))
    for ((n, a), (_, b)), ((m, c), (_, d)) in pairwise(pairs):
        if a <= b and c > d:
            if min(a, b, c, d) <= 0:
                return float(m)
            gap, later = torch.tensor([b / a, c / d]).log().tolist()
            share = gap / (gap + later)
            return float(n * (m / n) ** share)
    return None


def lengths_of(text: str) -> list[int]:
    """Lengths from `32..4096`, doubling, or from `32,100,500`.

    >>> lengths_of("32..200"), lengths_of("10,20")
    ([32, 64, 128], [10, 20])
    """
    first, dots, last = text.partition("..")
    try:
        if not dots:
            return [positive("length", int(each)) for each in text.split(",")]
        low, high = positive("length", int(first)), positive("length", int(last))
    except ValueError:
        raise UserError(f"lengths are 32..4096 or 32,64,100, not {text!r}") from None
    if low > high:
        raise UserError(f"lengths go up: {text} does not")
    found = [low]
    while found[-1] * 2 <= high:
        found.append(found[-1] * 2)
    return found
