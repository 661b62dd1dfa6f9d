"""A block without the shape checks of the suite."""

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import config


@contextmanager
def unchecked() -> Iterator[None]:
    """As users run it: training under checks takes half as long again, and they speak before our
    own errors can."""
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", False)
