"""Metrics: what a server did so far, as Prometheus reads it.

>>> metrics = Metrics()
>>> metrics.answered("/health", 200, 0.001)
>>> print(metrics.text({"regard_queued": 3}).splitlines()[2])
regard_requests_total{route="/health",status="200"} 1
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: the upper ends of the bins in which requests are counted."""


class Metrics:
    """Counts, safe to add to from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered: Counter[tuple[str, int]] = Counter()
        self._bins: Counter[float] = Counter()
        self._seconds = 0.0
        self._steps, self._tokens, self._step_seconds = 0, 0, 0.0
        self.in_flight = 0
        """Requests that are being answered; for the event loop alone to change."""

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request was answered, or its client left (499)."""
        with self._lock:
            self._answered[route, status] += 1
            self._seconds += seconds
            for bound in _BOUNDS:
                self._bins[bound] += seconds <= bound

    def stepped(self, tokens: int, seconds: float) -> None:
        """A batch wrote so many tokens in one step."""
        with self._lock:
            self._steps += 1
            self._tokens += tokens
            self._step_seconds += seconds

    def text(self, gauges: Mapping[str, int]) -> str:
        """All of it, and these numbers of the moment."""
        with self._lock:
            return "\n".join([*self._lines({"regard_in_flight": self.in_flight, **gauges}), ""])

    def _lines(self, gauges: Mapping[str, int]) -> Iterator[str]:
        yield "# HELP regard_requests_total Requests by route and status."
        yield "# TYPE regard_requests_total counter"
        for (route, status), count in sorted(self._answered.items()):
            yield f'regard_requests_total{{route="{route}",status="{status}"}} {count}'
        yield "# HELP regard_request_seconds How long requests took."
        yield "# TYPE regard_request_seconds histogram"
        total = sum(self._answered.values())
        for bound in _BOUNDS:
            yield f'regard_request_seconds_bucket{{le="{bound:g}"}} {self._bins[bound]}'
        yield f'regard_request_seconds_bucket{{le="+Inf"}} {total}'
        yield f"regard_request_seconds_sum {self._seconds:.6f}"
        yield f"regard_request_seconds_count {total}"
        for name, value in (
            ("regard_steps_total", self._steps),
            ("regard_tokens_total", self._tokens),
            ("regard_step_seconds_total", round(self._step_seconds, 6)),
        ):
            yield f"# TYPE {name} counter"
            yield f"{name} {value}"
        for name, value in gauges.items():
            yield f"# TYPE {name} gauge"
            yield f"{name} {value}"
