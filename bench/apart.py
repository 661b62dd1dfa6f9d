"""Contenders that are timed in processes of their own, one at a time.

In one process libraries change each other: a second OpenMP runtime whose threads still spin halves
the speed of the first, and malloc is set for all of them at once. Here each has its own process,
as those who use it have, and sleeps while another runs. They take turns, so that a noisy machine is
noisy for all.

>>> from functools import partial
>>> spent = medians_apart({"short": partial(nap, 0.001), "long": partial(nap, 0.1)}, 1, rest=0)
>>> spent["short"] < spent["long"]
True
"""

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection

from bench.measure import Work
from regard.core.allocation import keep_freed_memory

Contender = Callable[[], Work]
"""Makes the work that is to be timed, where it is to be timed; can be sent to another process."""

REST = 0.3
"""Seconds between turns: Intel's OpenMP has its threads spin for 0.2 s after their work."""


def medians_apart(
    contenders: Mapping[str, Contender], repeats: int, warmup: int = 1, rest: float = REST
) -> dict[str, float]:
    """Median seconds of each contender's work; each round begins with another one."""
    spawning = multiprocessing.get_context("spawn")
    lines: dict[str, Connection] = {}
    for name, make in contenders.items():
        lines[name], theirs = spawning.Pipe()
        spawning.Process(target=compete, args=(make, theirs)).start()
        theirs.close()
        answer(name, lines[name])
    seconds: dict[str, list[float]] = {name: [] for name in lines}
    names = list(lines)
    for turn in range(-warmup, repeats):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            time.sleep(rest)
            lines[name].send(True)
            spent = answer(name, lines[name])
            if turn >= 0:
                seconds[name].append(spent)
    for line in lines.values():
        line.send(False)
    return {name: statistics.median(times) for name, times in seconds.items()}


def answer(name: str, line: Connection) -> float:
    """What a contender says: the seconds that it took."""
    try:
        spent: float = line.recv()
    except EOFError:
        raise SystemExit(f"{name} has ended; what it said stands above") from None
    return spent


def compete(make: Contender, line: Connection) -> None:
    """A contender's process: makes its work, then does it whenever it is asked to."""
    work = make()
    line.send(0.0)
    while asked(line):
        gc.disable()
        start = time.perf_counter()
        work()
        line.send(time.perf_counter() - start)
        gc.enable()


def asked(line: Connection) -> bool:
    """Is it this one's turn? Not if the run is over, nor if it broke off."""
    try:
        return bool(line.recv())
    except EOFError:
        return False


def steadily(make: Callable[..., Work], *given: object) -> Contender:
    """A contender with memory as our command line has it."""
    return partial(with_steady_memory, make, *given)


def with_steady_memory(make: Callable[..., Work], *given: object) -> Work:
    """The work of a process that has malloc keep big blocks."""
    keep_freed_memory()
    return make(*given)


def nap(seconds: float) -> Work:
    """Work that takes so long."""
    return partial(time.sleep, seconds)
