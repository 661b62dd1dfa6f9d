"""Panics of the tokenizers library as errors for people: one line, and nothing before it.

A file that is broken can make the library panic, which is not even an Exception, and which prints
lines of its own to standard error, with RUST_BACKTRACE pages of them.

>>> with library_errors("tokenizer.json"):
...     raise BaseException("index out of bounds")
Traceback (most recent call last):
regard.core.errors.UserError: tokenizer.json: is no tokenizer that works: index out of bounds
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from threading import RLock

from regard.core.errors import UserError

_PANIC = re.compile(rb"(?:^\n)?^thread '[^\n]*' (?:\(\d+\) )?panicked at ", re.MULTILINE)
"""How what is printed by a panic begins."""

_HOLDING = RLock()
"""Standard error is one for all threads: who holds it gives it back before the next takes it."""


@contextmanager
def library_errors(name: str) -> Iterator[None]:
    """Errors of the library as errors for people: its panics are not even Exceptions."""
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as problem:
        raise UserError(f"{name}: is no tokenizer that works: {problem}") from problem


@contextmanager
def first_use(name: str) -> Iterator[None]:
    """The same where a file is tried for the first time, without what a panic prints."""
    with hide_panics(), library_errors(name):
        yield


@contextmanager
def hide_panics() -> Iterator[None]:
    """Standard error held back; what is said there comes afterwards, but for a panic."""
    with _HOLDING:
        try:
            kept, held = os.dup(2), TemporaryFile()  # noqa: SIM115 closed below
        except OSError:  # no standard error, or no place to hold it: panics are printed then
            kept, held = -1, None
        if held is None:
            yield
            return
        with held:
            _flush()
            os.dup2(held.fileno(), 2)
            try:
                yield
            finally:
                _flush()
                os.dup2(kept, 2)
                os.close(kept)
                held.seek(0)
                said = _PANIC.split(held.read(), maxsplit=1)[0]
                if said:
                    os.write(2, said)


def _flush() -> None:
    """Leave nothing in Python's own buffer."""
    if sys.stderr is not None and not sys.stderr.closed:
        sys.stderr.flush()
