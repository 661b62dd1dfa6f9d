"""Steps of long work, between which whoever started it can pause or end it.

A search calls `between_steps` before each of its steps. A server that shares one processor among
many requests sets what is done there; without it, nothing is.

>>> def stop() -> None:
...     raise InterruptedError
>>> with check_between_steps(stop):
...     between_steps()
Traceback (most recent call last):
InterruptedError
>>> between_steps()
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("_CHECK", default=None)


def between_steps() -> None:
    """Call the check of this thread, if it has one."""
    check = _CHECK.get()
    if check is not None:
        check()


@contextmanager
def check_between_steps(check: Callable[[], None]) -> Iterator[None]:
    """Inside, this is called between steps; it may wait, or raise to end the work."""
    before = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(before)
