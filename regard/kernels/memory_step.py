"""The arithmetic of one step of a memory machine, in plain torch operations.

`ntm_step.py` and `dnc_step.py` compute the same for a whole step at once, with its gradient in
closed form.

>>> slots = torch.zeros(1, 2, 3)
>>> weights, erase = torch.tensor([[[1.0, 0.0]]]), torch.ones(1, 1, 3)
>>> erase_and_add(slots, weights, erase, torch.tensor([[[5.0, 6.0, 7.0]]])).tolist()
[[[5.0, 6.0, 7.0], [0.0, 0.0, 0.0]]]
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from regard.kernels.switch import enabled

UNIT_EPSILON = 1e-6
"""Added to the squared length of a slot, so that an empty slot has a finite gradient."""

USAGE_EPSILON = 1e-6
"""What an unused slot counts as used, so that no product of usages is zero."""


def unit_length(vectors: Float[Tensor, "... W"]) -> Float[Tensor, "... W"]:
    """v / √(|v|² + ε): vectors of length one, or less where they are near zero."""
    return vectors * (vectors.square().sum(-1, keepdim=True) + UNIT_EPSILON).rsqrt()


def softplus_above_one(raw: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """1 + log(1 + exp(x)): at least one."""
    return F.softplus(raw) + 1


def erase_and_add(
    slots: Float[Tensor, "B K W"],
    weights: Float[Tensor, "B H K"],
    erase: Float[Tensor, "B H W"],
    add: Float[Tensor, "B H W"],
) -> Float[Tensor, "B K W"]:
    """M ∘ Π (1 - w eᵀ) + Σ w aᵀ over the heads: all heads erase, then all add."""
    if weights.shape[1] == 1:
        kept = 1 - weights.transpose(1, 2) * erase  # [B,K,W]
    else:
        kept = (1 - weights.unsqueeze(3) * erase.unsqueeze(2)).prod(1)  # [B,K,W]
    return torch.addcmul(weights.transpose(1, 2) @ add, slots, kept)


def smallest(dtype: torch.dtype) -> float:
    """What stands for a weight of zero in a logarithm."""
    return torch.finfo(dtype).tiny


def shift_and_sharpen(
    content: Float[Tensor, "B H Q K"],
    before: Float[Tensor, "B H Q K"],
    gate: Float[Tensor, "B H Q 1"],
    shifts: Float[Tensor, "B H Q R"],
    power: Float[Tensor, "B H Q 1"],
) -> Float[Tensor, "B H Q K"]:
    """g c + (1 - g) w₋₁, moved around the ring of slots by each shift, raised to γ, normalised.

    `shifts` has the weight of each move from -reach to reach; a move by s takes the weight of slot
    j to slot j + s. The power is a softmax of γ log w, so that no row underflows.

    >>> ahead = torch.tensor([0.0, 0.0, 1.0]).view(1, 1, 1, 3)
    >>> one, before = torch.ones(1, 1, 1, 1), torch.tensor([1.0, 0.0, 0.0, 0.0]).view(1, 1, 1, 4)
    >>> shift_and_sharpen(before, before, one, ahead, one).round().flatten().tolist()
    [0.0, 1.0, 0.0, 0.0]
    """
    reach = shifts.shape[-1] // 2
    mixed = torch.lerp(before, content, gate)
    moves = range(-reach, reach + 1)
    rolled = torch.stack([mixed.roll(move, -1) for move in moves], -1)  # [B,H,Q,K,R]
    shifted = (rolled * shifts.unsqueeze(-2)).sum(-1)
    return torch.softmax(shifted.clamp_min(smallest(shifted.dtype)).log() * power, -1)


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        width = cell.shape[1]
        gating = gates[:, : 3 * width].sigmoid()
        candidate = gates[:, 3 * width :].tanh()
        enter, keep, leave = gating.split(width, 1)
        new_cell = (keep * cell).addcmul_(enter, candidate)
        squashed = new_cell.tanh()
        ctx.save_for_backward(gating, candidate, cell, squashed)
        return leave * squashed, new_cell

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, to_hidden: Tensor, to_cell: Tensor) -> tuple[Tensor, Tensor]:
        gating, candidate, cell, squashed = ctx.saved_tensors  # type: ignore[attr-defined]
        width = cell.shape[1]
        enter, keep, leave = gating.split(width, 1)
        through = to_hidden * leave
        total = (to_cell + through).addcmul_(through, squashed * squashed, value=-1)
        to_gates = gating.new_empty(len(gating), 4 * width)
        torch.mul(total, candidate, out=to_gates[:, :width])
        torch.mul(total, cell, out=to_gates[:, width : 2 * width])
        torch.mul(to_hidden, squashed, out=to_gates[:, 2 * width : 3 * width])
        to_gates[:, : 3 * width].mul_(torch.addcmul(gating, gating, gating, value=-1))
        entered = total * enter
        torch.addcmul(
            entered, entered * candidate, candidate, value=-1, out=to_gates[:, 3 * width :]
        )
        return to_gates, total.mul_(keep)


def lstm_cell(
    gates: Float[Tensor, "B F"], cell: Float[Tensor, "B D"]
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]]:
    """Hidden and cell state of an LSTM; `gates` are those of input, forget and output, and g.

    >>> hidden, cell = lstm_cell(torch.zeros(1, 8), torch.ones(1, 2))
    >>> cell.tolist()
    [[0.5, 0.5]]
    """
    if enabled("memory_step"):
        hidden, new_cell = _LSTM.apply(gates, cell)  # type: ignore[no-untyped-call]
        return hidden, new_cell
    width = cell.shape[1]
    enter, keep, leave = gates[:, : 3 * width].sigmoid().split(width, 1)
    new_cell = keep * cell + enter * gates[:, 3 * width :].tanh()
    return leave * new_cell.tanh(), new_cell
