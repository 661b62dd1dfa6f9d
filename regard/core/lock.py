"""One writer for a folder: a lock that the system releases when its process ends, however it ends.

The lock is on a file in the folder, which stays there. It holds against other processes and against
other threads of this one; a thread that has it can take it again.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> with one_writer(folder), one_writer(folder):
...     (folder / LOCK).exists()
True
"""

import errno
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from platform import node
from typing import BinaryIO

from regard.core.atomic import os_errors_as_user_errors
from regard.core.errors import UserError

LOCK = ".lock"
"""The file that is locked. What it holds is for people: who has the lock."""

_FIRST_BYTE_OF_LOCK = 1 << 30
"""Windows locks a range of bytes, and others cannot read them; these are beyond the text."""

_TAKEN = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)
"""The errors of a lock that another holds; any other means that there are no locks."""

_log = logging.getLogger(__name__)

_HELD: dict[Path, int] = {}
"""The thread that has the lock of a folder, in this process."""


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Inside, no other process or thread can take this lock; if one has it, a UserError names it.

    The folder is made if it does not exist.
    """
    place = folder.resolve()
    if _HELD.get(place) == threading.get_ident():
        yield
        return
    with os_errors_as_user_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+b")
    with file:
        if not _take(file):
            raise UserError(
                f"{folder}: {_owner(file)} is writing to this run; wait until it ends, or choose "
                "another --name"
            )
        _HELD[place] = threading.get_ident()
        try:
            _write_owner(file)
            yield
        finally:
            del _HELD[place]


def _take(file: BinaryIO) -> bool:
    """Lock an open file; False if it is locked already. Closing it unlocks it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_FIRST_BYTE_OF_LOCK)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno in _TAKEN:
            return False
        _log.warning(
            "%s: this file system has no locks (%s); start one training here", file.name, problem
        )
    return True


def _write_owner(file: BinaryIO) -> None:
    """Leave for others who has the lock; a disk that is full does not matter here."""
    text = f"process {os.getpid()} on {node()}, since {datetime.now():%Y-%m-%d %H:%M:%S}"
    try:
        file.truncate(0)
        file.write(text.encode())
        file.flush()
    except OSError:
        return


def _owner(file: BinaryIO) -> str:
    """Who has the lock, as far as the file tells."""
    file.seek(0)
    return file.read(200).decode(errors="replace").strip() or "another process"
