"""An LSTM whose state is projected and clipped (Sak et al. 2014; as ELMo's code has it).

    c' = clip(σ(f) c + σ(i) tanh(g)),    h' = clip(P (σ(o) tanh(c')))

A wide cell with a narrow state: the recurrence costs hidden · width instead of hidden². Clipping
keeps what a state of many batches can grow to within bounds. A row's state stays as it is after its
last word.

>>> cells = ProjectedLSTM(4, hidden=8, width=3)
>>> states, after = cells(torch.randn(2, 5, 4), torch.tensor([5, 2]))
>>> states.shape, after.hidden.shape, after.cell.shape
(torch.Size([2, 5, 3]), torch.Size([2, 3]), torch.Size([2, 8]))
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import above_zero, positive
from regard.core.padding import real_positions


@dataclass(frozen=True)
class ProjectedState:
    """Where a row has come to."""

    hidden: Float[Tensor, "B D"]
    cell: Float[Tensor, "B C"]


class ProjectedLSTM(nn.Module):
    """One layer, one way; gates are in torch's order: input, forget, cell, output."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        width: int,
        *,
        cell_clip: float | None = None,
        clip: float | None = None,
    ) -> None:
        super().__init__()
        self.read = nn.Linear(positive("inputs", inputs), 4 * positive("hidden", hidden))
        self.again = nn.Linear(positive("width", width), 4 * hidden, bias=False)
        self.project = nn.Linear(hidden, width, bias=False)
        self.cell_clip = None if cell_clip is None else above_zero("cell_clip", cell_clip)
        self.clip = None if clip is None else above_zero("clip", clip)
        nn.init.orthogonal_(self.again.weight)
        with torch.no_grad():
            self.read.bias.zero_()[hidden : 2 * hidden] = 1.0  # remember, to begin with

    def start(self, x: Float[Tensor, "B T D"]) -> ProjectedState:
        """Nothing read yet."""
        rows = x.shape[0]
        return ProjectedState(
            x.new_zeros(rows, self.project.out_features),
            x.new_zeros(rows, self.project.in_features),
        )

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        lengths: Int[Tensor, "B"] | None = None,
        state: ProjectedState | None = None,
    ) -> tuple[Float[Tensor, "B T D"], ProjectedState]:
        """The state after each word, zero at padding, and the last one."""
        given = state or self.start(x)
        hidden, cell = given.hidden, given.cell
        real = None if lengths is None else real_positions(lengths, x.shape[1])  # [B,T]
        states: list[Tensor] = []
        for time, gates in enumerate(self.read(x).unbind(1)):
            new_hidden, new_cell = self._step(gates + self.again(hidden), cell)
            if real is None:
                hidden, cell = new_hidden, new_cell
                states.append(hidden)
                continue
            there = real[:, time, None]
            hidden = torch.where(there, new_hidden, hidden)
            cell = torch.where(there, new_cell, cell)
            states.append(torch.where(there, new_hidden, 0.0))
        return torch.stack(states, dim=1), ProjectedState(hidden, cell)

    def _step(self, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        into, keep, new, out = gates.chunk(4, dim=1)
        cell = keep.sigmoid() * cell + into.sigmoid() * new.tanh()
        if self.cell_clip is not None:
            cell = cell.clamp(-self.cell_clip, self.cell_clip)
        hidden = self.project(out.sigmoid() * cell.tanh())
        return (hidden if self.clip is None else hidden.clamp(-self.clip, self.clip)), cell
