"""The log of a training: one JSON object per line in log.jsonl, optionally in trackers too.

A line has the number of the update and either `loss` and further values (since the previous such
line), or `validation`, or a `note`.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from math import isfinite
from pathlib import Path
from types import TracebackType

from regard.core.errors import UserError
from regard.train.display import Display
from regard.train.trackers import open_trackers


class Log:
    """The log of one training.

    The lines after the update `after` are removed: a training that resumes from a checkpoint writes
    them again. Without a folder, as in all processes but the main one, nothing is written.
    """

    def __init__(
        self, folder: Path | None, display: Display, *, after: int, trackers: Sequence[str] = ()
    ) -> None:
        self.path = folder / "log.jsonl" if folder else None
        self.display = display
        self.boards = open_trackers(trackers, folder, after) if folder else []
        if self.path:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.touch()
                truncate_log(self.path, after)
            except OSError as error:
                raise self._unwritable(error) from error

    def log_training(
        self, update: int, values: Mapping[str, float], *, seconds_left: float
    ) -> None:
        """Write the values since the previous line."""
        self._append(update, values)
        left = timedelta(seconds=round(seconds_left))
        self.display.show(f"update {update}: {left} left, {_format_values(values)}", transient=True)

    def log_validation(self, update: int, metrics: Mapping[str, float], *, best: bool) -> None:
        """Write the metrics of a validation."""
        self._append(update, {"validation": dict(metrics)})
        self.display.show(f"update {update}: validation {_format_values(metrics)}{', best' * best}")

    def note(self, update: int, text: str) -> None:
        """Write a message."""
        self._append(update, {"note": text})
        self.display.show(text)

    def sync(self) -> None:
        """Flush all lines to the disk."""
        if self.path:
            try:
                with self.path.open("rb") as file:
                    os.fsync(file.fileno())
            except OSError as error:
                raise self._unwritable(error) from error

    def _append(self, update: int, values: Mapping[str, object]) -> None:
        if self.path:
            line = json.dumps(_plain({"update": update, **values}), allow_nan=False)
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
            except OSError as error:
                raise self._unwritable(error) from error
        for board in self.boards:
            for name, value in log_curves(values).items():
                board.add_scalar(name, value, update)

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(f"cannot write {self.path}: {error.strerror or error}")

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.display.end()
        for board in self.boards:
            board.close()


def truncate_log(path: Path, update: int) -> None:
    """Remove the lines after an update, and an incomplete last line."""
    length = 0
    with path.open("rb") as file:
        for line in file:
            try:
                if not line.endswith(b"\n") or json.loads(line)["update"] > update:
                    break
            except (ValueError, KeyError, TypeError):
                break
            length += len(line)
    os.truncate(path, length)


def _plain(value: object) -> object:
    """The value for strict JSON: NaN and infinity become null.

    >>> _plain({"loss": float("inf")})
    {'loss': None}
    """
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


def log_curves(values: Mapping[str, object], prefix: str = "train") -> dict[str, float]:
    """The numbers of a line, by the name of their TensorBoard curve.

    >>> log_curves({"loss": 1.0, "validation": {"loss": 2.0}, "note": "no number"})
    {'train/loss': 1.0, 'validation/loss': 2.0}
    """
    curves: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            curves |= log_curves(value, name)
        elif isinstance(value, int | float):
            curves[f"{prefix}/{name}"] = value
    return curves


def _format_values(values: Mapping[str, float]) -> str:
    """Names and numbers, formatted for people.

    >>> _format_values({"loss": 4.123456, "items_per_second": 12345.6})
    'loss 4.123, items_per_second 12,346'
    """
    return ", ".join(
        f"{name} {value:,.0f}" if abs(value) >= 1e4 else f"{name} {value:.4g}"
        for name, value in values.items()
    )
