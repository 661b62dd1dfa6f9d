"""Device: where a model runs, and which precisions work there."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from regard.core.errors import UserError, choose

PRECISIONS: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What matrix products may be computed in, by the name a recipe calls it."""

_PROBE = """
import torch
device, dtype = torch.device("{device}"), torch.{dtype}
linear = torch.nn.Linear(64, 256).to(device)
with torch.autocast(device.type, dtype=dtype):
    query = linear(torch.randn(8, 64, 64, device=device)).unflatten(2, (4, 64)).transpose(1, 2)
    out = torch.nn.functional.scaled_dot_product_attention(query, query, query)
out.float().square().mean().backward()
assert linear.weight.grad.isfinite().all()
"""
"""Products and attention, there and back; run in a process of its own, which may be killed."""

_PROBE_SECONDS = 120


def pick_device(name: str = "auto") -> torch.device:
    """The device of that name; `auto` is a GPU if there is one that works, else the CPU.

    >>> pick_device("cpu")
    device(type='cpu')
    >>> pick_device("cuba")
    Traceback (most recent call last):
    regard.core.errors.UserError: unknown device 'cuba': did you mean 'cuda'? Known: auto, ...
    """
    there = {
        "auto": True,
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        return torch.device(next((kind for kind in ("cuda", "mps") if there[kind]), "cpu"))
    kind, _, number = name.partition(":")
    if not choose("device", kind, there):
        usable = ", ".join(each for each, works in there.items() if works)
        raise UserError(f"device {name!r} is not on this machine; there is: {usable}")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if number and not (number.isdecimal() and int(number) < count):
        raise UserError(f"device {name!r}: the number must be below {count}")
    return torch.device(name)


def device_of_rank(name: str = "auto") -> torch.device:
    """The device of this process: several on one machine take a GPU each.

    torchrun numbers the processes of a machine in LOCAL_RANK.

    >>> device_of_rank("cpu")
    device(type='cpu')
    """
    device, rank = pick_device(name), os.environ.get("LOCAL_RANK")
    if device.type != "cuda" or ":" in name or rank is None:
        return device
    count = torch.cuda.device_count()
    if int(rank) >= count:
        raise UserError(
            f"process {rank} of this machine needs a GPU of its own and there are {count}: start "
            f"at most {count} with --nproc-per-node, or train on the CPU with --device cpu"
        )
    return torch.device("cuda", int(rank))


def precision_problem(precision: str, device: torch.device) -> str | None:
    """Why this precision does not work on this device; None if it does.

    Some processors claim bfloat16 products and kill the process (SIGILL) that computes one, so a
    process of its own tries first. Takes seconds the first time.
    """
    dtype = choose("precision", precision, PRECISIONS)
    return None if dtype == torch.float32 else _probed(precision, str(device))


def precision_works(precision: str, device: torch.device) -> bool:
    """Can a model be trained in this precision on this device?

    >>> precision_works("float32", torch.device("cpu"))
    True
    """
    return precision_problem(precision, device) is None


@contextmanager
def use_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Matrix products inside are computed in this precision; weights and sums stay as they are.

    A device may lack single kernels (recurrent ones, mostly) even where products work.
    """
    if precision == "float32":
        yield
        return
    try:
        with torch.autocast(device.type, dtype=choose("precision", precision, PRECISIONS)):
            yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        reason = str(error).splitlines()[0]
        raise UserError(
            f"in precision {precision!r} the model failed on {device}: {reason}; "
            "precision 'float32' works everywhere"
        ) from error


@cache
def _probed(dtype: str, device: str) -> str | None:
    code = _PROBE.format(dtype=dtype, device=device)
    try:
        done = subprocess.run(  # noqa: S603 our own interpreter and our own text
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"a trial took more than {_PROBE_SECONDS} seconds"
    if done.returncode < 0:
        return f"a trial was killed by {signal.Signals(-done.returncode).name}"
    if done.returncode > 0:
        return f"a trial failed: {done.stderr.strip().splitlines()[-1]}"
    return None


def peak_bytes(device: torch.device) -> int:
    """The most memory there was in use at once: on a CUDA device, else of this whole process.

    >>> peak_bytes(torch.device("cpu")) > 0
    True
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # Windows has no such count
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return getrusage(RUSAGE_SELF).ru_maxrss * unit
