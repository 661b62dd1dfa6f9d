"""LoRA: fine-tune a large model by low-rank changes of its matrices (Hu et al. 2022).

W' = W + (α / r) B A, eq. 3, where A [r, in] begins at random and B [out, r] at zero, so that
training begins with the model as it is. W is frozen, and so is everything else but A, B and the new
layers on top. At the end the product is added to W: the trained model is an ordinary one.

>>> model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
>>> adapt_model(model, Lora(rank=1, layers="0", also=("1.*",)), seed=0)
(20, 28)
>>> sorted(name for name, each in model.named_parameters() if each.requires_grad)[0]
'0.parametrizations.weight.0.down'
>>> merge_model(model)
>>> sorted(model.state_dict())
['0.bias', '0.weight', '1.bias', '1.weight']
"""

from fnmatch import fnmatchcase

import torch
from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regard.core.config import Config
from regard.core.errors import UserError

_CHANGE = ".parametrizations.weight.0."
"""In the names of the parameters of a change."""


class Lora(Config):
    """Which matrices are adapted, and how far."""

    rank: PositiveInt = 8
    """The rank r of a change."""
    alpha: PositiveFloat = 16.0
    """The change is scaled by alpha / rank."""
    layers: str = "*attention*"
    """The linear layers that are adapted: a glob of their names in the model."""
    also: tuple[str, ...] = ("output*", "pooler*")
    """Globs of parameters that are trained as they are: the new layers on top."""


class LowRankChange(nn.Module):
    """W + (α / r) B A as a parametrisation of torch."""

    def __init__(
        self, weight: Float[Tensor, "W D"], lora: Lora, generator: torch.Generator
    ) -> None:
        super().__init__()
        rows, columns = weight.shape
        begin = torch.randn(lora.rank, columns, generator=generator) / columns**0.5
        self.down = nn.Parameter(begin.to(weight))
        self.up = nn.Parameter(weight.new_zeros(rows, lora.rank))
        self.scale = lora.alpha / lora.rank

    def forward(self, weight: Float[Tensor, "W D"]) -> Float[Tensor, "W D"]:
        """The changed matrix."""
        return torch.addmm(weight, self.up, self.down, alpha=self.scale)


def adapted_layers(model: nn.Module, lora: Lora) -> list[nn.Linear]:
    """The linear layers that the settings name; a UserError if there are none."""
    linear = {name: each for name, each in model.named_modules() if isinstance(each, nn.Linear)}
    chosen = [each for name, each in linear.items() if fnmatchcase(name, lora.layers)]
    if not chosen:
        shown = ", ".join(list(linear)[:6])
        raise UserError(
            f"train.lora.layers={lora.layers!r} matches no linear layer; there are {shown}, ..."
        )
    return chosen


def adapt_model(model: nn.Module, lora: Lora, seed: int) -> tuple[int, int]:
    """Freeze the model but for changes of rank r and new layers; parameters of both, and frozen
    ones."""
    generator = torch.Generator().manual_seed(seed)
    for each in adapted_layers(model, lora):
        change = LowRankChange(each.weight, lora, generator)
        parametrize.register_parametrization(each, "weight", change)
    counts = {True: 0, False: 0}
    for name, parameter in model.named_parameters():
        learns = _CHANGE in name or any(fnmatchcase(name, each) for each in lora.also)
        parameter.requires_grad_(learns)
        counts[learns] += parameter.numel()
    return counts[True], counts[False]


def merge_model(model: nn.Module) -> None:
    """Add every change to its matrix; the model is then as it was built."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
    model.requires_grad_(True)
