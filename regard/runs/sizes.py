"""The size of a model, checked before it is built.

A run folder may come from anyone, and a recipe can name any width. So the model is built without
memory first (PyTorch's meta device), and compared with what the file of weights holds.
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn.modules import module as registration

from regard.core.errors import UserError
from regard.core.folder import safetensors_file
from regard.hub.store import ShapesOnly
from regard.train.checkpoint import Checkpoints
from regard.train.durable import SAFETENSORS_DTYPES
from regard.train.weights import Fingerprint, check_fingerprint

_BESIDES = 2**28
"""Bytes of a model that need not be in its file: tables of positions, masks."""
_MODULES = 10_000, 20
"""Modules and parameters of a model: so many, and so many more for every tensor in its file."""
_MOST_MODULES = 100_000
"""Of a model that has no file yet."""
_NAMES = {name: str(dtype).removeprefix("torch.") for dtype, name in SAFETENSORS_DTYPES.items()}


def weights_fingerprint(path: Path) -> Fingerprint:
    """The dtype and shape of each tensor of a safetensors file, from its header alone."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    try:
        with safe_open(safetensors_file(path), "pt") as held:
            for name in held.keys():  # noqa: SIM118 (it has no __iter__)
                part = held.get_slice(name)
                dtype = part.get_dtype()
                found[name] = (_NAMES.get(dtype, dtype), tuple(part.get_shape()))
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: not a whole safetensors file ({error})") from None
    return found


def newest_weights(folder: Path) -> Path | None:
    """The weights in the newest checkpoint of a training that is not finished, if it has one."""
    checkpoints = Checkpoints(folder / "state")
    updates = checkpoints.updates()
    path = checkpoints.path(updates[-1]) / "model.safetensors" if updates else None
    return path if path is not None and path.is_file() else None


def check_model_size(build: Callable[[], nn.Module], weights: Path, recipe: Path) -> None:
    """Raise a UserError unless a model is about as large as the file with its weights."""
    theirs = weights_fingerprint(weights)
    model = _shapes(build, _MODULES[0] + _MODULES[1] * len(theirs), recipe)
    ours: Fingerprint = {
        name: (str(each.dtype).removeprefix("torch."), tuple(each.shape))
        for name, each in model.state_dict().items()
    }
    check_fingerprint(theirs, _untied(ours, theirs), source=str(weights))
    needed, held = _bytes(model), weights.stat().st_size
    if needed > 2 * held + _BESIDES:
        raise UserError(
            f"{recipe}: this model has {needed:,} bytes, and {weights.name} {held:,}; one of the "
            "two is of another run"
        )


def check_model_fits(build: Callable[[], nn.Module], recipe: Path) -> None:
    """Raise a UserError if a model that has no weights yet is larger than this machine's memory."""
    needed = _bytes(_shapes(build, _MOST_MODULES, recipe))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if os.name == "posix" else 0
    if memory and needed > memory:
        raise UserError(
            f"{recipe}: this model has {needed:,} bytes, and this machine {memory:,} of memory; "
            "choose smaller sizes"
        )


def _shapes(build: Callable[[], nn.Module], most: int, recipe: Path) -> nn.Module:
    """The model without memory, of at most so many modules and parameters."""
    try:
        with torch.device("meta"), ShapesOnly(), limited_modules(most), warnings.catch_warnings():
            # a model that starts from another copies no weights into this one, which is intended
            warnings.filterwarnings("ignore", ".*copying from a non-meta parameter", UserWarning)
            return build()
    except UserError as error:
        raise UserError(f"{recipe}: {error}") from None
    except (RuntimeError, OverflowError, TypeError, ValueError, MemoryError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"{recipe}: no model has these sizes: {reason[0][:200]}") from None


def _bytes(model: nn.Module) -> int:
    """The bytes of all parameters and buffers."""
    tensors = {id(each): each for each in chain(model.parameters(), model.buffers())}
    return sum(each.numel() * each.element_size() for each in tensors.values())


def _untied(ours: Fingerprint, theirs: Fingerprint) -> Mapping[str, tuple[str, tuple[int, ...]]]:
    """The tensors of a model, without those that a file may leave out since they are tied."""
    return {name: each for name, each in ours.items() if name in theirs}


@contextmanager
def limited_modules(most: int) -> Iterator[None]:
    """Inside, this thread builds at most so many modules and parameters."""
    count, thread = 0, threading.get_ident()

    def counted(module: nn.Module, name: str, part: object) -> None:
        nonlocal count
        if threading.get_ident() == thread:
            count += 1
            if count > most:
                raise UserError(f"the model has more than {most:,} parts; is a number too large?")

    hooks = [
        registration.register_module_parameter_registration_hook(counted),
        registration.register_module_module_registration_hook(counted),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
