"""Log: one JSON object a line in log.jsonl, and TensorBoard if asked.

A line has the update it was written after and either `loss` and what belongs to it (since the line
before), or `validation`, or a `note`.
"""

import json
import os
from collections.abc import Mapping
from datetime import timedelta
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Protocol, runtime_checkable

from regard.core.errors import UserError
from regard.train.display import Display


@runtime_checkable
class Board(Protocol):
    """What TensorBoard's SummaryWriter is asked for."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """A point of a curve."""
        ...

    def close(self) -> None:
        """No more points."""
        ...


class Log:
    """The log of one training.

    Opened after an update, it forgets all lines beyond: a training that goes on from a checkpoint
    writes them again. Without a folder, in a process that does not lead, it writes nothing.
    """

    def __init__(
        self, folder: Path | None, display: Display, *, after: int, tensorboard: bool = False
    ) -> None:
        self.path = folder / "log.jsonl" if folder else None
        self.display = display
        self.board = _board_of(folder, after) if folder and tensorboard else None
        if self.path:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.touch()
                cut(self.path, after)
            except OSError as error:
                raise self._unwritable(error) from error

    def trained(self, update: int, values: Mapping[str, float], *, seconds_left: float) -> None:
        """How training went since the line before."""
        self._append(update, values)
        left = timedelta(seconds=round(seconds_left))
        self.display.show(f"update {update}: {_listed(values)}, {left} left", passing=True)

    def validated(self, update: int, metrics: Mapping[str, float], *, best: bool) -> None:
        """What a validation gave."""
        self._append(update, {"validation": dict(metrics)})
        self.display.show(f"update {update}: validation {_listed(metrics)}{', best' * best}")

    def note(self, update: int, text: str) -> None:
        """Something a person should know."""
        self._append(update, {"note": text})
        self.display.show(text)

    def sync(self) -> None:
        """Have the disk know every line."""
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
        if self.board:
            for name, value in curves(values).items():
                self.board.add_scalar(name, value, update)

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
        if self.board:
            self.board.close()


def cut(path: Path, update: int) -> None:
    """Forget the lines after an update, and one that was not written to its end."""
    kept = 0
    with path.open("rb") as file:
        for line in file:
            try:
                if not line.endswith(b"\n") or json.loads(line)["update"] > update:
                    break
            except (ValueError, KeyError, TypeError):
                break
            kept += len(line)
    os.truncate(path, kept)


def _plain(value: object) -> object:
    """The value as strict JSON can say it: what is no finite number is null.

    >>> _plain({"loss": float("inf")})
    {'loss': None}
    """
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


def curves(values: Mapping[str, object], prefix: str = "train") -> dict[str, float]:
    """The numbers of a line by the name of their curve.

    >>> curves({"loss": 1.0, "validation": {"loss": 2.0}, "note": "no number"})
    {'train/loss': 1.0, 'validation/loss': 2.0}
    """
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= curves(value, name)
        elif isinstance(value, int | float):
            found[f"{prefix}/{name}"] = value
    return found


def _listed(values: Mapping[str, float]) -> str:
    """Names and numbers for a person.

    >>> _listed({"loss": 4.123456, "items_per_second": 12345.6})
    'loss 4.123, items_per_second 12,346'
    """
    return ", ".join(
        f"{name} {value:,.0f}" if abs(value) >= 1e4 else f"{name} {value:.4g}"
        for name, value in values.items()
    )


def _board_of(folder: Path, after: int) -> Board:
    """TensorBoard's writer, which hides the points after an update as the log does."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError(
            "tensorboard=true needs the package tensorboard: pip install 'regard[track]'"
        ) from error
    board: Board = SummaryWriter(str(folder / "tensorboard"), purge_step=after + 1)
    return board
