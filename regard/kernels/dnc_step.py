"""One step of the memory of a Differentiable Neural Computer, with its gradient in closed form.

Usage, allocation, write, links and reads are one node of the graph instead of a hundred. The
equations are those of models/memory/dnc.py and attention/addressing.py, to which a test holds it.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from regard.kernels.memory_step import UNIT_EPSILON, USAGE_EPSILON


@dataclass(frozen=True)
class _Content:
    """softmax(β cos(k, M)) of some heads, and what its gradient needs."""

    weights: Tensor
    scores: Tensor
    unit: Tensor
    short: Tensor
    beta: Tensor
    inverse: Tensor

    @staticmethod
    def of(raw: Tensor, slots: Tensor) -> "_Content":
        """Of raw parameters [B,H,W+1], key and strength."""
        width = slots.shape[2]
        key = raw[..., :width]
        short = key.square().sum(2, keepdim=True).add_(UNIT_EPSILON).rsqrt_()  # [B,H,1]
        unit, beta = key * short, F.softplus(raw[..., width : width + 1]).add_(1)
        inverse = slots.square().sum(2).add_(UNIT_EPSILON).rsqrt_().unsqueeze(1)  # [B,1,K]
        scores = ((unit * beta) @ slots.transpose(1, 2)).mul_(inverse)  # [B,H,K]
        return _Content(scores.softmax(2), scores, unit, short, beta, inverse)

    def backward(
        self, to_weights: Tensor, raw: Tensor, slots: Tensor, to_slots: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradients of key and strength; that of the slots is added to `to_slots`."""
        scaled = to_weights * self.weights
        to_scores = scaled.addcmul_(self.weights, scaled.sum(2, keepdim=True), value=-1)
        along = (to_scores * self.scores).sum(1).unsqueeze(2)  # [B,K,1]
        to_dots = to_scores.mul_(self.inverse)
        to_query = to_dots @ slots  # [B,H,W]
        to_beta = (to_query * self.unit).sum(2, keepdim=True)
        to_key = to_query.addcmul_(self.unit, to_beta, value=-1).mul_(self.beta * self.short)
        to_slots.baddbmm_(to_dots.transpose(1, 2), self.unit * self.beta)
        across = self.inverse.transpose(1, 2)
        to_slots.addcmul_(slots, along.mul_(across).mul_(across), value=-1)
        width = slots.shape[2]
        return to_key, to_beta.mul_(raw[..., width : width + 1].sigmoid())


def _softmax_backward(weights: Tensor, grad: Tensor) -> Tensor:
    return weights * (grad - (grad * weights).sum(-1, keepdim=True))


def _others(factors: Tensor) -> Tensor:
    """For each head, the product of the factors of all other heads, `[B,H,K]`."""
    one = torch.ones_like(factors[:, :1])
    before = torch.cat((one, factors[:, :-1]), 1).cumprod(1)
    after = torch.cat((factors[:, 1:], one), 1).flip(1).cumprod(1).flip(1)
    return before * after


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        slots: Tensor,
        usage: Tensor,
        links: Tensor,
        precedence: Tensor,
        reading: Tensor,
        writing: Tensor,
        write: Tensor,
        erase: Tensor,
        add: Tensor,
        free: Tensor,
        read: Tensor,
    ) -> tuple[Tensor, ...]:
        width = slots.shape[2]
        freed = free.sigmoid()  # [B,H]
        factors = torch.addcmul(_one(freed), freed.unsqueeze(2), reading, value=-1)  # [B,H,K]
        used = torch.addcmul(usage + writing, usage, writing, value=-1)
        kept = factors.prod(1)
        new_usage = used * kept
        ordered, order = new_usage.sort(dim=1, stable=True)
        above = ordered * (1 - USAGE_EPSILON) + USAGE_EPSILON
        full = above.cumprod(1)
        left = F.pad(full[:, :-1], (1, 0), value=1.0)
        allocated = torch.zeros_like(usage).scatter_(1, order, (1 - ordered) * left)
        to_write = _Content.of(write.unsqueeze(1), slots)
        content = to_write.weights[:, 0]
        gates = write[:, width + 1 :].sigmoid()  # [B,2]: allocate, write
        mixed = torch.lerp(content, allocated, gates[:, :1])
        weights = mixed * gates[:, 1:]  # [B,K]
        erasing = erase.sigmoid()
        column, row = weights.unsqueeze(2), weights.unsqueeze(1)
        new_slots = torch.addcmul(slots, slots, column * erasing.unsqueeze(1), value=-1)
        new_slots.baddbmm_(column, add.unsqueeze(1))
        new_links = torch.addcmul(column * precedence.unsqueeze(1), 1 - column - row, links)
        new_links.diagonal(dim1=1, dim2=2).zero_()
        left_over = 1 - weights.sum(1, keepdim=True)
        new_precedence = torch.addcmul(weights, left_over, precedence)
        behind, ahead = reading @ new_links, reading @ new_links.transpose(1, 2)
        to_read = _Content.of(read, new_slots)
        modes = read[..., width + 1 :].softmax(2)  # [B,H,3]
        new_reading = (behind * modes[..., :1]).addcmul_(to_read.weights, modes[..., 1:2])
        new_reading.addcmul_(ahead, modes[..., 2:])
        ctx.save_for_backward(
            slots, usage, links, precedence, reading, writing, write, add, read, freed, factors,
            used, kept, ordered, order, above, full, left, allocated, gates, mixed, weights,
            erasing, new_slots, new_links, left_over, behind, ahead, modes, new_reading,
        )  # fmt: skip
        ctx.contents = to_write, to_read  # type: ignore[attr-defined]
        reads = new_reading @ new_slots
        return (
            new_slots, new_usage, new_links, new_precedence, new_reading, weights, reads, freed,
        )  # fmt: skip

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx,
        g_slots: Tensor,
        g_usage: Tensor,
        g_links: Tensor,
        g_precedence: Tensor,
        g_reading: Tensor,
        g_weights: Tensor,
        g_reads: Tensor,
        g_freed: Tensor,
    ) -> tuple[Tensor, ...]:
        (
            slots, usage, links, precedence, reading, writing, write, add, read, freed, factors,
            used, kept, ordered, order, above, full, left, allocated, gates, mixed, weights,
            erasing, new_slots, new_links, left_over, behind, ahead, modes, new_reading,
        ) = ctx.saved_tensors  # type: ignore[attr-defined]  # fmt: skip
        to_write, to_read = ctx.contents  # type: ignore[attr-defined]
        # the reads
        g_new = g_reading + g_reads @ new_slots.transpose(1, 2)  # [B,H,K]
        g_slots = torch.baddbmm(g_slots, new_reading.transpose(1, 2), g_reads)
        g_modes = torch.stack(
            [(g_new * each).sum(2) for each in (behind, to_read.weights, ahead)], 2
        )
        g_key, g_strength = to_read.backward(g_new * modes[..., 1:2], read, new_slots, g_slots)
        to_read_raw = torch.cat((g_key, g_strength, _softmax_backward(modes, g_modes)), 2)
        g_behind, g_ahead = g_new * modes[..., :1], g_new * modes[..., 2:]
        g_links = torch.baddbmm(g_links, reading.transpose(1, 2), g_behind)
        g_links.baddbmm_(g_ahead.transpose(1, 2), reading)
        g_links.diagonal(dim1=1, dim2=2).zero_()
        to_reading = torch.baddbmm(g_behind @ new_links.transpose(1, 2), g_ahead, new_links)
        # links and precedence
        column, row = weights.unsqueeze(2), weights.unsqueeze(1)
        product = g_links * links
        g_weights = g_weights + g_precedence - (g_precedence * precedence).sum(1, keepdim=True)
        g_weights.add_((g_links @ precedence.unsqueeze(2)).squeeze(2))
        g_weights.sub_(product.sum(2)).sub_(product.sum(1))
        to_precedence = (row @ g_links).squeeze(1).addcmul_(left_over, g_precedence)
        to_links = g_links.mul_(1 - column - row)
        # the write
        lost = g_slots * slots
        g_weights.add_((g_slots @ add.unsqueeze(2)).squeeze(2))
        g_weights.sub_((lost @ erasing.unsqueeze(2)).squeeze(2))
        to_erase = (row @ lost).squeeze(1).neg_().mul_(erasing * (1 - erasing))
        to_add = (row @ g_slots).squeeze(1)
        to_slots = torch.addcmul(g_slots, g_slots, column * erasing.unsqueeze(1), value=-1)
        g_mixed = g_weights * gates[:, 1:]
        content = to_write.weights[:, 0]
        g_gates = torch.stack(
            ((g_mixed * (allocated - content)).sum(1), (g_weights * mixed).sum(1)), 1
        )
        g_content = g_mixed * (1 - gates[:, :1])
        g_key, g_strength = to_write.backward(
            g_content.unsqueeze(1), write.unsqueeze(1), slots, to_slots
        )
        to_write_raw = torch.cat(
            (g_key[:, 0], g_strength[:, 0], g_gates.mul_(gates * (1 - gates))), 1
        )
        # allocation and usage
        g_sorted = (g_mixed * gates[:, :1]).gather(1, order)
        g_full = F.pad((g_sorted * (1 - ordered))[:, 1:], (0, 1)) * full
        g_above = g_full.flip(1).cumsum(1).flip(1).div_(above).mul_(1 - USAGE_EPSILON)
        g_usage = g_usage.scatter_add(1, order, g_above.addcmul_(g_sorted, left, value=-1))
        g_factors = (g_usage * used).unsqueeze(1) * _others(factors)
        to_free = (g_freed - (g_factors * reading).sum(2)).mul_(freed * (1 - freed))
        to_reading.addcmul_(g_factors, freed.unsqueeze(2), value=-1)
        g_used = g_usage * kept
        return (
            to_slots, g_used * (1 - writing), to_links, to_precedence, to_reading,
            g_used * (1 - usage), to_write_raw, to_erase, to_add, to_free, to_read_raw,
        )  # fmt: skip


def _one(like: Tensor) -> Tensor:
    return like.new_ones(())


def dnc_step(
    slots: Float[Tensor, "B K W"],
    usage: Float[Tensor, "B K"],
    links: Float[Tensor, "B K K"],
    precedence: Float[Tensor, "B K"],
    reading: Float[Tensor, "B H K"],
    writing: Float[Tensor, "B K"],
    write: Float[Tensor, "B D"],
    erase: Float[Tensor, "B W"],
    add: Float[Tensor, "B W"],
    free: Float[Tensor, "B H"],
    read: Float[Tensor, "B H F"],
) -> tuple[Tensor, ...]:
    """Slots, usage, links, precedence, read and write weights, reads and free gates after a step.

    The first six are those of the step before; the others are the raw parameters of the heads.
    """
    found: tuple[Tensor, ...] = _Step.apply(  # type: ignore[no-untyped-call]
        slots, usage, links, precedence, reading, writing, write, erase, add, free, read
    )
    return found
