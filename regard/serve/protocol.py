"""Protocol: uvicorn's HTTP over h11, which closes connections that send too slowly.

uvicorn itself closes only what is idle after an answer. A client that sends its headers, or its
body, a byte at a time would hold its connection for ever; many of them would hold all there are.
And when there is no room for more work, whoever comes with some is turned away here, before its
request is read: under a flood, reading is what costs.
"""

import asyncio
from collections.abc import Callable

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.serve.limits import Limits

_SLACK = 1.0
"""Seconds after which a body that is late is cut off here: the guard has answered 408 by then."""


_LINGER = 1.0
"""Seconds that a client who was turned away has to finish what it is sending."""


class Watched(H11Protocol):
    """A connection that has so long for headers, and then so long for the body."""

    limits = Limits()
    turned_away: Callable[[], bytes | None] = staticmethod(lambda: None)
    """The bytes that answer a request for work when there is no room for any."""

    _leaving = False
    _timer: asyncio.TimerHandle | None = None
    _awaits: type[h11.IDLE] | type[h11.SEND_BODY] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """From the first moment on, headers are awaited."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Some bytes came; what is awaited now?"""
        if self._leaving:
            return
        begins = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        if begins and data.startswith(b"POST ") and (refusal := self.turned_away()):
            self._leave_with(refusal)
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """An answer went out: until a byte comes, uvicorn's own timer counts."""
        super().on_response_complete()
        self._unwatch()
        if self.conn.trailing_data[0]:  # of the next request there is a part
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._unwatch()
        super().connection_lost(exc)

    def _leave_with(self, answer: bytes) -> None:
        """Say this, and wait a moment: who is still sending would not hear it if we closed now."""
        self._unwatch()
        self._leaving = True
        self.transport.write(answer)
        self.transport.write_eof()
        self._timer = self.loop.call_later(_LINGER, self._close)

    def _watch(self) -> None:
        """Start a timer when something new is awaited; more of the same does not start it anew."""
        state = self.conn.their_state
        if state is not h11.IDLE and state is not h11.SEND_BODY:
            self._unwatch()
        elif state is not self._awaits:
            self._unwatch()
            headers = state is h11.IDLE
            seconds = self.limits.head_seconds if headers else self.limits.body_seconds + _SLACK
            self._awaits = state
            self._timer = self.loop.call_later(seconds, self._close)

    def _unwatch(self) -> None:
        self._awaits = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        """At once, without waiting for what is still to be sent: they would not take it either."""
        if not self.transport.is_closing():
            self.transport.abort()


def watched(limits: Limits, turned_away: Callable[[], bytes | None]) -> type[Watched]:
    """The protocol with these limits; uvicorn makes one of it for each connection."""
    own = {"limits": limits, "turned_away": staticmethod(turned_away)}
    return type("Watched", (Watched,), own)
