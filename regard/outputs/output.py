"""The base of everything that models return.

>>> from regard.outputs.classes import Classes
>>> from regard.outputs.tags import Tags
>>> class Constant(torch.nn.Module):
...     def forward(self, batch, carry=None):
...         return Classes(torch.zeros(len(batch["tokens"]), 2))
>>> batch = {"tokens": torch.tensor([[4, 5]]), "classes": torch.tensor([1])}
>>> round(Classes.of(Constant(), batch).loss(batch).item(), 4)         # log 2
0.6931
>>> Tags.of(Constant(), batch)
Traceback (most recent call last):
regard.core.errors.UserError: this task needs a model that returns Tags; Constant returns Classes
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import torch as torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry

_Kind = TypeVar("_Kind", bound="ModelOutput")


@dataclass(frozen=True, kw_only=True)
class ModelOutput(ABC):
    """What a model returns for a batch."""

    carry: Carry | None = None
    """The state for the next batch, detached; None for a model without state."""
    auxiliary: Float[Tensor, ""] | None = None
    """A further loss while the model trains, summed over the batch."""

    @abstractmethod
    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """The loss against the targets of a batch, summed, the auxiliary one included."""

    def with_auxiliary(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The sum of a loss and the auxiliary one, if there is one."""
        return loss if self.auxiliary is None else loss + self.auxiliary

    @classmethod
    def of(cls: type[_Kind], model: nn.Module, batch: Batch, carry: Carry | None = None) -> _Kind:
        """Call a model, and check that it returns this kind of output."""
        output = model(batch, carry)
        if not isinstance(output, cls):
            raise UserError(
                f"this task needs a model that returns {cls.__name__}; "
                f"{type(model).__name__} returns {type(output).__name__}"
            )
        return output
