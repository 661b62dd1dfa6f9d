"""Files, folders and packs of a dataset, written from its originals.

Every digest is of contents, decompressed: the same text compressed by another program has the same
digest.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> with open_compressed(folder / "two.txt.gz") as file:
...     _ = file.write(b"two words")
>>> unpacked_digest(folder / "two.txt.gz") == hashlib.sha256(b"two words").hexdigest()
True
"""

import fnmatch
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from regard.core.errors import UserError
from regard.datasets.archive import files_inside
from regard.datasets.table import MadeFile, MadeFolder, MadePack

_CHUNK = 1 << 20
_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of every file in a zip archive, so that the same contents make the same bytes."""


@runtime_checkable
class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


@runtime_checkable
class _Writable(Protocol):
    def write(self, data: bytes, /) -> int: ...


@contextmanager
def open_compressed(path: Path) -> Iterator[_Writable]:
    """A new file, compressed if its name ends in .gz or .xz; the same content, the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as raw:
        if path.name.endswith(".gz"):
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
                yield packed
        elif path.name.endswith(".xz"):
            with lzma.open(raw, "wb") as packed:
                yield packed
        else:
            yield raw


@contextmanager
def open_content(path: Path) -> Iterator[_Readable]:
    """The content of a file, decompressed."""
    with path.open("rb") as raw:
        if path.name.endswith(".gz"):
            with gzip.open(raw) as unpacked:
                yield unpacked
        elif path.name.endswith(".xz"):
            with lzma.open(raw) as unpacked:
                yield unpacked
        else:
            yield raw


def unpacked_digest(path: Path) -> str:
    """The SHA-256 of what a file contains, decompressed."""
    digest = hashlib.sha256()
    try:
        with open_content(path) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as problem:
        raise UserError(f"{path}: a damaged compressed file: {problem}") from None
    return digest.hexdigest()


def list_digest(contents: Iterable[tuple[str, str]]) -> str:
    """The SHA-256 of a list of names and digests, whatever their order.

    >>> list_digest([("a", "1"), ("b", "2")]) == list_digest([("b", "2"), ("a", "1")])
    True
    """
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(contents))
    return hashlib.sha256(lines.encode()).hexdigest()


def write_files(made: Sequence[MadeFile], originals: Mapping[str, Path], folder: Path) -> None:
    """Write files of their originals; an archive is read once for all files of it."""
    inside: dict[str, dict[str, list[MadeFile]]] = {}
    for each in made:
        if each.member is None:
            _write_joined(each, originals, folder)
        else:
            assert isinstance(each.original, str), "a member is of one archive"
            inside.setdefault(each.original, {}).setdefault(each.member, []).append(each)
    for name, wanted in inside.items():
        for member, file in files_inside(originals[name]):
            taken = wanted.pop(member, [])
            content: _Readable = io.BytesIO(file.read()) if len(taken) > 1 else file
            for each in taken:
                if isinstance(content, io.BytesIO):
                    content.seek(0)
                with open_compressed(folder / each.path) as target:
                    _copy(content, target, each.lines, each.bytes)
        if wanted:
            raise UserError(f"{originals[name]}: has no {next(iter(wanted))}")


def _write_joined(made: MadeFile, originals: Mapping[str, Path], folder: Path) -> None:
    names = (made.original,) if isinstance(made.original, str) else made.original
    with open_compressed(folder / made.path) as target:
        for name in names:
            with open_content(originals[name]) as file:
                _copy(file, target, made.lines, made.bytes)


def _copy(source: _Readable, target: _Writable, lines: int | None, limit: int | None) -> None:
    """Copy a file, or its first lines or bytes."""
    if lines is not None:
        _copy_lines(source, target, lines)
        return
    left = limit
    while left is None or left > 0:
        chunk = source.read(_CHUNK if left is None else min(_CHUNK, left))
        if not chunk:
            break
        target.write(chunk)
        left = None if left is None else left - len(chunk)
    if left:
        raise UserError(f"ends {left:,} bytes before the {limit:,} that are expected")


def _copy_lines(source: _Readable, target: _Writable, lines: int) -> None:
    while lines and (chunk := source.read(_CHUNK)):
        found = chunk.count(b"\n")
        if found < lines:
            target.write(chunk)
            lines -= found
            continue
        kept = chunk.split(b"\n", lines)[:lines]
        target.write(b"\n".join(kept) + b"\n")
        lines = 0
    if lines:
        raise UserError(f"ends {lines:,} lines too early")


def chosen_files(made: MadeFolder, original: Path) -> Iterator[tuple[str, _Readable]]:
    """The files of an archive that belong into a folder or pack, by their name behind `inside`."""
    depth = made.inside.strip("/").count("/") + 1
    found = 0
    for name, file in files_inside(original):
        parts = name.split("/")
        head, rest = "/".join(parts[:depth]), "/".join(parts[depth:])
        is_inside = bool(rest) and fnmatch.fnmatchcase(head, made.inside.strip("/"))
        if is_inside and fnmatch.fnmatchcase(rest, made.names):
            found += 1
            yield rest, file
    if found != made.files:
        raise UserError(f"{original}: has {found} files for {made.path} instead of {made.files}")


def extract_folder(made: MadeFolder, original: Path, folder: Path) -> None:
    """Write the files of an archive into a folder."""
    for name, file in chosen_files(made, original):
        path = folder / made.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as target:
            _copy(file, target, None, None)


def repack(made: MadePack, original: Path, folder: Path) -> None:
    """Write the files of an archive into another, sorted by name."""
    contents = {f"{made.name_as}{name}": file.read() for name, file in chosen_files(made, original)}
    write_archive(folder / made.path, contents)


def write_archive(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write a .tar.xz or a .zip whose bytes depend on names and contents only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as packed:
            for name in sorted(contents):
                packed.writestr(zipfile.ZipInfo(name, _DATE), contents[name])
        return
    with tarfile.open(path, "x:xz", preset=1) as archive:
        for name in sorted(contents):
            info = tarfile.TarInfo(name)
            info.size = len(contents[name])
            archive.addfile(info, io.BytesIO(contents[name]))


def folder_digest(folder: Path) -> tuple[int, str]:
    """The number of files in a folder, and the digest of their list."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    listed = [(path.relative_to(folder).as_posix(), unpacked_digest(path)) for path in paths]
    return len(paths), list_digest(listed)


def pack_digest(path: Path) -> tuple[int, str]:
    """The number of files in an archive, and the digest of their list."""
    listed = [(name, hashlib.sha256(file.read()).hexdigest()) for name, file in files_inside(path)]
    return len(listed), list_digest(listed)
