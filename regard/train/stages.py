"""Discriminative fine-tuning and gradual unfreezing (Howard and Ruder 2018).

The last layer has the full learning rate, and each layer below that of the one above divided by 2.6
(section 3.2). One more layer is unfrozen every epoch, from the last to the first (section 3.3); the
schedule restarts in each stage. The method `stages()` of a model returns its layers, first to last.

>>> class Two(nn.Sequential):
...     def stages(self):
...         return [list(layer.parameters()) for layer in self]
>>> assigned = Stages(unfreeze=1).assign(Two(nn.Linear(2, 2), nn.Linear(2, 2)))
>>> sorted({(round(stage.lr_scale, 3), stage.unfreeze_epoch) for stage in assigned.values()})
[(0.385, 1), (1.0, 0)]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import Field, PositiveInt
from torch import nn

from regard.core.config import Config
from regard.core.errors import UserError


@runtime_checkable
class HasStages(Protocol):
    """A model whose layers can have their own learning rates."""

    def stages(self) -> Sequence[Sequence[nn.Parameter]]:
        """The parameters of each layer, first to last; each parameter is in exactly one."""
        ...


@dataclass(frozen=True)
class Stage:
    """How one layer is fine-tuned."""

    lr_scale: float
    """The factor of its learning rate."""
    unfreeze_epoch: int
    """The epoch, from 0, in which it is unfrozen."""


class Stages(Config):
    """The learning rates and unfreezing of all layers."""

    divide: float = Field(2.6, ge=1)
    """The learning rate of a layer divided by that of the layer below."""
    unfreeze: PositiveInt | None = None
    """The epochs after which one more layer is unfrozen; None trains all from the start."""

    def assign(self, model: nn.Module) -> dict[int, Stage]:
        """The stage of each parameter, by the id of the parameter."""
        if not isinstance(model, HasStages):
            raise UserError(
                f"train.stages needs a model with the method stages(); {type(model).__name__} has "
                "none"
            )
        layers = model.stages()
        found: dict[int, Stage] = {}
        for below, held in enumerate(reversed(layers)):
            stage = Stage(self.divide**-below, below * (self.unfreeze or 0))
            for each in held:
                assert id(each) not in found, "a parameter in two stages"
                found[id(each)] = stage
        learns = {id(each) for each in model.parameters() if each.requires_grad}
        assert learns <= found.keys(), "a parameter in no stage"
        return found
