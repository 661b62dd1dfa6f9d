"""Evaluation of a task over all batches, and sums of losses over batches and processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, inf

import torch
from torch import Tensor, nn

from regard.core.device import use_precision
from regard.core.errors import UserError
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Batches, Carry, Loss, ResetsCarry, Task


@dataclass(frozen=True, kw_only=True)
class Sums:
    """A loss and named counts, summed over items.

    >>> sums = Sums(total=6.0, items=2, counts={"right": 1.0})
    >>> sums.loss, sums.rates()
    (3.0, {'right': 0.5})
    """

    total: float = 0.0
    items: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, loss: Loss) -> "Sums":
        """The sums of one batch."""
        counts = {name: float(count) for name, count in loss.counts.items()}
        return cls(total=loss.total.item(), items=loss.items, counts=counts)

    def __add__(self, other: "Sums") -> "Sums":
        names = {**self.counts, **other.counts}
        return Sums(
            total=self.total + other.total,
            items=self.items + other.items,
            counts={
                name: self.counts.get(name, 0.0) + other.counts.get(name, 0.0) for name in names
            },
        )

    @property
    def loss(self) -> float:
        """The mean over all items, not the mean of the batch means."""
        return self.total / self.items

    @property
    def perplexity(self) -> float:
        """exp(loss); infinity if that overflows a float."""
        return exp(self.loss) if self.loss < 709 else inf

    def rates(self) -> dict[str, float]:
        """Each count per item."""
        return {name: count / self.items for name, count in self.counts.items()}

    def metrics(self) -> dict[str, float]:
        """Loss, perplexity and rates: the metrics of a validation."""
        return {"loss": self.loss, "perplexity": self.perplexity, **self.rates()}


def evaluate(model: nn.Module, task: Task, batches: Batches, *, precision: str = "float32") -> Sums:
    """The sums of a task over all batches; each batch gets the carry of the previous one.

    `evaluate(...).metrics()` has the loss per item and the perplexity over all items.
    """
    sums, carry, device = Sums(), None, device_of(model)
    with eval_mode(model), torch.no_grad():
        for index in range(len(batches)):
            carry = None if carry_resets(batches, index) else carry
            with use_precision(precision, device):
                loss = task.loss(model, on_device(batches.batch(0, index), device), carry)
            sums, carry = sums + Sums.of(loss), detach_carry(loss.carry)
    if not sums.items:
        raise UserError(
            f"there is nothing to evaluate on: {len(batches)} batches with no items; add more "
            "data, or use a larger part of it for validation with data.validation"
        )
    return sums


@dataclass(frozen=True)
class FirstBatch:
    """The first batch of a data set only, to see which metrics there are."""

    every: Batches

    def __len__(self) -> int:
        return min(1, len(self.every))

    def batch(self, epoch: int, index: int) -> Batch:
        """The first batch."""
        return self.every.batch(epoch, index)


def carry_resets(batches: Batches, index: int) -> bool:
    """Does a batch start without a carry? True of the first, and where `resets_carry` is."""
    return index == 0 or (isinstance(batches, ResetsCarry) and batches.resets_carry(index))


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's parameters."""
    return next((each.device for each in model.parameters()), torch.device("cpu"))


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch, on a device."""
    return {name: _to_device(tensor, device) for name, tensor in batch.items()}


def _to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; copied asynchronously only where that is safe.

    The source may be freed before it is read unless its memory is pinned (pytorch#139550).
    """
    return tensor.to(device, non_blocking=device.type == "cuda" and tensor.is_pinned())


def detach_carry(carry: Carry | None) -> Carry | None:
    """The carry, detached from the graph."""
    return None if carry is None else {name: each.detach() for name, each in carry.items()}
