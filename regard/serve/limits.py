"""Limits: how much one client may ask of a server, and who may ask at all."""

from dataclasses import dataclass
from ipaddress import ip_address

from regard.core.errors import UserError, above_zero, positive

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses that only this machine reaches."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """All of them, with values for a small machine."""

    body: int = 1_000_000
    """Bytes of a request's body."""
    body_seconds: float = 10.0
    """In which the whole body must have come."""
    head_seconds: float = 5.0
    """In which the headers must have come."""
    seconds: float = 60.0
    """For a request from its first byte to the last of its answer."""
    queued: int = 64
    """Requests that wait for the engine; more are told to come back."""
    rows: int = 64
    """Texts that one run writes at the same time."""
    samples: int = 4
    """Texts for one prompt (n)."""
    prompts: int = 16
    """Prompts of one request."""
    letters: int = 100_000
    """Of one text, before it is cut into tokens."""
    tokens: int = 4096
    """Prompt and answer together, where the model has no context of its own."""
    lines: int = 64
    """To translate in one request."""
    connections: int = 2000
    """Open at the same time."""

    def __post_init__(self) -> None:
        for name in ("body", "queued", "rows", "samples", "prompts", "letters", "tokens", "lines"):
            positive(name, getattr(self, name))
        for name in ("body_seconds", "head_seconds", "seconds"):
            above_zero(name, getattr(self, name))
        if self.rows < self.samples * self.prompts:
            raise UserError(
                f"rows={self.rows} cannot hold one request of samples={self.samples} texts for "
                f"prompts={self.prompts}: raise rows, or lower one of the others"
            )


def check_address(host: str, key: str | None) -> None:
    """Refuse to be reachable from other machines without a key.

    >>> check_address("127.0.0.1", None)
    >>> check_address("0.0.0.0", None)
    Traceback (most recent call last):
    regard.core.errors.UserError: 0.0.0.0 can be reached from other machines: set an API key
    (--api-key or REGARD_API_KEY), or keep to 127.0.0.1
    """
    if key is not None and len(key) < 8:
        raise UserError(f"the API key has {len(key)} letters: give at least 8, such as a uuid")
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise UserError("the API key must be of printable ASCII letters without blanks")
    if key is None and not loopback(host):
        raise UserError(
            f"{host} can be reached from other machines: set an API key "
            "(--api-key or REGARD_API_KEY), or keep to 127.0.0.1"
        )


def loopback(host: str) -> bool:
    """Is it an address that only this machine reaches?

    >>> loopback("127.0.0.2"), loopback("[::1]"), loopback("192.168.0.1"), loopback("a.example")
    (True, True, False, False)
    """
    host = host.strip("[]")
    return host in _LOOPBACK or (is_address(host) and ip_address(host).is_loopback)


def is_address(host: str) -> bool:
    """Is it an IP address rather than a name?

    >>> is_address("10.0.0.1"), is_address("localhost")
    (True, False)
    """
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
