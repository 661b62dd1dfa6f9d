"""One step of the memory of a Neural Turing Machine, with its gradient in closed form.

All heads address, the read heads read, the write head writes: one node of the graph instead of
sixty, and no copy of the memory with slots of length one. The equations are those of
attention/addressing.py and kernels/memory_step.py, to which a test holds it.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from regard.kernels.memory_step import UNIT_EPSILON, smallest


class _Heads(NamedTuple):
    """The raw parameters of all heads, [B,H,n] each."""

    key: Tensor
    strength: Tensor
    gate: Tensor
    shifts: Tensor
    power: Tensor


def _heads(raw: Tensor, width: int) -> _Heads:
    moves = raw.shape[2] - width - 3
    return _Heads(*raw.split((width, 1, 1, moves, 1), 2))


def _ring(weights: Tensor, reach: int) -> Tensor:
    """The weights with their last ones before them and their first ones after them."""
    return torch.cat((weights[..., -reach:], weights, weights[..., :reach]), -1)


def _weighted_slices(ring: Tensor, factors: Tensor) -> Tensor:
    """Σ_m factors[m] · ring[m : m + K]."""
    moves = factors.shape[-1]
    count = ring.shape[-1] - moves + 1
    total = ring[..., :count] * factors[..., :1]
    for move in range(1, moves):
        total.addcmul_(ring[..., move : move + count], factors[..., move : move + 1])
    return total


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, slots: Tensor, raw: Tensor, before: Tensor, erase: Tensor, add: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        key, strength, gate, shifts, power = _heads(raw, slots.shape[2])
        short = (key.square().sum(2, keepdim=True) + UNIT_EPSILON).rsqrt_()  # [B,H,1]
        unit_key = key * short
        beta = F.softplus(strength)
        inverse = slots.square().sum(2).add_(UNIT_EPSILON).rsqrt_().unsqueeze(1)  # [B,1,K]
        scores = ((unit_key * beta) @ slots.transpose(1, 2)).mul_(inverse)  # [B,H,K]
        content = scores.softmax(2)
        gate, shifts = gate.sigmoid(), shifts.softmax(2)
        mixed = torch.lerp(before, content, gate)
        ring = _ring(mixed, shifts.shape[2] // 2)
        shifted = _weighted_slices(ring, shifts.flip(2)).clamp_min_(smallest(raw.dtype))
        logs, gamma = shifted.log(), F.softplus(power).add_(1)
        weights = (logs * gamma).softmax(2)
        reading = weights[:, : -erase.shape[1]]
        column = weights[:, -1:].transpose(1, 2)  # [B,K,1]
        erasing = erase.sigmoid()
        written = torch.addcmul(slots, slots, column * erasing, value=-1).baddbmm_(column, add)
        ctx.save_for_backward(
            slots, raw, before, add, short, unit_key, beta, inverse, scores, content, gate, shifts,
            gamma, ring, shifted, logs, weights, erasing,
        )  # fmt: skip
        return weights, reading @ slots, written

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, to_weights: Tensor, to_reads: Tensor, to_written: Tensor
    ) -> tuple[Tensor | None, ...]:
        (
            slots, raw, before, add, short, unit_key, beta, inverse, scores, content, gate, shifts,
            gamma, ring, shifted, logs, weights, erasing,
        ) = ctx.saved_tensors  # type: ignore[attr-defined]  # fmt: skip
        across = slots.transpose(1, 2)  # [B,W,K]
        column = weights[:, -1:].transpose(1, 2)  # [B,K,1]
        # the write, then the reads
        lost = to_written * slots
        of_write = torch.baddbmm(
            to_written @ add.transpose(1, 2), lost, erasing.transpose(1, 2), alpha=-1
        ).transpose(1, 2)  # [B,1,K]
        to_erasing = (weights[:, -1:] @ lost).neg_()
        to_add = weights[:, -1:] @ to_written
        into = to_weights + torch.cat((to_reads @ across, of_write), 1)  # [B,H,K]
        # sharpen, shift, interpolate
        scaled = into.mul_(weights)
        to_logits = torch.addcmul(scaled, weights, scaled.sum(2, keepdim=True), value=-1)
        to_gamma = (to_logits * logs).sum(2, keepdim=True)
        to_shifted = to_logits.mul_(gamma).div_(shifted)
        count = slots.shape[1]
        slices = ring.unfold(2, count, 1)  # [B,H,R,K]
        to_shifts = (slices @ to_shifted.unsqueeze(3)).squeeze(3).flip(2)
        to_mixed = _weighted_slices(_ring(to_shifted, shifts.shape[2] // 2), shifts)
        to_gate = (to_mixed * (content - before)).sum(2, keepdim=True)
        to_content = to_mixed * gate
        # content
        scaled = to_content * content
        to_scores = torch.addcmul(scaled, content, scaled.sum(2, keepdim=True), value=-1)
        along = (to_scores * scores).sum(1).unsqueeze(2)  # [B,K,1]
        to_dots = to_scores.mul_(inverse)
        to_query = to_dots @ slots  # [B,H,W]
        to_beta = (to_query * unit_key).sum(2, keepdim=True)
        to_key = torch.addcmul(to_query, unit_key, to_beta, value=-1).mul_(beta * short)
        to_slots = None
        if ctx.needs_input_grad[0]:  # type: ignore[attr-defined]
            to_slots = torch.addcmul(to_written, to_written, column * erasing, value=-1)
            if to_reads.shape[1]:
                to_slots.baddbmm_(weights[:, :-1].transpose(1, 2), to_reads)
            to_slots.baddbmm_(to_dots.transpose(1, 2), unit_key * beta)
            inverse = inverse.transpose(1, 2)
            to_slots.addcmul_(slots, along.mul_(inverse).mul_(inverse), value=-1)
        strength, _, _, power = raw[:, :, slots.shape[2] :].split((1, 1, shifts.shape[2], 1), 2)
        to_raw = torch.cat(
            (
                to_key,
                to_beta.mul_(strength.sigmoid()),
                to_gate.mul_(gate * (1 - gate)),
                shifts * (to_shifts - (to_shifts * shifts).sum(2, keepdim=True)),
                to_gamma.mul_(power.sigmoid()),
            ),
            2,
        )
        to_erase = to_erasing.mul_(erasing * (1 - erasing))
        return to_slots, to_raw, to_mixed.sub_(to_content), to_erase, to_add


def ntm_step(
    slots: Float[Tensor, "B K W"],
    raw: Float[Tensor, "B H F"],
    before: Float[Tensor, "B H K"],
    erase: Float[Tensor, "B 1 W"],
    add: Float[Tensor, "B 1 W"],
) -> tuple[Float[Tensor, "B H K"], Float[Tensor, "B Q W"], Float[Tensor, "B K W"]]:
    """The weights of all heads, what the read heads read, and the slots after the write.

    The last head writes. `raw` has the parameters of the heads as in attention/addressing.py, key,
    strength, gate, shifts and power; `erase` is raw too. A ring must be longer than the largest
    move.
    """
    weights, reads, written = _Step.apply(slots, raw, before, erase, add)  # type: ignore[no-untyped-call]
    return weights, reads, written
