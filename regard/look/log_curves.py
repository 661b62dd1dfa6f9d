"""Curves: how the training of a run went so far, from its log.jsonl, which may be growing.

A line that is not whole yet is left for the next time; one that is no JSON is left out. Of a long
log some of the lines are given, spread evenly, the last always among them.
"""

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path

from regard.core.folder import LOG_BYTES, open_file

_MOST_BYTES = 16_000_000
"""Of a log, counted from its end."""
MOST_POINTS = 1000
"""Of a curve."""

_Points = list[tuple[int, float]]
"""Updates with their values."""


def training_curves(folder: Path) -> dict[str, _Points]:
    """Every curve by name, such as `train/loss` and `validation/perplexity`."""
    found: dict[str, _Points] = {}
    for line in _whole_lines(folder / "log.jsonl"):
        update = line.get("update")
        if isinstance(update, int):
            for name, value in _numbers(line):
                found.setdefault(name, []).append((update, value))
    return {name: _thinned(points) for name, points in found.items()}


def _whole_lines(path: Path) -> Iterator[dict[str, object]]:
    """The objects of a file of JSON lines that may be being written to."""
    if not path.exists():
        return
    with open_file(path, LOG_BYTES) as file:
        size = file.seek(0, 2)
        begin = file.seek(max(0, size - _MOST_BYTES))
        data = file.read(_MOST_BYTES)
    lines = data.split(b"\n")[:-1]  # what follows the last line's end is not whole yet
    for line in lines[1 if begin else 0 :]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _numbers(values: Mapping[str, object], prefix: str = "train") -> Iterator[tuple[str, float]]:
    """The numbers of a line by the name of their curve.

    >>> list(_numbers({"update": 3, "loss": 1.0, "validation": {"loss": 2.0}, "note": "no number"}))
    [('train/loss', 1.0), ('validation/loss', 2.0)]
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, name)
        elif name != "update" and isinstance(value, int | float) and isfinite(value):
            yield f"{prefix}/{name}", float(value)


def _thinned(points: _Points) -> _Points:
    """At most so many of them, the last among them.

    >>> len(_thinned([(update, 0.5) for update in range(5001)]))
    834
    """
    every = -(-len(points) // MOST_POINTS)
    return points[::-1][:: max(1, every)][::-1]
