"""The tensors of a model by name, and loading them into a model."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.core.errors import UserError

_SHOWN = 3
"""The largest number of tensors that an error lists."""

Fingerprint = Mapping[str, tuple[str, tuple[int, ...]]]
"""The dtype and shape of each tensor by name; equal for models that can share weights."""


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model by name; a tied tensor has only its first name.

    >>> tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    >>> tied[1].weight = tied[0].weight
    >>> list(named_weights(tied))
    ['0.weight']
    """
    tensors: dict[str, Tensor] = {}
    storages: set[tuple[int, torch.Size, tuple[int, ...]]] = set()
    for name, tensor in model.state_dict().items():
        storage = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() == 0 or storage not in storages:
            storages.add(storage)
            tensors[name] = tensor
    return tensors


def buffers(model: nn.Module) -> list[Tensor]:
    """The saved tensors of a model that are not parameters, such as running means.

    >>> len(buffers(nn.BatchNorm1d(2)))
    3
    """
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return [each for name, each in named_weights(model).items() if name not in parameters]


@torch.no_grad()
def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, source: str) -> None:
    """Copy tensors into a model with the same fingerprint, in place; tied weights stay tied."""
    own = named_weights(model)
    check_fingerprint(fingerprint(tensors), fingerprint(own), source=source)
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def fingerprint(tensors: Mapping[str, Tensor]) -> Fingerprint:
    """The dtype and shape of each tensor.

    >>> fingerprint(named_weights(nn.Linear(3, 2, bias=False)))
    {'weight': ('float32', (2, 3))}
    """
    return {
        name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        for name, tensor in tensors.items()
    }


def check_fingerprint(theirs: Fingerprint, ours: Fingerprint, *, source: str) -> None:
    """Raise a UserError that lists the first differences, if there are any."""
    differ = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if not differ:
        return
    lines = [
        f"{n} is {_format(theirs.get(n))} there and {_format(ours.get(n))} here" for n in differ
    ]
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    raise UserError(f"{source} is of another model: {'; '.join(lines[:_SHOWN])}{more}")


def _format(kind: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if kind is None else f"{kind[0]} {list(kind[1])}"
