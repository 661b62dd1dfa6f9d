"""Weights: the tensors of a model by name, and how they get back into one."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.core.errors import UserError

_SHOWN = 3
"""How many differing tensors an error names."""

Fingerprint = Mapping[str, tuple[str, tuple[int, ...]]]
"""The kind and shape of each tensor by name: what makes two models interchangeable."""


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model by name; one that has several names (tied) under the first.

    >>> tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    >>> tied[1].weight = tied[0].weight
    >>> list(weights(tied))
    ['0.weight']
    """
    found: dict[str, Tensor] = {}
    seen: set[tuple[int, torch.Size, tuple[int, ...]]] = set()
    for name, tensor in model.state_dict().items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() == 0 or place not in seen:
            seen.add(place)
            found[name] = tensor
    return found


def buffers(model: nn.Module) -> list[Tensor]:
    """The tensors that are saved with a model and are no parameters: running means, say.

    >>> len(buffers(nn.BatchNorm1d(2)))
    3
    """
    learnt = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return [each for name, each in weights(model).items() if name not in learnt]


@torch.no_grad()
def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, source: str) -> None:
    """Copy tensors into a model of the same fingerprint, whose own stay in place and stay tied."""
    own = weights(model)
    refuse_another(fingerprint(tensors), fingerprint(own), source=source)
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def fingerprint(tensors: Mapping[str, Tensor]) -> Fingerprint:
    """The kind and shape of each tensor.

    >>> fingerprint(weights(nn.Linear(3, 2, bias=False)))
    {'weight': ('float32', (2, 3))}
    """
    return {
        name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        for name, tensor in tensors.items()
    }


def refuse_another(theirs: Fingerprint, ours: Fingerprint, *, source: str) -> None:
    """Raise if the source is of a model with other tensors, and name the first of them."""
    differ = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if not differ:
        return
    said = [f"{n} is {_kind(theirs.get(n))} there and {_kind(ours.get(n))} here" for n in differ]
    more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    raise UserError(f"{source} is of another model: {'; '.join(said[:_SHOWN])}{more}")


def _kind(kind: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if kind is None else f"{kind[0]} {list(kind[1])}"
