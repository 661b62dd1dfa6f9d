"""Turns: long work that shares one processor.

Each question is answered in a thread of its own, but only one thread computes at a time: after a
short while it waits, between two steps of its search, until the engine gives it the next turn.

>>> from functools import partial
>>> from regard.core.steps import between_steps
>>> order = []
>>> def count(name: str) -> None:
...     for number in range(2):
...         between_steps()
...         order.append(f"{name}{number}")
>>> with ThreadPoolExecutor() as pool:
...     turns = [Turn(pool, partial(count, name)) for name in "ab"]
...     while not all([turn.go_on(0.0) for turn in turns]):
...         pass
>>> order
['a0', 'b0', 'a1', 'b1']
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from regard.core.steps import check_between_steps

LONGEST_TURN = 0.03
"""Seconds that a turn lasts at most, if the work has steps that are shorter."""


class Turn:
    """Work in a thread of a pool that goes on when it is told to."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        work: Callable[[], None],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._work, self._check = work, check
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._until = 0.0
        self.ended = False
        pool.submit(self._run)

    def go_on(self, seconds: float = LONGEST_TURN) -> bool:
        """Let it compute for a turn; True if it has ended."""
        if not self.ended:
            self._until = time.perf_counter() + seconds
            self._go.release()
            self._back.acquire()
        return self.ended

    def _run(self) -> None:
        self._go.acquire()
        try:
            with check_between_steps(self._pause):
                self._work()
        finally:
            self.ended = True
            self._back.release()

    def _pause(self) -> None:
        """Wait for the next turn if this one is over; `check` may raise to end the work."""
        self._check()
        if time.perf_counter() >= self._until:
            self._back.release()
            self._go.acquire()
            self._check()
