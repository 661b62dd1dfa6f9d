"""The recurrence of a decoder: over a whole target in one fused call, or a step at a time.

A decoder that attends has an input that only the step before can tell: the context it looked up, or
the attentional vector it is fed with. Everything else about the inputs is known in advance, so its
share of the gates is computed for all steps in one product (`enter`), and a step adds two small
ones: of what it is fed with, and of its own state.

>>> import torch
>>> decoder = RecurrentDecoder("gru", 4, 8, fed=6)
>>> state = Hidden((torch.zeros(2, 8),))
>>> for entered in decoder.enter(torch.randn(2, 5, 4)):
...     state = decoder.step(entered, torch.randn(2, 6), state)
>>> state.top.shape
torch.Size([2, 8])
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import choose, positive
from regard.kernels.dropout import Dropout
from regard.layers.recurrent import Encoded

STACKS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}
"""Stacks of gated layers by the name a recipe calls them."""


@dataclass(frozen=True)
class Hidden:
    """The state of each layer, from the lowest to the top, and the cells of an LSTM."""

    hidden: tuple[Float[Tensor, "B D"], ...]
    cell: tuple[Float[Tensor, "B D"], ...] = ()

    @property
    def top(self) -> Float[Tensor, "B D"]:
        """The state that the layers above see."""
        return self.hidden[-1]

    def select(self, rows: Int[Tensor, "N"]) -> "Hidden":
        """The state of the chosen batch rows, in that order."""
        return Hidden(
            tuple(each.index_select(0, rows) for each in self.hidden),
            tuple(each.index_select(0, rows) for each in self.cell),
        )

    @staticmethod
    def of(encoded: Encoded) -> "Hidden":
        """The state in which an encoder ended, for a decoder to go on from."""
        cell = () if encoded.cell is None else encoded.cell.unbind(0)
        return Hidden(encoded.final.unbind(0), cell)


class RecurrentDecoder(nn.Module):
    """A stack of GRU or LSTM layers; `fed` is the width of what its first layer is fed with.

    The gates are those of torch's own layers, whose weights these are, so both ways to run it agree
    where nothing is fed. In a GRU the reset gate therefore acts on U s rather than on s (Cho et al.
    2014 have it on s), which makes one product of two.
    """

    def __init__(
        self,
        kind: str,
        width: int,
        hidden: int,
        *,
        fed: int = 0,
        layers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.dropout = Dropout(dropout)
        self.cells = choose("recurrent cell", kind, STACKS)(
            positive("width", width),
            positive("hidden", hidden),
            num_layers=positive("layers", layers),
            batch_first=True,
            dropout=dropout if layers > 1 else 0.0,
        )
        gates = len(self.cells.all_weights[0][0])
        self.feed = nn.Linear(positive("fed", fed), gates, bias=False) if fed else None

    def forward(
        self, x: Float[Tensor, "B T C"], state: Hidden
    ) -> tuple[Float[Tensor, "B T D"], Hidden]:
        """The top state at each position, and the last ones: all steps at once, nothing fed."""
        assert self.feed is None, "a decoder that is fed goes step by step"
        hidden = torch.stack(state.hidden)  # [L,B,D]
        if not state.cell:
            states, last = self.cells(x, hidden)
            return states, Hidden(last.unbind(0))
        states, (last, cell) = self.cells(x, (hidden, torch.stack(state.cell)))
        return states, Hidden(last.unbind(0), cell.unbind(0))

    def enter(self, x: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B C"], ...]:
        """What the inputs themselves say to the first layer's gates, for each step in turn."""
        enter, _, bias, _ = self.cells.all_weights[0]
        return F.linear(x.transpose(0, 1), enter, bias).unbind(0)  # [T,B,C]

    def step(
        self, entered: Float[Tensor, "B C"], fed: Float[Tensor, "B W"], state: Hidden
    ) -> Hidden:
        """The state after one step."""
        assert self.feed is not None, "a decoder that is fed nothing takes all steps at once"
        hidden: list[Tensor] = []
        cell: list[Tensor] = []
        sums = torch.addmm(entered, fed, self.feed.weight.t())
        for layer, (enter, again, bias, again_bias) in enumerate(self.cells.all_weights):
            if layer:
                below: Tensor = self.dropout(hidden[-1])
                sums = F.linear(below, enter, bias)
            turned = F.linear(state.hidden[layer], again, again_bias)
            if state.cell:
                new, kept = _lstm(sums + turned, state.cell[layer])
                cell.append(kept)
            else:
                new = _gru(sums, turned, state.hidden[layer])
            hidden.append(new)
        return Hidden(tuple(hidden), tuple(cell))


def _gru(sums: Tensor, turned: Tensor, hidden: Tensor) -> Tensor:
    """h' = (1 - z) n + z h, n = tanh(x + r ∘ U h), from what input and state say to r, z and n."""
    width = hidden.shape[1]
    sums, enter = sums.split((2 * width, width), dim=1)
    turned, again = turned.split((2 * width, width), dim=1)
    reset, update = (sums + turned).sigmoid().chunk(2, dim=1)
    return torch.lerp(torch.addcmul(enter, reset, again).tanh(), hidden, update)


def _lstm(sums: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """h' = o tanh(c'), with c' = f c + i tanh(g), from the sums of i, f, g, o; and c' itself."""
    width = cell.shape[1]
    early, candidate, late = sums.split((2 * width, width, width), dim=1)
    enter, forget = early.sigmoid().chunk(2, dim=1)
    cell = torch.addcmul(forget * cell, enter, candidate.tanh())
    return late.sigmoid() * cell.tanh(), cell
