"""Diagnosis of NaN and infinity: which tensor is not finite, and which rows of the batch cause it.

The loop checks two numbers per update, the loss and the norm of the gradient. Only if one of them
is not finite is the update repeated, from the same random state, to find the cause.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from regard.core.device import use_precision
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry, Task
from regard.train.evaluate import detach_carry, device_of
from regard.train.state import set_random_states

_SHOWN = 10
"""The largest number of rows that an error lists."""


@dataclass(frozen=True, kw_only=True)
class UpdateSnapshot:
    """All that is needed to repeat an update."""

    number: int
    batches: Mapping[str, Callable[[], Batch]]
    """A function that returns the batch, for each name of a batch in messages."""
    resets: Collection[str]
    """The names of the batches that start without a carry."""
    carry: Carry | None
    random: Mapping[str, Tensor]
    """The random states before the update."""
    precision: str


def non_finite_error(model: nn.Module, task: Task, update: UpdateSnapshot) -> UserError:
    """The error for an update whose loss or gradient is not finite: tensor, batch and rows."""
    start = f"update {update.number}: "
    weight = _first_not_finite(dict(model.named_parameters()))
    if weight:
        return UserError(
            f"{start}the weight {weight} is not finite; the previous update was too large: lower "
            "the learning rate, use a longer warmup, or clip the gradient"
        )
    device, carry = device_of(model), update.carry
    set_random_states(update.random, device)
    for name, batch in update.batches.items():
        rows, carry = batch(), None if name in update.resets else carry
        tensor = _first_not_finite(rows, carry or {})
        cause = f"the input {tensor}" if tensor else None
        with use_precision(update.precision, device):
            loss = task.loss(model, rows, carry)
        cause = cause or _non_finite_result(model, loss.total)
        if cause:
            where = _describe_rows(rows, partial(_is_bad, model, task, carry, update))
            return UserError(f"{start}{cause} is not finite in {name}, {where}")
        carry = detach_carry(loss.carry)
    return UserError(
        f"{start}the loss or the gradient is not finite, but that of each batch of this process "
        "is: the cause is the sum over batches, or another process"
    )


def _non_finite_result(model: nn.Module, total: Tensor) -> str | None:
    """The first non-finite result: the loss, or else the gradient of a parameter; or None."""
    if not total.isfinite().all():
        return "the loss"
    named = {name: each for name, each in model.named_parameters() if each.requires_grad}
    gradients = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    pairs = zip(named, gradients, strict=True)
    name = _first_not_finite({name: each for name, each in pairs if each is not None})
    return f"the gradient of {name}" if name else None


def _first_not_finite(*named: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor with a NaN or an infinity.

    >>> _first_not_finite({"a": torch.ones(2), "b": torch.tensor([1.0, float("nan")])})
    'b'
    """
    pairs = ((name, each) for tensors in named for name, each in tensors.items())
    return next((name for name, each in pairs if not each.isfinite().all()), None)


def _is_bad(
    model: nn.Module, task: Task, carry: Carry | None, update: UpdateSnapshot, batch: Batch
) -> bool:
    """Is the loss or the gradient of this batch not finite?"""
    with use_precision(update.precision, device_of(model)):
        total = task.loss(model, batch, carry).total
    return _non_finite_result(model, total) is not None


def _describe_rows(batch: Batch, is_bad: Callable[[Batch], bool]) -> str:
    """A description of the rows that are bad on their own.

    Each row is tested in a batch of the same shape that consists of copies of it.
    """
    size = len(next(iter(batch.values())))
    bad = [row for row in range(size) if is_bad(_repeat_row(batch, row))]
    if len(bad) == size:
        return f"in all {size} rows: check the weights and the learning rate before the data"
    if not bad:
        return "though in no row alone"
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    shown = ", ".join(str(row) for row in bad[:_SHOWN])
    return f"because of row{'s'[: len(bad) > 1]} {shown}{more}"


def _repeat_row(batch: Batch, row: int) -> Batch:
    """A batch of copies of one row."""
    return {name: each[row].expand_as(each).contiguous() for name, each in batch.items()}
