"""A server that is running, for tests that ask it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from regard.serve.server import Server


@dataclass(frozen=True)
class Live:
    """Where it is, and what it is."""

    url: str
    server: Server
    key: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        """For a socket."""
        parts = urlsplit(self.url)
        assert parts.hostname
        assert parts.port
        return parts.hostname, parts.port


def soon(fact: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Does it become true?"""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if fact():
            return True
        time.sleep(0.01)
    return fact()
