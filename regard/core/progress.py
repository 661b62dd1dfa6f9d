"""A progress callback: what a long computation calls with a line of text on how far it is."""

from collections.abc import Callable

ProgressCallback = Callable[[str], None]
"""Called with one line of text, such as "training 2 of 7: uniform"."""


def no_progress(line: str) -> None:
    """A progress callback that shows nothing."""
