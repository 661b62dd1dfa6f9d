"""Dropouts for recurrent networks that stay the same over time (Merity et al. 2018).

- WeightDropLSTM: some of the recurrent weights are zero for a whole window (section 2);
- LockedDropout: a number of a state is dropped at all positions of a row or at none (section 4.1);
- dropped_words: some words are dropped wherever they occur (section 4.3).

>>> x, _ = WeightDropLSTM(4, 6, dropout=0.5)(torch.randn(2, 5, 4), None)
>>> LockedDropout(0.5)(x).shape
torch.Size([2, 5, 6])
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import fraction, positive

CellState = tuple[Tensor, Tensor]
"""Hidden and cell state, each [1,B,D]."""


class WeightDropLSTM(nn.Module):
    """One layer of LSTM; while training, each window has its own recurrent weights left out."""

    def __init__(self, inputs: int, hidden: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = fraction("dropout", dropout)
        self.hidden = positive("hidden", hidden)
        self.read = nn.Parameter(torch.empty(4 * hidden, positive("inputs", inputs)))
        self.again = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4 * hidden))
        for each in self.parameters():
            nn.init.uniform_(each, -(hidden**-0.5), hidden**-0.5)

    def forward(
        self, x: Float[Tensor, "B T C"], state: CellState | None
    ) -> tuple[Float[Tensor, "B T D"], CellState]:
        """The state after each position, and the last one."""
        empty = x.new_zeros(1, x.shape[0], self.hidden)
        again = F.dropout(self.again, self.dropout, self.training)
        weights = [self.read, again, self.bias, torch.zeros_like(self.bias)]
        states, hidden, cell = torch.lstm(
            x, state or (empty, empty), weights, True, 1, 0.0, self.training, False, True
        )
        return states, (hidden, cell)


class LockedDropout(nn.Module):
    """Dropout whose choice is the same at all positions of a row."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = fraction("dropout", p)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """What is left; everything outside of training."""
        if not self.training or not self.p:
            return x
        return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), self.p)


def dropped_words(table: Float[Tensor, "V D"], p: float, training: bool) -> Float[Tensor, "V D"]:
    """A table of which whole rows are zero and the others larger by as much as is lost."""
    if not training or not p:
        return table
    return table * F.dropout(table.new_ones(table.shape[0], 1), p)
