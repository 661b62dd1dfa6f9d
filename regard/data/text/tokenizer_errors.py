"""Errors of the `tokenizers` library as one-line UserErrors.

A broken file can make the library panic: it raises a BaseException and prints to standard error,
with RUST_BACKTRACE many pages.

>>> with library_errors("tokenizer.json"):
...     raise BaseException("index out of bounds")
Traceback (most recent call last):
regard.core.errors.UserError: tokenizer.json: is not a valid tokenizer: index out of bounds
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
"""The beginning of the output of a panic."""

_HOLDING = RLock()
"""Standard error is shared by all threads: only one at a time may redirect it."""


@contextmanager
def library_errors(name: str) -> Iterator[None]:
    """Raise errors and panics of the library as UserErrors."""
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as problem:
        raise UserError(f"{name}: is not a valid tokenizer: {problem}") from problem


@contextmanager
def first_use(name: str) -> Iterator[None]:
    """The same for the first use of a file, without the output of a panic."""
    with hide_panics(), library_errors(name):
        yield


@contextmanager
def hide_panics() -> Iterator[None]:
    """Hold back standard error; afterwards print it without the output of a panic."""
    with _HOLDING:
        try:
            kept, held = os.dup(2), TemporaryFile()  # noqa: SIM115 closed below
        except OSError:  # no standard error, or no temporary file: panics are printed then
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
                message = _PANIC.split(held.read(), maxsplit=1)[0]
                if message:
                    os.write(2, message)


def _flush() -> None:
    """Flush Python's own buffer."""
    if sys.stderr is not None and not sys.stderr.closed:
        sys.stderr.flush()
