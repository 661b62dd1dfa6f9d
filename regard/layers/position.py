"""Where a token stands: sinusoidal, learned, rotary.

The first position of a call stands at `first`: a number, or one for each row of the batch.

>>> import torch
>>> Sinusoidal(4)(torch.zeros(1, 2, 4))[0, 0].tolist()
[0.0, 1.0, 0.0, 1.0]
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import sinusoid
from regard.core.errors import UserError, above_zero, positive

_First = int | Int[Tensor, "B"]
"""Where the first position of a call stands; each row of the batch may have its own."""


class Sinusoidal(nn.Module):
    """x + sin and cos of the position (Vaswani et al. 2017, section 3.5). Nothing is learned.

    Positions up to `longest` are kept ready; later ones are computed when they come. With `halves`
    all sines stand before all cosines, as in tensor2tensor and Marian, rather than in turn.
    """

    table: Tensor

    def __init__(self, width: int, longest: int = 1024, *, halves: bool = False) -> None:
        super().__init__()
        self.halves = halves
        positions = torch.arange(positive("longest", longest), dtype=torch.float32)
        self.register_buffer("table", self._marks(positions, positive("width", width)), False)

    def _marks(self, positions: Tensor, width: int) -> Tensor:
        # Far positions times a frequency lose digits that others' tables have; MPS has no double.
        wide = positions if positions.device.type == "mps" else positions.double()
        marks: Tensor = sinusoid(wide, width).float()  # [T,D]
        if self.halves:
            marks = torch.cat((marks[:, 0::2], marks[:, 1::2]), dim=1)
        return marks

    def forward(self, x: Float[Tensor, "B T D"], first: _First = 0) -> Float[Tensor, "B T D"]:
        """The sequence, each position marked; the first one stands at `first`."""
        _check_positions(x, self.table.shape[1])
        if isinstance(first, Tensor):
            own = _own_positions(x, first)  # [B,T]
            marks: Tensor = self._marks(own.flatten().float(), x.shape[2]).unflatten(0, own.shape)
            return x + marks.to(x)  # [B,T,D]
        last = first + x.shape[1]
        if last <= self.table.shape[0]:
            return x + self.table[first:last]
        positions = torch.arange(first, last, device=x.device, dtype=torch.float32)
        return x + self._marks(positions, x.shape[2]).to(x)


class Learned(nn.Module):
    """x + a vector of its own for each position (Gehring et al. 2017), up to `longest`."""

    def __init__(self, width: int, longest: int = 1024) -> None:
        super().__init__()
        self.table = nn.Parameter(
            torch.empty(positive("longest", longest), positive("width", width)).normal_(std=0.02)
        )

    def forward(self, x: Float[Tensor, "B T D"], first: _First = 0) -> Float[Tensor, "B T D"]:
        """The sequence, each position marked; the first one stands at `first`."""
        _check_positions(x, self.table.shape[1])
        if isinstance(first, Tensor):
            return x + self.table[_own_positions(x, first)]
        last = first + x.shape[1]
        if last > self.table.shape[0]:
            raise UserError(
                f"position {last - 1} is out of range: only {self.table.shape[0]} were learned "
                "(longest); use a shorter input or another kind of position"
            )
        return x + self.table[first:last]


class Rotary(nn.Module):
    """Queries and keys turned by an angle that grows with the position (Su et al. 2021, eq. 34).

    Their products then depend on distance alone. Element i is paired with element i + E/2, as the
    checkpoints people have expect, rather than with its neighbour as in the paper: a permutation of
    the columns of the projection.
    """

    table: Tensor

    def __init__(self, width: int, longest: int = 1024, *, base: float = 10_000.0) -> None:
        super().__init__()
        if positive("width", width) % 2:
            raise UserError(f"width={width} must be even: elements are turned in pairs")
        self.width = width
        self.base = above_zero("base", base)
        self.register_buffer("table", self._turns(0, positive("longest", longest)), False)

    def _turns(self, first: int, last: int, device: torch.device | None = None) -> Tensor:
        """cos and sin of each position's angles, `[T,2,E]`."""
        pairs = torch.arange(0, self.width, 2, device=device, dtype=torch.float32) / self.width
        positions = torch.arange(first, last, device=device, dtype=torch.float32)
        angles = (positions[:, None] * self.base**-pairs).repeat(1, 2)
        return torch.stack((angles.cos(), angles.sin()), dim=1)

    def forward(self, x: Float[Tensor, "B H T E"], first: _First = 0) -> Float[Tensor, "B H T E"]:
        """Each position turned by its angle; the first one stands at `first`."""
        if isinstance(first, Tensor):
            turns = self.table[_own_positions(x[:, 0], first)].to(x.dtype)  # [B,T,2,E]
            return self._turned(x, *turns[:, None].unbind(3))  # [B,1,T,E]
        last = first + x.shape[2]
        near = last <= self.table.shape[0]
        turns = self.table[first:last] if near else self._turns(first, last, x.device)
        return self._turned(x, *turns.to(x.dtype).unbind(1))  # [T,E]

    def _turned(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=3)
        return x * cosine + torch.cat((-right, left), dim=3) * sine


def _own_positions(x: Tensor, first: Tensor) -> Tensor:
    """Where each position stands in its own row, `[B,T]`.

    >>> _own_positions(torch.zeros(2, 3, 4), torch.tensor([5, 0])).tolist()
    [[5, 6, 7], [0, 1, 2]]
    """
    return first[:, None] + torch.arange(x.shape[1], device=first.device)


def _check_positions(x: Tensor, width: int) -> None:
    """Refuse a sequence of another width than the positions have."""
    if x.dim() != 3 or x.shape[2] != width:
        raise UserError(f"the sequence must be [batch, positions, {width}], not {list(x.shape)}")


POSITIONS: dict[str, Callable[[int, int], Sinusoidal | Learned]] = {
    "sinusoidal": Sinusoidal,
    "sinusoidal_halves": partial(Sinusoidal, halves=True),
    "learned": Learned,
}
"""Positions that are added to the embedding, by the name a recipe calls them."""
