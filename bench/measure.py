"""How things are measured: interleaved repeats, medians, and bytes by the allocator.

The machine may be shared and noisy, so times are only ever compared with times of the same run, and
what is printed is their ratio.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

import torch
from torch.profiler import ProfilerActivity, profile

Work = Callable[[], object]


def medians(works: Mapping[str, Work], repeats: int, warmup: int = 2) -> dict[str, float]:
    """Median seconds of each work; every round runs all of them, each round in another order."""
    names = list(works)
    for _ in range(warmup):
        for name in names:
            works[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            gc.disable()
            start = time.perf_counter()
            works[name]()
            seconds[name].append(time.perf_counter() - start)
            gc.enable()
    return {name: statistics.median(times) for name, times in seconds.items()}


def paired_ratio(ours: Work, theirs: Work, repeats: int, warmup: int = 1) -> float:
    """Median over rounds of their time by ours, each round running one right after the other."""
    for _ in range(warmup):
        ours()
        theirs()
    ratios = []
    for turn in range(repeats):
        pair = (ours, theirs) if turn % 2 else (theirs, ours)
        spent = {}
        for work in pair:
            start = time.perf_counter()
            work()
            spent[work] = time.perf_counter() - start
        ratios.append(spent[theirs] / spent[ours])
    return statistics.median(ratios)


def peak_bytes(work: Work) -> int:
    """The most memory held at once beyond what was held before, by torch's own allocator."""
    work()
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        kept = work()
    del kept
    assert run.profiler is not None
    results = run.profiler.kineto_results
    changes: list[tuple[int, int]] = []
    waiting = list(results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.name == "[memory]":
            changes.append((event.start_time_ns, event.extra_fields.alloc_size))
    held = peak = 0
    for _, change in sorted(changes, key=lambda each: each[0]):
        held += change
        peak = max(peak, held)
    return peak


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A plain table."""
    cells = [list(header), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    print(f"\n{title}")
    for number, row in enumerate(cells):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
        if number == 0:
            print("  ".join("-" * width for width in widths))


def rates(
    seconds: Mapping[str, float], items: float, before: tuple[object, ...] = ()
) -> list[tuple[object, ...]]:
    """A row for each peer: items per second of ours and of theirs, and the ratio."""
    return [
        (
            *before,
            peer,
            f"{items / seconds['ours']:,.1f}",
            f"{items / spent:,.1f}",
            f"{spent / seconds['ours']:.2f}",
        )
        for peer, spent in seconds.items()
        if peer != "ours"
    ]


def missing(package: str) -> bool:
    """Is a peer not there? Then say so."""
    if find_spec(package) is None:
        print(f"\n{package} is not installed, and left out")
        return True
    return False


def machine() -> str:
    """What the run was made on, for the head of a report."""
    return f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32"
