"""The files of a zip or tar archive, one after the other, without trust in the archive.

Nothing is ever written to a name that an archive chooses: `files_inside` yields names and contents,
and the caller decides where they go. Names that leave the folder, archives with too many or too
large files, and members that are longer than the archive states are errors; links and devices are
skipped.

>>> safe_name("data/train.txt")
'data/train.txt'
>>> safe_name("../../etc/passwd")
Traceback (most recent call last):
regard.core.errors.UserError: '../../etc/passwd': a name that leaves the folder of the archive
"""

import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from regard.core.errors import UserError

MAX_UNPACKED_BYTES = 16 << 30
"""The most that one archive may unpack to."""
MAX_ARCHIVE_FILES = 500_000
"""The most files that one archive may have."""


def safe_name(name: str) -> str:
    """The name of a file in an archive, if it is below the archive's folder."""
    parts = PurePosixPath(name).parts
    wrong = not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name
    if wrong or ":" in parts[0]:
        raise UserError(f"{name!r}: a name that leaves the folder of the archive")
    return str(PurePosixPath(name))


class _Limited:
    """A member of an archive that can be read to its stated size, and no further."""

    def __init__(self, file: IO[bytes], size: int, path: Path) -> None:
        self._file, self._left, self._path = file, size, path

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        wanted = self._left + 1 if size < 0 else min(size, self._left + 1)
        with _as_user_errors(self._path):
            taken = self._file.read(wanted)
        self._left -= len(taken)
        if self._left > 0 and (size < 0 or (size and not taken)):
            raise UserError(f"{self._path}: not a whole zip or tar archive: a file is cut off")
        if self._left < 0:
            raise UserError(f"{self._path}: is longer than the archive states; not unpacked")
        return taken


def files_inside(path: Path) -> Iterator[tuple[str, _Limited]]:
    """Every regular file of an archive: its name, and its content to read at once."""
    with _as_user_errors(path):
        if zipfile.is_zipfile(path):
            yield from _zip_files(path)
        else:
            yield from _tar_files(path)


def _zip_files(path: Path) -> Iterator[tuple[str, _Limited]]:
    with zipfile.ZipFile(path) as archive:
        infos = [each for each in archive.infolist() if not each.is_dir()]
        _check_size(path, len(infos), sum(each.file_size for each in infos))
        for info in infos:
            if stat.S_ISLNK(info.external_attr >> 16):
                continue
            if info.flag_bits & 1:
                raise UserError(f"{path}: {info.filename} is encrypted")
            with archive.open(info) as file:
                yield safe_name(info.filename), _Limited(file, info.file_size, path)


def _tar_files(path: Path) -> Iterator[tuple[str, _Limited]]:
    count = total = 0
    with tarfile.open(path, "r|*") as archive:
        for info in archive:
            if not info.isfile():
                continue
            count, total = count + 1, total + info.size
            _check_size(path, count, total)
            file = archive.extractfile(info)
            assert file is not None, "a regular file"
            yield safe_name(info.name), _Limited(file, info.size, path)


def _check_size(path: Path, count: int, size: int) -> None:
    if count > MAX_ARCHIVE_FILES or size > MAX_UNPACKED_BYTES:
        raise UserError(
            f"{path}: {count:,} files of {size:,} bytes in all; at most {MAX_ARCHIVE_FILES:,} "
            f"files of {MAX_UNPACKED_BYTES:,} bytes are unpacked"
        )


@contextmanager
def _as_user_errors(path: Path) -> Iterator[None]:
    """Whatever a damaged archive raises, as one line."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as problem:
        raise UserError(
            f"{path}: not a whole zip or tar archive: {problem}; remove it and download it again"
        ) from None
    except (OSError, NotImplementedError, RuntimeError) as problem:
        raise UserError(f"{path}: cannot be unpacked: {problem}") from None
