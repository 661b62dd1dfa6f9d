"""Guard: what every request passes before any route sees it, and what every answer carries.

In this order: the name it came by (Host) and the page that sent it (Origin), so that a web page
elsewhere cannot reach a server on this machine by pointing its own name here; the key; whether the
engine has room; the size and the speed of the body; the time for all of it. A refusal costs next to
nothing.
"""

import asyncio
import base64
import binascii
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from urllib.parse import urlsplit

from regard.serve.errors import Refused
from regard.serve.limits import Limits, is_address, loopback
from regard.serve.metrics import Metrics

_log = logging.getLogger(__name__)

_Message = MutableMapping[str, object]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_Scope = MutableMapping[str, object]
App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

_OPEN = ("/health",)
"""Routes that need no key: whoever looks after the server has none."""

_LEFT = 499
"""How a request is counted whose client went away, after nginx."""

_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
"""What an answer says unless it says otherwise."""


@dataclass(frozen=True)
class Doors:
    """Who may ask."""

    key: str | None = None
    """What a client must know; None is a server for this machine alone."""
    hosts: tuple[str, ...] = ()
    """Names by which the server may be called, besides those of this machine."""

    def check(self, headers: "Headers", path: str) -> None:
        """Refuse who must not ask."""
        host = headers.one("host")
        if host is None or not self._known(host):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "this server is not called by that name; allow it with --allow-host",
                code="host_not_allowed",
            )
        origin = headers.one("origin")
        if origin is not None and _host_of(origin) != host.lower():
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "a page of another origin may not ask this server",
                code="origin_not_allowed",
            )
        if self.key is not None and path not in _OPEN:
            self._check_key(headers.one("authorization"), self.key)

    def _known(self, host: str) -> bool:
        """A name that rebinding cannot forge: ours, an allowed one or, with a key, an address."""
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if not name:
            return False
        return loopback(name) or name in self.hosts or (self.key is not None and is_address(name))

    def _check_key(self, given: str | None, key: str) -> None:
        """Compare in a time that tells nothing: digests, so that not even the length shows."""
        digest = sha256(_presented(given or "").encode()).digest()
        if not hmac.compare_digest(digest, sha256(key.encode()).digest()):
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "the API key is missing or wrong: send it as `Authorization: Bearer KEY`",
                code="invalid_api_key",
            )


def _host_of(origin: str) -> str | None:
    """The host and port of an origin; None if it is not an address.

    >>> _host_of("http://localhost:8000"), _host_of("http://[")
    ('localhost:8000', None)
    """
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _presented(header: str) -> str:
    """The key in an Authorization header: a bearer's, or the password a browser asked for.

    >>> _presented("Bearer abc"), _presented("Basic OmFiYw=="), _presented("nonsense")
    ('abc', 'abc', '')
    """
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


class Headers:
    """The headers of a request, of which some must not come twice."""

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self._raw = raw

    def one(self, name: str) -> str | None:
        """The value of a header; None if there is none."""
        wanted = name.encode()
        found = [value.decode("latin-1") for key, value in self._raw if key.lower() == wanted]
        if len(found) > 1:
            raise Refused(HTTPStatus.BAD_REQUEST, f"there is more than one header {name}")
        return found[0] if found else None


class Guard:
    """An application behind its doors."""

    def __init__(
        self,
        app: App,
        doors: Doors,
        limits: Limits,
        metrics: Metrics,
        check_room: Callable[[], None],
    ) -> None:
        self._app, self._doors, self._limits, self._metrics = app, doors, limits, metrics
        self._check_room = check_room

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer a request, and count it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # a websocket is closed by the server if nobody accepts it
        answer = CountedAnswer(send)
        begun = time.perf_counter()
        self._metrics.in_flight += 1
        try:
            async with asyncio.timeout(self._limits.seconds):
                await self._guarded(scope, receive, answer)
        except Refused as refused:
            await answer.refuse(refused)
        except TimeoutError:
            await answer.refuse(_overdue(self._limits.seconds))
        finally:
            self._metrics.in_flight -= 1
            seconds = time.perf_counter() - begun
            self._metrics.answered(_route_of(scope), answer.status or _LEFT, seconds)

    async def _guarded(self, scope: _Scope, receive: _Receive, answer: "CountedAnswer") -> None:
        raw = scope["headers"]
        assert isinstance(raw, list)
        headers = Headers(raw)
        self._doors.check(headers, str(scope["path"]))
        if scope["method"] == "POST":  # all of these are work for the engine
            self._check_room()
        body = await self._body(headers, receive)
        if body is not None:
            await self._app(scope, _replayed(body, receive), answer)

    async def _body(self, headers: Headers, receive: _Receive) -> bytes | None:
        """The whole body; None if the client left before it was there."""
        most = self._limits.body
        length = headers.one("content-length")
        if length is not None and int(length) > most:  # the server has seen that it is a number
            raise _too_large(most)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    assert isinstance(part, bytes)
                    parts.append(part)
                    size += len(part)
                    if size > most:
                        raise _too_large(most)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Refused(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the body was not there after {self._limits.body_seconds:g} seconds",
            ) from None


def _replayed(body: bytes, receive: _Receive) -> _Receive:
    """A body that is here already, and then whatever else comes."""
    given = False

    async def again() -> _Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class CountedAnswer:
    """Sends, adds the headers that every answer has, and remembers how far it got."""

    def __init__(self, send: _Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: _Message) -> None:
        """Send one message of an answer."""
        if message["type"] == "http.response.start":
            self.status = int(str(message["status"]))
            given = message.get("headers", ())
            assert isinstance(given, list | tuple)
            names = {name.lower() for name, _ in given}
            usual = [header for header in _HEADERS if header[0] not in names]
            message = {**message, "headers": [*given, *usual]}
        await self._send(message)

    async def refuse(self, refused: Refused) -> None:
        """Say why not, unless the answer has begun: then it is cut off."""
        if self.status is not None:
            _log.warning("an answer was cut off: %s", refused.message)
            return  # the server closes the connection, as the answer is not whole
        headers, body = _spelled(refused)
        await self({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _spelled(refused: Refused) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The headers and the body of a refusal."""
    body = json.dumps(refused.body()).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers += [(name.encode(), value.encode()) for name, value in refused.headers().items()]
    headers.append((b"content-length", str(len(body)).encode()))
    if refused.status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="regard"'))
        headers.append((b"www-authenticate", b'Basic realm="regard", charset="UTF-8"'))
    return headers, body


def turning_away(check_room: Callable[[], None], metrics: Metrics) -> Callable[[], bytes | None]:
    """What says to whoever comes with work, as long as there is room for none, that it is so."""

    def refusal() -> bytes | None:
        try:
            check_room()
        except Refused as refused:
            metrics.answered("other", refused.status, 0.0)
            headers, body = _spelled(refused)
            first = f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}".encode()
            lines = [first, *(b": ".join(header) for header in (*headers, *_HEADERS)), b"", body]
            return b"\r\n".join(lines)
        return None

    return refusal


def _too_large(most: int) -> Refused:
    """For a body beyond the limit."""
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is larger than {most:,} bytes",
        code="body_too_large",
    )


def _overdue(seconds: float) -> Refused:
    """For a request that took too long."""
    return Refused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"this took longer than {seconds:g} seconds; ask for less, or later",
        code="timeout",
        retry_after=5,
    )


def _route_of(scope: _Scope) -> str:
    """The route as it is written in the code: paths that clients make up are all one."""
    return str(getattr(scope.get("route"), "path", "other"))
