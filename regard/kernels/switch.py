"""Switches: use or leave out each kernel, in one `with` block or for the whole process.

With a kernel off, the same result comes from plain torch operations, up to rounding. `disabled` is
a context variable: other threads, and threads started inside the block, are not affected. For a
whole process, set `REGARD_KERNELS` before it starts:

- `REGARD_KERNELS=off`: no kernel is used,
- `REGARD_KERNELS=stepwise,int8`: only these are used,
- `REGARD_KERNELS=-onednn,-packed_linear`: all but these are used.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import ClassVar

import torch

from regard.core.errors import UserError, choose

KERNELS: dict[str, str] = {
    "fused_attention": "torch's scaled_dot_product_attention in place of the four slots",
    "additive_tiles": "additive scores tile by tile (additive.py)",
    "single_query": "attention of one query, or of the beams of a sentence (single_query.py)",
    "stepwise": "decoder layers as plain functions of one position (layers/stepwise.py)",
    "onednn": "large matrix products by oneDNN (linear.py)",
    "packed_linear": "weights copied into the layout that few rows need (packed_linear.py)",
    "int8": "products of 8-bit integers; off, the same rounded numbers in float64 (int8.py)",
    "memory_step": "steps of memory machines with gradients in closed form (memory_step.py)",
    "fast_dropout": "dropout masks from 16 random bits per element (dropout.py)",
}
"""Every kernel by the name of its switch, with what it does."""


def parse_switches(text: str) -> frozenset[str]:
    """The kernels that a value of REGARD_KERNELS switches off.

    >>> sorted(parse_switches("-int8, -onednn")), sorted(parse_switches("on"))
    (['int8', 'onednn'], [])
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words in ([], ["on"]):
        return frozenset()
    if words == ["off"]:
        return frozenset(KERNELS)
    names = {word.removeprefix("-") for word in words}
    for name in names:
        choose("kernel in REGARD_KERNELS", name, KERNELS)
    minus = sum(word.startswith("-") for word in words)
    if minus not in (0, len(words)):
        raise UserError(
            f"REGARD_KERNELS={text}: either list the kernels to use, or those to leave out, each "
            "with a minus"
        )
    return frozenset(names) if minus else frozenset(KERNELS) - names


_ENVIRONMENT = parse_switches(os.environ.get("REGARD_KERNELS", ""))
_OFF: ContextVar[frozenset[str]] = ContextVar("regard_kernels_off", default=_ENVIRONMENT)


class _Anywhere:
    """The kernels that are off in some thread: a plain value, so that compiled code can guard."""

    off = _ENVIRONMENT
    count: ClassVar[Counter[str]] = Counter(_ENVIRONMENT)
    lock = Lock()


def enabled(name: str) -> bool:
    """Is this kernel on here?

    Compiled code cannot read a context variable: it leaves out what is off in any thread.
    """
    if name not in _Anywhere.off:
        return True
    return not torch.compiler.is_compiling() and name not in _OFF.get()


@contextmanager
def disabled(*names: str) -> Iterator[None]:
    """Leave out these kernels inside the block; without names, all of them."""
    for name in names:
        choose("kernel", name, KERNELS)
    off = frozenset(names or KERNELS)
    token = _OFF.set(_OFF.get() | off)
    _count(off, 1)
    try:
        yield
    finally:
        _count(off, -1)
        _OFF.reset(token)


def _count(names: frozenset[str], change: int) -> None:
    with _Anywhere.lock:
        for name in names:
            _Anywhere.count[name] += change
        _Anywhere.off = frozenset(name for name, count in _Anywhere.count.items() if count > 0)
