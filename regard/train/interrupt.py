"""Interrupt: Ctrl-C and SIGTERM ask the loop to stop where it can go on from."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Stop:
    """Has anyone asked to stop?"""

    asked: bool = False


@contextmanager
def interruptible() -> Iterator[Stop]:
    """Inside, the first signal only asks; a second one interrupts at once.

    Python takes signals in its main thread alone, so in any other thread nobody can ask.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
