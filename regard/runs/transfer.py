"""What a model took of the run that it began with, tensor by tensor.

>>> first, second = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))
>>> second[0] = first
>>> lines(taken(second, {f"0.{name}": each for name, each in first.state_dict().items()}), "a/run")
['from a/run: 0 (2 tensors); new here: 1 (2 tensors)']
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Begun:
    """The names of tensors."""

    loaded: tuple[str, ...]
    """Of the source that are in the model, as they were."""
    left: tuple[str, ...]
    """Of the source that are not."""
    new: tuple[str, ...]
    """Of the model that are none of the source's."""


def taken(model: nn.Module, source: Mapping[str, Tensor]) -> Begun:
    """What of a source's weights, as they were saved, is in a model now.

    A tensor of the model is one of the source's if it is called the same in the end and is equal.
    """
    own = {name: each.cpu() for name, each in model.state_dict().items()}
    used: dict[str, list[str]] = {}
    for name, tensor in source.items():
        last = name.rsplit(".", 1)[-1]
        used[name] = [
            mine
            for mine, each in own.items()
            if mine.rsplit(".", 1)[-1] == last
            and each.shape == tensor.shape
            and torch.equal(each, tensor.cpu())
        ]
    found = {mine for each in used.values() for mine in each}
    return Begun(
        loaded=tuple(name for name, each in used.items() if each),
        left=tuple(name for name, each in used.items() if not each),
        new=tuple(name for name in own if name not in found),
    )


def lines(begun: Begun, folder: str) -> list[str]:
    """The same for people, in one line."""
    parts = {"": begun.loaded, "left out: ": begun.left, "new here: ": begun.new}
    told = [f"{said}{_grouped(names)}" for said, names in parts.items() if names or not said]
    return [f"from {folder}: {'; '.join(told)}"]


def _grouped(names: Iterable[str]) -> str:
    """Tensors by the part they belong to.

    >>> _grouped(["embed.weight", "cells.0.read", "cells.0.again", "bias"])
    'embed (1 tensor), cells.0 (2 tensors), bias (1 tensor)'
    """
    counts = Counter(".".join(name.split(".")[:-1]) or name for name in names)
    return (
        ", ".join(f"{part} ({n} tensor{'s' if n > 1 else ''})" for part, n in counts.items())
        or "nothing"
    )
