"""Server: the routes on a socket, until a signal says that it is enough.

On SIGTERM or Ctrl-C no connection is taken any more and no new job; answers that have begun are
finished; then the engine stops. A second signal does not wait.
"""

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import uvicorn

from regard.core.allocation import share_freed_memory
from regard.core.errors import UserError
from regard.serve.engine import Engine
from regard.serve.guard import Doors, turning_away
from regard.serve.http import application
from regard.serve.limits import FILE_BODY, Limits, check_address
from regard.serve.metrics import Metrics
from regard.serve.protocol import watched
from regard.serve.served_run import Served

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


_TURN = 0.0001
"""Seconds that a thread may go on when another waits: a fiftieth of Python's own, as the event loop
has much to do that is small, and the engine much that is not."""


@contextmanager
def _turns(seconds: float) -> Iterator[None]:
    """Threads of this process take turns this often, inside."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Server(uvicorn.Server):
    """uvicorn's, with an engine that is told when the end is near."""

    def __init__(self, config: uvicorn.Config, engine: Engine) -> None:
        super().__init__(config)
        self.engine = engine
        self._announced: Callable[[], None] = lambda: None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ours are not raised again afterwards: to stop when asked is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def listen(self, announce: Callable[[str], None]) -> None:
        """Serve until a signal; `announce` is told where, once requests are taken."""
        host, port = self.config.host, self.config.port
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        # With its protocol named, asyncio sends what is written at once (TCP_NODELAY); else a body
        # waits about 40 ms, until the client has acknowledged the headers.
        with socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((host, port))
            except (OSError, OverflowError) as error:
                raise UserError(
                    f"cannot listen at {host}:{port} ({error}); choose another --host or --port"
                ) from None
            shown = f"[{host}]" if ":" in host else host
            self._announced = lambda: announce(f"http://{shown}:{listening.getsockname()[1]}")
            with _turns(_TURN):
                self.run(sockets=[listening])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """From here on requests are taken."""
        await super().startup(sockets)
        self._announced()

    def handle_exit(self, sig: int, frame: object) -> None:
        """No new job from here on."""
        self.engine.draining = True
        self.force_exit = self.should_exit
        self.should_exit = True


def server(
    runs: Sequence[Served],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    hosts: Sequence[str] = (),
    limits: Limits | None = None,
    version: str = "0",
) -> Server:
    """A server that is ready to run."""
    check_address(host, key)
    share_freed_memory()
    if limits is None:
        takes_files = any(run.takes_files for run in runs)
        limits = Limits(body=FILE_BODY) if takes_files else Limits()
    metrics = Metrics()
    engine = Engine(runs, limits, metrics)
    named = (*hosts, host) if key is not None else tuple(hosts)
    doors = Doors(key, tuple(each.lower() for each in named))
    app = application(engine, limits, doors, metrics, version)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=watched(limits, turning_away(engine.check_room, metrics)),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=round(limits.seconds) + 5,
        h11_max_incomplete_event_size=32_768,
    )
    return Server(config, engine)
