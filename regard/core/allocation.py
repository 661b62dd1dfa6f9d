"""Allocation: how memory is requested from the system. Works without torch, before any command.

>>> keep_freed_memory() == sys.platform.startswith("linux")  # with glibc
True
"""

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""The names of glibc's malloc.h for options of mallopt."""


@cache
def keep_freed_memory() -> bool:
    """Have malloc keep big blocks for the next step instead of giving them back after each.

    Without this every large activation is a fresh mapping whose pages the kernel must clear
    again. Works with glibc on Linux, where it returns True; elsewhere it does nothing.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # 32 MiB is the largest threshold that older versions of glibc take.
    raised = mallopt(_MMAP_THRESHOLD, 1 << 30) or mallopt(_MMAP_THRESHOLD, 1 << 25)
    return bool(raised and mallopt(_TRIM_THRESHOLD, (1 << 31) - 1))


@cache
def share_freed_memory() -> bool:
    """Have all threads use the same freed memory, instead of each keeping its own.

    For a server whose threads compute one at a time: what one has freed, the next can use. Works
    with glibc on Linux, where it returns True; elsewhere it does nothing. It has an effect on
    threads that start later.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt is not None and mallopt(_ARENA_MAX, 1))
