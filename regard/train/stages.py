"""Stages: layers that learn at rates of their own, and begin to learn one after another.

Howard and Ruder (2018) fine-tune the last layer at the full rate and each layer below at that of
the one above divided by 2.6 (section 3.2), and let one layer more learn with every epoch, from the
last to the first (section 3.3); the schedule of the rate runs anew in each stage. A model says
which of its parts are layers by having `stages()`, from the first to the last.

>>> class Two(nn.Sequential):
...     def stages(self):
...         return [list(layer.parameters()) for layer in self]
>>> placed = Stages(unfreeze=1).place(Two(nn.Linear(2, 2), nn.Linear(2, 2)))
>>> sorted({(round(stage.share, 3), stage.opens) for stage in placed.values()})
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
class Staged(Protocol):
    """A model that knows its layers."""

    def stages(self) -> Sequence[Sequence[nn.Parameter]]:
        """The parameters of each layer, from the first to the last; each is in one of them."""
        ...


@dataclass(frozen=True)
class Stage:
    """How a layer learns."""

    share: float
    """What its rate is multiplied by."""
    opens: int
    """The epoch, from 0, in which it begins to learn."""


class Stages(Config):
    """How layers learn, one below the other."""

    divide: float = Field(2.6, ge=1)
    """How many times smaller a layer's rate is than that of the one above."""
    unfreeze: PositiveInt | None = None
    """After how many epochs one layer more begins to learn; None has all learn from the first."""

    def place(self, model: nn.Module) -> dict[int, Stage]:
        """The stage of each parameter, by its id."""
        if not isinstance(model, Staged):
            raise UserError(
                f"train.stages needs a model that knows its layers; {type(model).__name__} has no "
                "stages()"
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
