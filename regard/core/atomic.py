"""Files that are there whole or not at all.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> with replace_atomically(folder / "notes.txt") as file:
...     _ = file.write(b"whole")
>>> (folder / "notes.txt").read_bytes()
b'whole'
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from regard.core.errors import UserError

PART = ".part"
"""How the name of a file ends while it is being written."""

_STALE_SECONDS = 24 * 3600
"""A part that nothing has been added to for so long was left by a process that was killed."""


@contextmanager
def replace_atomically(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` once it is safely on disk, and not before.

    It is written under a temporary name in the same folder, flushed to the disk and renamed. If
    anything goes wrong the temporary file is removed and what was at `path` is still there.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}-{time.monotonic_ns()}{PART}")
    with os_errors_as_user_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        sync_folder(path.parent)


@contextmanager
def os_errors_as_user_errors(path: Path) -> Iterator[None]:
    """A full disk, a read-only folder and their like as one line that names the file."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or problem
        raise UserError(
            f"{path}: cannot be written: {reason}; free some space or choose another folder"
        ) from problem


def sync_folder(folder: Path) -> None:
    """Make the renames in a folder last through a power cut, where the system can do that."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_stale_parts(folder: Path) -> None:
    """Remove parts that killed processes have left in a folder."""
    oldest = time.time() - _STALE_SECONDS
    for part in folder.glob(f"*{PART}"):
        try:
            if part.stat().st_mtime < oldest:
                part.unlink()
        except FileNotFoundError:  # its own process was quicker
            continue


def write_json_file(path: Path, values: Mapping[str, object]) -> None:
    """Write a JSON file, whole or not at all."""
    with replace_atomically(path) as file:
        file.write((json.dumps(values, ensure_ascii=False, indent=2) + "\n").encode())
