"""Limits: how much one client may request of a server, and from which addresses."""

from dataclasses import dataclass, replace
from ipaddress import ip_address

from regard.core.errors import UserError, above_zero, positive
from regard.core.inputs import LIMITS, InputLimits

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses that only this machine reaches."""


_FILES = replace(
    LIMITS, pixels=4_000_000, seconds=60.0, frames=1000, points=20_000, file_bytes=20_000_000
)


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
    characters: int = 100_000
    """Of one text, before it is tokenised."""
    tokens: int = 4096
    """Prompt and answer together, where the model has no context limit."""
    lines: int = 64
    """To translate in one request."""
    work: int = 131_072
    """Of one translation: tokens of all its lines times the beam."""
    waiting: int = 262_144
    """Work of the requests that wait for one run, unless it is a single one."""
    together: int = 16_384
    """Work of requests that are searched together; one that is larger is searched alone."""
    state_bytes: int = 160_000_000
    """What the texts that one run writes may keep in memory (keys and values, say)."""
    active: int = 8
    """Requests whose answers are computed in turns, two of each run at most."""
    unsent: int = 2
    """Answers with attention weights that are computed or sent at the same time."""
    files: InputLimits = _FILES
    """Of one input that is no text: an image, a sound."""
    connections: int = 2000
    """Open at the same time."""

    def __post_init__(self) -> None:
        for name in (
            "body",
            "queued",
            "rows",
            "samples",
            "prompts",
            "characters",
            "tokens",
            "lines",
            "work",
            "waiting",
            "together",
            "state_bytes",
            "active",
            "unsent",
        ):
            positive(name, getattr(self, name))
        for name in ("body_seconds", "head_seconds", "seconds"):
            above_zero(name, getattr(self, name))
        if self.rows < self.samples * self.prompts:
            raise UserError(
                f"rows={self.rows} cannot hold one request of samples={self.samples} texts for "
                f"prompts={self.prompts}: raise rows, or lower one of the others"
            )


FILE_BODY = 30_000_000
"""Bytes of a request's body, if a run takes images, sounds or the like."""


def check_address(host: str, key: str | None) -> None:
    """Refuse to be reachable from other machines without a key.

    >>> check_address("127.0.0.1", None)
    >>> check_address("0.0.0.0", None)
    Traceback (most recent call last):
    regard.core.errors.UserError: 0.0.0.0 can be reached from other machines: set an API key
    (--api-key or REGARD_API_KEY), or keep to 127.0.0.1
    """
    if key is not None and len(key) < 8:
        raise UserError(f"the API key has {len(key)} characters: give at least 8, such as a uuid")
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise UserError("the API key must be of printable ASCII characters without whitespace")
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
