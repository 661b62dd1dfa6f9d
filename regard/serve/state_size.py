"""How much memory a model keeps while it writes a text: keys and values, or the state of an RNN."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import Tensor

from regard.core.protocols import Bounded, Selectable, Stepper

_SHORT, _LONG = 2, 258
"""Tokens of the texts that are measured; states grow in blocks."""


@dataclass(frozen=True)
class StateSize:
    """Bytes of one text: for each of its tokens, and besides."""

    token: float
    fixed: float

    def of(self, tokens: int) -> int:
        """The bytes of a text of so many tokens.

        >>> StateSize(token=10.0, fixed=5.0).of(3)
        35
        """
        return int(self.token * tokens + self.fixed)


@torch.inference_mode()
def state_size(stepper: Stepper[Selectable], device: torch.device) -> StateSize:
    """The size of the states of a model, from two short texts."""
    longest = min(_LONG, stepper.context_limit if isinstance(stepper, Bounded) else _LONG)
    if longest <= _SHORT:
        return StateSize(0.0, 0.0)
    found = {}
    for length in (_SHORT, longest):
        tokens = torch.zeros((1, length), dtype=torch.int64, device=device)
        _, state = stepper.step(tokens[:, -1], stepper.start({"tokens": tokens}))
        found[length] = sum(_storages(state, set()).values())
    token = max(0.0, (found[longest] - found[_SHORT]) / (longest - _SHORT))
    return StateSize(token, max(0.0, found[_SHORT] - token * _SHORT))


def _storages(value: object, seen: set[int]) -> dict[int, int]:
    """The bytes of every piece of memory behind a value, by its address.

    >>> rows = torch.zeros(2, 4)
    >>> sum(_storages({"a": rows, "b": [rows[0]]}, set()).values())
    32
    """
    if id(value) in seen or isinstance(value, torch.nn.Module | str):
        return {}
    seen.add(id(value))
    if isinstance(value, Tensor):
        held = value.untyped_storage()
        return {held.data_ptr(): held.nbytes()}
    inner: Iterable[object] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    elif is_dataclass(value):
        inner = [getattr(value, each.name) for each in fields(value)]
    else:
        names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
        inner = [getattr(value, name, None) for name in names]
    found: dict[int, int] = {}
    for each in inner:
        found |= _storages(each, seen)
    return found
