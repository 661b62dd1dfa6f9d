"""Files of run folders and checkpoint folders, which may come from anyone.

Every such file is opened here. It must be a regular file inside its folder: a link that leads out
of the folder, a pipe and a device are refused, and so is a file that is too large for its kind.

>>> import tempfile
>>> place = Path(tempfile.mkdtemp()) / "config.json"
>>> _ = place.write_text('{"format": 1}')
>>> read_json_object(place)
{'format': 1}
>>> place.unlink()
>>> place.symlink_to("/dev/zero")
>>> read_json_object(place)
Traceback (most recent call last):
regard.core.errors.UserError: ...config.json: is a link to a file outside of its folder...
"""

import json
import os
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from regard.core.errors import UserError

SETTINGS_BYTES = 4_000_000
"""The largest file of settings: config.json, tokenizer_config.json, labels.json."""
RECIPE_BYTES = 64_000
"""The largest recipe.toml; those of the package have about 2,000."""
VOCABULARY_BYTES = 32_000_000
"""The largest tokenizer.json, vocabulary or SentencePiece model; that of mT5 has 16 million."""
LOG_BYTES = 1_000_000_000
"""The largest log.jsonl."""
HEADER_BYTES = 16_000_000
"""The largest header of a safetensors file: about 100,000 tensors."""
_WEIGHTS_BYTES = 2**40
"""The largest file of weights."""
_DEPTH = 64
"""How deeply lists and objects of a JSON or TOML file may be nested."""
_LONGEST_KEY = 16
"""Parts of a dotted key of a recipe."""

_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_OPEN |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def _first_line(problem: object, longest: int = 200) -> str:
    """The first line of an error that may be pages long."""
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return lines[0][:longest]


def regular_file(path: Path) -> Path:
    """The path of a file without links, if it is a regular file inside its folder.

    A link may lead to another file of the folder; in the cache of Hugging Face, whose snapshots
    consist of links, also to the files that belong to the snapshot.
    """
    try:
        found, folder = path.resolve(strict=True), path.parent.resolve(strict=True)
        kind = found.stat().st_mode
    except FileNotFoundError:
        raise UserError(f"{path}: this file is missing") from None
    except (OSError, RuntimeError, ValueError) as problem:
        raise UserError(f"{path}: cannot be read: {_reason(problem)}") from None
    if not found.is_relative_to(folder) and not _in_cache(found, folder):
        raise UserError(
            f"{path}: is a link to a file outside of its folder, which is not followed; put the "
            "file itself there"
        )
    if not stat.S_ISREG(kind):
        raise UserError(f"{path}: is no regular file; nothing of it was read")
    return found


def _in_cache(found: Path, folder: Path) -> bool:
    """Is this a file of the snapshot in this folder, in a cache of Hugging Face?"""
    repository = folder.parent.parent
    return (
        folder.parent.name == "snapshots"
        and repository.name.startswith("models--")
        and found.parent == repository / "blobs"
    )


def open_file(path: Path, most: int) -> BinaryIO:
    """A regular file inside its folder, open, if it has at most so many bytes."""
    found = regular_file(path)
    try:
        file = os.fdopen(os.open(found, _OPEN), "rb")
    except OSError as problem:
        raise UserError(f"{path}: cannot be read: {_reason(problem)}") from None
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode):  # it was replaced in between
        file.close()
        raise UserError(f"{path}: is no regular file; nothing of it was read")
    if about.st_size > most:
        file.close()
        raise UserError(f"{path}: has {about.st_size:,} bytes; at most {most:,} are read")
    return file


def read_bytes(path: Path, most: int) -> bytes:
    """The bytes of a file."""
    with open_file(path, most) as file:
        try:
            data = file.read(most + 1)
        except OSError as problem:
            raise UserError(f"{path}: cannot be read: {_reason(problem)}") from None
    if len(data) > most:
        raise UserError(f"{path}: has more than {most:,} bytes; no more are read")
    return data


def read_text(path: Path, most: int = SETTINGS_BYTES) -> str:
    """The text of a file; its lines end in line feeds."""
    data = read_bytes(path, most)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1}, 0x{error.object[error.start]:02x}"
        raise UserError(f"{path}: {place}, is not UTF-8; save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path, most: int = SETTINGS_BYTES) -> object:
    """The value in a JSON file."""
    text = read_text(path, most)
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path}: not JSON: {_first_line(problem)}") from None
    check_depth(found, str(path))
    return found


def read_json_object(path: Path, most: int = SETTINGS_BYTES) -> dict[str, object]:
    """The object in a JSON file."""
    found = read_json(path, most)
    if not isinstance(found, dict):
        raise UserError(f"{path}: not a JSON object")
    return found


def safetensors_file(path: Path) -> Path:
    """The path of a safetensors file without links, if its header is bounded and has its length.

    A file with holes can have any length; it is mapped into memory only if its tensors have it too.
    """
    with open_file(path, _WEIGHTS_BYTES) as file:
        size, length = os.fstat(file.fileno()).st_size, int.from_bytes(file.read(8), "little")
        if length > HEADER_BYTES and length < size:
            raise UserError(f"{path}: has a header of {length:,} bytes; at most {HEADER_BYTES:,}")
        header = file.read(length) if length < size else b""
    try:
        held = json.loads(header)
        ends = [each["data_offsets"][1] for name, each in held.items() if name != "__metadata__"]
        whole = 8 + length + max(ends, default=0) == size
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, IndexError):
        whole = size < 2**30  # the library has better words for what is wrong
    if not whole:
        raise UserError(
            f"{path}: is not a whole safetensors file (its header is of another length)"
        )
    return regular_file(path)


def parse_toml(text: str, source: str) -> dict[str, object]:
    """The tables of a TOML file; `source` is its name in errors."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.partition("=")[0].count(".") > _LONGEST_KEY:
            raise UserError(f"{source}:{number}: the key has more than {_LONGEST_KEY} parts")
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{source}: not TOML: {_first_line(error)}") from None
    check_depth(tables, source)
    return tables


def check_depth(value: object, source: str) -> None:
    """Raise if lists and objects are nested too deeply to be worked with.

    >>> check_depth([[1], {"a": []}], "config.json")
    """
    level: list[object] = [value]
    for _ in range(_DEPTH):
        level = [each for outer in level for each in _inner(outer)]
        if not level:
            return
    raise UserError(f"{source}: lists and objects are nested more than {_DEPTH} deep")


def _inner(value: object) -> Iterable[object]:
    """The lists and objects in a list or an object, and no other values."""
    if isinstance(value, Mapping):
        return (each for each in value.values() if isinstance(each, dict | list))
    if isinstance(value, list):
        return (each for each in value if isinstance(each, dict | list))
    return ()


def _reason(problem: Exception) -> str:
    """Why a file cannot be read, without its name."""
    reason = problem.strerror if isinstance(problem, OSError) else None
    return reason or _first_line(problem)
