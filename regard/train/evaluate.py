"""Evaluate: a task over all batches in order, without learning."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.core.device import computing_in
from regard.core.errors import UserError
from regard.core.mode import evaluating
from regard.core.protocols import Batch, Batches, Carry, Starts, Task
from regard.train.sums import Sums, sums_of


def evaluate(model: nn.Module, task: Task, batches: Batches, *, precision: str = "float32") -> Sums:
    """The sums of a task over every batch, with what one batch hands on given to the next.

    A batch that begins anew is given nothing.

    `evaluate(...).metrics()` has the loss per item and the perplexity over all of them.
    """
    sums, carry, device = Sums(), None, device_of(model)
    with evaluating(model), torch.no_grad():
        for index in range(len(batches)):
            carry = None if begins_anew(batches, index) else carry
            with computing_in(precision, device):
                loss = task.loss(model, on_device(batches.batch(0, index), device), carry)
            sums, carry = sums + sums_of(loss), detached(loss.carry)
    if not sums.items:
        raise UserError(
            f"there is nothing to evaluate on: {len(batches)} batches with no items; give more "
            "data, or keep more of them apart with data.validation"
        )
    return sums


@dataclass(frozen=True)
class First:
    """The first of some batches, to see what is measured."""

    every: Batches

    def __len__(self) -> int:
        return min(1, len(self.every))

    def batch(self, epoch: int, index: int) -> Batch:
        """That one."""
        return self.every.batch(epoch, index)


def begins_anew(batches: Batches, index: int) -> bool:
    """May nothing be carried into a batch? So it is in the first, and in any that says so."""
    return index == 0 or (isinstance(batches, Starts) and batches.starts(index))


def device_of(model: nn.Module) -> torch.device:
    """Where a model is."""
    return next((each.device for each in model.parameters()), torch.device("cpu"))


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch where the model is."""
    return {name: _moved(tensor, device) for name, tensor in batch.items()}


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; copied in the background only where that is safe.

    From other than pinned memory the source may be freed before it is read (pytorch#139550).
    """
    return tensor.to(device, non_blocking=device.type == "cuda" and tensor.is_pinned())


def detached(carry: Carry | None) -> Carry | None:
    """What is handed on, without the graph behind it."""
    return None if carry is None else {name: each.detach() for name, each in carry.items()}
