"""Recurrent encoders over padded batches: Elman, GRU, LSTM, one way or both.

Sequences are packed, so padding is never stepped over: the backward direction starts at the last
real token, and the final state is that of the last real token.

>>> import torch
>>> encoder = RecurrentEncoder("gru", 4, 8)
>>> encoded = encoder(torch.randn(2, 5, 4), torch.tensor([5, 3]))
>>> encoded.states.shape, encoded.final.shape
(torch.Size([2, 5, 16]), torch.Size([1, 2, 16]))
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.core.errors import UserError, choose, fraction, positive

CELLS: dict[str, type[nn.RNN] | type[nn.GRU] | type[nn.LSTM]] = {
    "elman": nn.RNN,
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
"""Recurrent cells by the name a recipe calls them."""


@dataclass(frozen=True)
class Encoded:
    """What an encoder leaves: a state for each position, and the last ones."""

    states: Float[Tensor, "B S D"]
    """Both directions side by side; zero at padding."""
    final: Float[Tensor, "L B D"]
    """The last state of each layer, both directions side by side."""
    cell: Float[Tensor, "L B D"] | None = None
    """The last cell state of each layer of an LSTM."""


class RecurrentEncoder(nn.Module):
    """Reads a sequence and leaves a state at each position."""

    def __init__(
        self,
        kind: str,
        width: int,
        hidden: int,
        *,
        layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.width = width
        self.directions = 2 if bidirectional else 1
        self.layers = positive("layers", layers)
        fraction("dropout", dropout)
        self.cells = choose("recurrent cell", kind, CELLS)(
            positive("width", width),
            positive("hidden", hidden),
            num_layers=layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if layers > 1 else 0.0,
        )

    def forward(
        self, x: Float[Tensor, "B S C"], lengths: Int[Tensor, "B"] | None = None
    ) -> Encoded:
        """Encode; without lengths every position is real. An empty sequence leaves zeros."""
        if x.dim() != 3 or x.shape[2] != self.width:
            raise UserError(
                f"the sequence must be [batch, positions, {self.width}], not {list(x.shape)}"
            )
        if lengths is None:
            states, last = self.cells(x)
            return self._encoded(states, last, None)
        real = self._checked(lengths, x)
        packed = pack_padded_sequence(x, real.clamp_min(1), batch_first=True, enforce_sorted=False)
        states, last = self.cells(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])
        empty = (real == 0).to(x.device) if bool((real == 0).any()) else None
        return self._encoded(states, last, empty)

    def _checked(self, lengths: Tensor, x: Tensor) -> Tensor:
        real = lengths.detach().cpu()
        if real.shape != x.shape[:1] or real.is_floating_point():
            raise UserError(
                f"lengths must be {x.shape[0]} whole numbers, not {real.dtype} {list(real.shape)}"
            )
        if real.numel() and (int(real.max()) > x.shape[1] or int(real.min()) < 0):
            raise UserError(f"lengths must be 0 to {x.shape[1]}, not {real.tolist()}")
        return real

    def _encoded(
        self, states: Tensor, last: Tensor | tuple[Tensor, Tensor], empty: Tensor | None
    ) -> Encoded:
        both = last if isinstance(last, tuple) else (last, None)
        final, cell = (None if part is None else self._beside(part) for part in both)
        assert final is not None
        if empty is not None:
            blank = empty[:, None, None]
            states = torch.where(blank, 0.0, states)
            final = torch.where(empty[:, None], 0.0, final)
            cell = None if cell is None else torch.where(empty[:, None], 0.0, cell)
        return Encoded(states, final, cell)

    def _beside(self, last: Tensor) -> Tensor:
        """From one row per layer and direction to one row per layer."""
        paired = last.unflatten(0, (self.layers, self.directions))  # [L,2,B,C]
        side_by_side: Tensor = paired.transpose(1, 2).flatten(2)  # [L,B,D]
        return side_by_side
