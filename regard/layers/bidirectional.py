"""A recurrent network both ways over padded rows, without packing them.

torch's packed sequences never step over padding, but on a CPU their backward pass copies the whole
batch at every step: with 250 steps it is several times as slow as rows of equal length. Here rows
stay padded, which costs little where batches hold texts of about one length, and padding still
never matters: the way back begins at the last real word of each row.

>>> reader = Bidirectional("lstm", 4, 3)
>>> reader(torch.randn(2, 5, 4), torch.tensor([5, 2])).shape
torch.Size([2, 5, 6])
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import choose, positive
from regard.core.padding import real_positions
from regard.kernels.dropout import Dropout
from regard.layers.recurrent import CELLS


class Bidirectional(nn.Module):
    """States of both directions side by side at every word; zero at padding.

    With several layers, each reads both directions of the one below, with dropout between.
    """

    def __init__(
        self, kind: str, width: int, hidden: int, *, layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        cell = choose("recurrent cell", kind, CELLS)
        self.width = 2 * positive("hidden", hidden)
        """Of the states."""
        widths = [positive("width", width), *[self.width] * (positive("layers", layers) - 1)]
        self.forth = nn.ModuleList(cell(each, hidden, batch_first=True) for each in widths)
        self.back = nn.ModuleList(cell(each, hidden, batch_first=True) for each in widths)
        self.between = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T C"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B T D"]:
        """A state for every word."""
        real = real_positions(lengths, x.shape[1])  # [B,T]
        turn = mirrored(lengths, x.shape[1])[..., None]  # [B,T,1]
        for depth, (forth, back) in enumerate(zip(self.forth, self.back, strict=True)):
            if depth:
                x = self.between(x)
            ahead, _ = forth(x)  # [B,T,D/2]
            behind, _ = back(x.gather(1, turn.expand_as(x)))
            behind = behind.gather(1, turn.expand_as(behind))
            x = torch.where(real[..., None], torch.cat((ahead, behind), dim=2), 0.0)  # [B,T,D]
        return x

    def last(
        self, states: Float[Tensor, "B T D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B D"]:
        """Where each direction ends: the last word ahead, the first word behind; zero if empty."""
        half = self.width // 2
        end = (lengths.to(states.device) - 1).clamp_min(0)[:, None, None]
        ahead = states[..., :half].gather(1, end.expand(-1, 1, half))  # [B,1,D/2]
        return torch.cat((ahead.squeeze(1), states[:, 0, half:]), dim=1)


def mirrored(lengths: Int[Tensor, "B"], width: int) -> Int[Tensor, "B T"]:
    """For each position the one that is as far from the other end; padding stays where it is.

    >>> mirrored(torch.tensor([2, 3]), 3).tolist()
    [[1, 0, 2], [2, 1, 0]]
    """
    place = torch.arange(width, device=lengths.device).expand(len(lengths), width)
    turned = lengths[:, None] - 1 - place
    return torch.where(turned >= 0, turned, place)
