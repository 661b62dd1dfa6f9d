"""The cache folder, digests of files, and copies of stdin.

The folder is the environment variable REGARD_CACHE, or ~/.cache/regard. Everything in it can be
built again, so it may be deleted at any time; except for the copies of stdin, which a run that was
trained on one needs to resume.
"""

import hashlib
import json
import logging
import os
import time
from pathlib import Path

from regard.core.atomic import PART, os_errors_as_user_errors, replace_atomically
from regard.core.errors import UserError
from regard.data.text.files import STDIN, open_bytes, read_lines

_log = logging.getLogger(__name__)

SETTLED_NS = 2_000_000_000
"""A file that changed less than this many nanoseconds ago may change again with the same time
stamp, because file systems count time in ticks of up to two seconds."""


def cache_folder() -> Path:
    """The cache folder."""
    chosen = os.environ.get("REGARD_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "regard"


def file_stamp(path: Path) -> dict[str, int]:
    """Metadata that changes with a file, from the file system alone."""
    status = path.stat()
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
        "inode": status.st_ino,
    }


def content_digest(path: Path, folder: Path) -> str:
    """The SHA-256 of a file, cached for as long as its stamp stays the same.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a").write_text("a")
    >>> content_digest(folder / "a", folder / "cache")[:8]
    'ca978112'
    """
    note = folder / "sources" / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"
    before = _stamp_of_readable(path)
    known = _noted(note, before)
    if known is not None:
        return known
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    changed = max(before["mtime_ns"], before["ctime_ns"])
    if file_stamp(path) == before and time.time_ns() - changed > SETTLED_NS:
        _note(note, {"path": str(path), "stamp": before, "sha256": digest})
    return digest


def _note(note: Path, held: dict[str, object]) -> None:
    """Write a note if possible; a read-only cache still works."""
    try:
        with replace_atomically(note) as file:
            file.write(json.dumps(held).encode())
    except UserError as problem:
        _log.info("%s", problem)


def _stamp_of_readable(path: Path) -> dict[str, int]:
    """The stamp; raises the error of the reader for a file that cannot be read."""
    with open_bytes(str(path)):
        pass
    if not path.is_file():
        raise UserError(f"{path}: is not a regular file; use `-` and pipe it in")
    return file_stamp(path)


def _noted(note: Path, now: dict[str, int]) -> str | None:
    """The cached SHA-256 of a file with this stamp; None if there is no valid note."""
    try:
        held = json.loads(note.read_bytes())
        digest = held["sha256"] if held["stamp"] == now else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return digest if isinstance(digest, str) else None


def copy_stdin(folder: Path | None = None) -> Path:
    """Copy stdin to a file in the cache, named by its content; return the path.

    Stdin can be read only once, and a training reads its text several times.
    """
    copies = (cache_folder() if folder is None else folder) / "stdin"
    unnamed, digest = copies / f"{os.getpid()}{PART}", hashlib.sha256()
    with replace_atomically(unnamed) as file:

        def keep(taken: bytes) -> None:
            file.write(taken)
            digest.update(taken)

        for _ in read_lines(STDIN, on_bytes=keep):
            pass
    path = copies / f"{digest.hexdigest()[:32]}.txt"
    with os_errors_as_user_errors(path):
        unnamed.replace(path)
    return path.resolve()
