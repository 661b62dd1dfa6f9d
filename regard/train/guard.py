"""Guard: which tensor stopped being finite, and which rows of which batch made it so.

The loop looks at two numbers an update, the loss and the norm of the gradient. Only when one of
them is not finite is the update taken again, from the same random state, to find out why.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from regard.core.device import computing_in
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry, Task
from regard.train.evaluate import detached, device_of
from regard.train.state import set_random_states

_SHOWN = 10
"""How many rows an error names."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """One update, as it can be taken again."""

    number: int
    batches: Mapping[str, Callable[[], Batch]]
    """Each batch by what to call it."""
    anew: Collection[str]
    """Those into which nothing is carried."""
    carry: Carry | None
    random: Mapping[str, Tensor]
    """The random states it began with."""
    precision: str


def blame(model: nn.Module, task: Task, update: Update) -> UserError:
    """The error for an update whose loss or gradient is not finite: what, where, which rows."""
    start = f"update {update.number}: "
    weight = _first_not_finite(dict(model.named_parameters()))
    if weight:
        return UserError(
            f"{start}the weight {weight} is not finite; the update before it was too large: lower "
            "the learning rate, warm it up longer, or clip the gradient"
        )
    device, carry = device_of(model), update.carry
    set_random_states(update.random, device)
    for name, batch in update.batches.items():
        rows, carry = batch(), None if name in update.anew else carry
        found = _first_not_finite(rows, carry or {})
        wrong = f"the input {found}" if found else None
        with computing_in(update.precision, device):
            loss = task.loss(model, rows, carry)
        wrong = wrong or _first_wrong(model, loss.total)
        if wrong:
            guilty = _rows_that(rows, partial(_bad, model, task, carry, update))
            return UserError(f"{start}{wrong} is not finite in {name}, {guilty}")
        carry = detached(loss.carry)
    return UserError(
        f"{start}the loss or the gradient is not finite, but no batch of this process is to blame "
        "alone: the sum over batches or another process is"
    )


def _first_wrong(model: nn.Module, total: Tensor) -> str | None:
    """What is not finite first: the loss, or else the gradient of a parameter."""
    if not total.isfinite().all():
        return "the loss"
    named = {name: each for name, each in model.named_parameters() if each.requires_grad}
    gradients = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    pairs = zip(named, gradients, strict=True)
    name = _first_not_finite({name: each for name, each in pairs if each is not None})
    return f"the gradient of {name}" if name else None


def _first_not_finite(*named: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that holds something other than finite numbers.

    >>> _first_not_finite({"a": torch.ones(2), "b": torch.tensor([1.0, float("nan")])})
    'b'
    """
    pairs = ((name, each) for tensors in named for name, each in tensors.items())
    return next((name for name, each in pairs if not each.isfinite().all()), None)


def _bad(model: nn.Module, task: Task, carry: Carry | None, update: Update, batch: Batch) -> bool:
    """Does this batch give a loss or a gradient that is not finite?"""
    with computing_in(update.precision, device_of(model)):
        total = task.loss(model, batch, carry).total
    return _first_wrong(model, total) is not None


def _rows_that(batch: Batch, bad: Callable[[Batch], bool]) -> str:
    """The rows that are bad each for itself, in words.

    A row is tried by putting it in the place of every other, so that the batch keeps its shape.
    """
    size = len(next(iter(batch.values())))
    guilty = [row for row in range(size) if bad(_only(batch, row))]
    if len(guilty) == size:
        return f"in all {size} rows: look at the weights and the learning rate before the data"
    if not guilty:
        return "though in no row alone"
    more = f" and {len(guilty) - _SHOWN} more" if len(guilty) > _SHOWN else ""
    shown = ", ".join(str(row) for row in guilty[:_SHOWN])
    return f"because of row{'s'[: len(guilty) > 1]} {shown}{more}"


def _only(batch: Batch, row: int) -> Batch:
    """The batch with one row in all places."""
    return {name: each[row].expand_as(each).contiguous() for name, each in batch.items()}
