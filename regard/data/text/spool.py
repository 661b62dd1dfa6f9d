"""Stdin as a file: it can be read only once, and a training reads its text several times."""

import hashlib
import os
from pathlib import Path

from regard.core.atomic import PART, os_errors_as_user_errors, replace_atomically
from regard.data.cache import cache_folder
from regard.data.text.files import STDIN, lines


def spooled(folder: Path | None = None) -> Path:
    """The file in the cache, named by its content, to which all of stdin is copied now."""
    kept = (cache_folder() if folder is None else folder) / "stdin"
    unnamed, digest = kept / f"{os.getpid()}{PART}", hashlib.sha256()
    with replace_atomically(unnamed) as file:

        def keep(taken: bytes) -> None:
            file.write(taken)
            digest.update(taken)

        for _ in lines(STDIN, watch=keep):
            pass
    path = kept / f"{digest.hexdigest()[:32]}.txt"
    with os_errors_as_user_errors(path):
        unnamed.replace(path)
    return path.resolve()
