"""The cost of self-attention, recurrence and convolution of one width, by the sequence length.

Table 1 of Vaswani et al. 2017 lists n²d, nd² and knd² multiplications, 1, n and 1 sequential steps,
and paths of 1, n and n/k between the farthest positions. Here torch counts the multiplications, and
time and memory are measured.

>>> kinds = layer_kinds(64, heads=4)
>>> attention, recurrence, _ = (count_multiplications(kind, 64) for kind in kinds)
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
from regard.core.protocols import ProgressCallback, no_progress
from regard.layers.multihead import SelfAttention

_Length = int
"""Positions."""


@dataclass(frozen=True)
class LayerKind:
    """A row of the table, with modules to measure."""

    name: str
    formula: str
    """The multiplications of its core in the table."""
    multiplications: Callable[[int, int], int]
    """Their number for a length and a width, with constant factors."""
    core: Callable[[_Length], tuple[nn.Module, Tensor]]
    """The module of the formula and its input for a length, on the meta device."""
    whole: nn.Module
    """The layer with its projections."""
    steps: Callable[[_Length], int]
    """Sequential steps."""
    path: Callable[[_Length], int]
    """Layers between the first and the last position."""

    @property
    def parameters(self) -> int:
        """Of the whole layer."""
        return sum(each.numel() for each in self.whole.parameters())


class AttentionCore(nn.Module):
    """Scores and read of self-attention, without projections."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.each = heads, divides("width", width, "heads", heads)
        self.attend = Attend(score_named("scaled_dot", self.each))

    def forward(self, x: Tensor) -> Tensor:
        """All positions attend to all."""
        split = x.unflatten(2, (self.heads, self.each)).transpose(1, 2)  # [B,H,T,E]
        read: Tensor = self.attend(split, self.attend.remember(split, split))
        return read.transpose(1, 2).flatten(2)


class RecurrenceCore(nn.Module):
    """An Elman network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cells = nn.RNN(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """One position after another."""
        states: Tensor = self.cells(x)[0]
        return states


class ConvolutionCore(nn.Module):
    """A one-dimensional convolution over `kernel` positions."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.slide = nn.Conv1d(width, width, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        """All positions at once."""
        slid: Tensor = self.slide(x.transpose(1, 2))
        return slid.transpose(1, 2)


def layer_kinds(
    width: int, *, heads: int = 1, kernel: int = 3
) -> tuple[LayerKind, LayerKind, LayerKind]:
    """Self-attention, recurrence and convolution of one width."""
    positive("width", width)
    if positive("kernel", kernel) % 2 == 0 or kernel < 3:
        raise UserError(f"kernel={kernel} must be odd and at least 3, to keep the length")

    def on_meta(module: Callable[[], nn.Module]) -> Callable[[int], tuple[nn.Module, Tensor]]:
        def core(length: int) -> tuple[nn.Module, Tensor]:
            with torch.device("meta"):
                return module(), torch.empty(1, length, width)

        return core

    attention = LayerKind(
        "self-attention",
        "n² d",
        lambda n, d: 2 * n * n * d,
        on_meta(lambda: AttentionCore(width, heads)),
        SelfAttention(width, heads),
        lambda n: 1,
        lambda n: 1,
    )
    recurrence = LayerKind(
        "recurrence",
        "n d²",
        lambda n, d: 2 * n * d * d,
        on_meta(lambda: RecurrenceCore(width)),
        RecurrenceCore(width),
        lambda n: n,
        lambda n: n,
    )
    convolution = LayerKind(
        "convolution",
        "k n d²",
        lambda n, d: kernel * n * d * d,
        on_meta(lambda: ConvolutionCore(width, kernel)),
        ConvolutionCore(width, kernel),
        lambda n: 1,
        lambda n: max(1, ceil((n - 1) / (kernel - 1))),
    )
    return attention, recurrence, convolution


def count_multiplications(layer: LayerKind, length: int) -> int:
    """The multiplications of the core, counted by torch without computing them.

    Of sequential steps one is counted and multiplied.
    """
    steps = layer.steps(length)
    module, given = layer.core(length // steps)
    return steps * _multiplications_of(module, given)


def _multiplications_of(module: nn.Module, given: Tensor) -> int:
    """The multiplications of a pass; torch counts each with its addition as two operations."""
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():  # fused kernels are not counted
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
    """By the formula."""
    parameters: int
    steps: int
    path: int
    saved_bytes: int
    """What a forward pass of the whole layer saves for the backward pass, measured."""
    milliseconds: float
    """Forward and backward pass of the whole layer with a batch of one, the best of several."""


def measure_costs(
    width: int,
    lengths: Sequence[int],
    *,
    heads: int = 1,
    kernel: int = 3,
    device: torch.device | str = "cpu",
    repeats: int = 3,
    progress: ProgressCallback = no_progress,
) -> list[Cost]:
    """Every layer at every length, counted and measured."""
    found = []
    for length in lengths:
        for layer in layer_kinds(width, heads=heads, kernel=kernel):
            progress(f"{layer.name}, {length} positions")
            x = torch.randn(1, positive("length", length), width, device=device)
            whole = layer.whole.to(device)
            found.append(
                Cost(
                    layer.name,
                    layer.formula,
                    length,
                    count_multiplications(layer, length),
                    layer.multiplications(length, width),
                    layer.parameters,
                    layer.steps(length),
                    layer.path(length),
                    saved_bytes(whole, x),
                    1000 * min(_seconds(whole, x) for _ in range(repeats)),
                )
            )
    return found


def saved_bytes(module: nn.Module, x: Tensor) -> int:
    """The bytes that autograd saves in a forward pass: each storage once, without parameters."""
    own = {each.untyped_storage().data_ptr() for each in module.parameters()}
    saved: dict[int, int] = {}

    def add(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(add, lambda tensor: tensor):
        out = module(x.detach().requires_grad_())  # alive until then: freed memory is reused
    del out
    return sum(saved.values())


def _seconds(module: nn.Module, x: Tensor) -> float:
    """One forward and backward pass."""
    start = time.perf_counter()
    module(x.detach().requires_grad_()).sum().backward()
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)
    module.zero_grad()
    return time.perf_counter() - start


def crossing_length(found: Sequence[Cost], first: str, second: str, of: str) -> float | None:
    """The length from which the first layer costs more than the second; None if there is none.

    `of` is a field of Cost, such as multiplications. Between two measured lengths it is
    interpolated on a log-log scale.
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


def parse_lengths(text: str) -> list[int]:
    """Lengths from `32..4096`, doubling, or from `32,100,500`.

    >>> parse_lengths("32..200"), parse_lengths("10,20")
    ([32, 64, 128], [10, 20])
    """
    first, dots, last = text.partition("..")
    try:
        if not dots:
            return [positive("length", int(each)) for each in text.split(",")]
        low, high = positive("length", int(first)), positive("length", int(last))
    except ValueError:
        raise UserError(f"lengths are written as 32..4096 or 32,64,100, not {text!r}") from None
    if low > high:
        raise UserError(f"the first length must not exceed the last: {text}")
    found = [low]
    while found[-1] * 2 <= high:
        found.append(found[-1] * 2)
    return found
