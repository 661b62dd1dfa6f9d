"""Text from files, compressed files (.gz, .xz) and stdin, one record at a time.

Text must be valid UTF-8; a byte-order mark at the start is skipped. A line ends at `\\n` or
`\\r\\n` only. NUL bytes and lines longer than `longest` characters are errors. Every error message
starts with `file:line:`, and the path `-` is stdin.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "two.txt"
>>> _ = path.write_text("one line\\nand another\\n")
>>> [record.text for record in read_lines(str(path))]
['one line', 'and another']
"""

import gzip
import io
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, runtime_checkable

from regard.core.errors import UserError, nearest, positive, unknown

MAX_LINE_CHARACTERS = 4_000_000
"""The default maximum number of characters in a line."""

STDIN = "-"

BytesCallback = Callable[[bytes], None]
"""Called with the bytes of a file, as on disk, while they are read."""

Field = int | str
"""A field of a record: a column by number from 1, or a column or JSON field by name."""


class Record(NamedTuple):
    """The selected fields of one line."""

    number: int
    """The line, from 1."""
    texts: tuple[str, ...]
    """The text of the line, or of each selected field."""

    @property
    def text(self) -> str:
        """The first text."""
        return self.texts[0]


def display_name(path: str) -> str:
    """A path in error messages."""
    return "stdin" if path == STDIN else path


def missing_file_error(path: Path) -> UserError:
    """The error for a missing file; it lists similar names in the folder."""
    folder = path.parent
    if not folder.is_dir():
        return UserError(f"{path}: no such file; there is no folder {folder} either")
    names = sorted(each.name for each in islice(folder.iterdir(), 10_000))
    guess = nearest(path.name, names)
    if guess:
        return UserError(f"{path}: no such file; did you mean {folder / guess}?")
    held = ", ".join(names[:10]) or "nothing"
    more = ", ..." if len(names) > 10 else ""
    return UserError(f"{path}: no such file; {folder} holds {held}{more}")


@runtime_checkable
class ByteReader(Protocol):
    """The methods of an open file that are needed here."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes, or fewer at the end."""
        ...

    def readline(self, limit: int, /) -> bytes:
        """The next line with its end, or its first `limit` bytes; empty at the end of the file."""
        ...


class _Watched(io.RawIOBase):
    """A file that calls a function with its bytes as they are read."""

    def __init__(self, file: ByteReader, on_bytes: BytesCallback) -> None:
        super().__init__()
        self._file = file
        self._watch = on_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        taken = self._file.read(len(buffer))
        buffer[: len(taken)] = taken
        self._watch(taken)
        return len(taken)


@contextmanager
def open_bytes(path: str, on_bytes: BytesCallback | None = None) -> Iterator[ByteReader]:
    """Open a file, decompressed if its name ends in .gz or .xz, or stdin."""
    if path == STDIN:
        file = sys.stdin.buffer
        yield file if on_bytes is None else io.BufferedReader(_Watched(file, on_bytes))
        return
    with _file(path) as file:
        plain = file if on_bytes is None else io.BufferedReader(_Watched(file, on_bytes), 1 << 20)
        if path.endswith(".gz"):
            with gzip.open(plain, "rb") as unpacked:
                yield io.BufferedReader(unpacked, 1 << 20)
        elif path.endswith(".xz"):
            with lzma.open(plain, "rb") as unpacked:
                yield io.BufferedReader(unpacked, 1 << 20)
        else:
            yield plain


def _file(path: str) -> BinaryIO:
    """Open a file; raises a UserError if that fails."""
    try:
        return Path(path).open("rb")
    except FileNotFoundError:
        raise missing_file_error(Path(path)) from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; use a file inside it") from None
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise UserError(f"{path}: cannot be opened: {reason}") from None


def read_lines(
    path: str, longest: int = MAX_LINE_CHARACTERS, on_bytes: BytesCallback | None = None
) -> Iterator[Record]:
    """All lines of a text file, without line ends; an empty file is an error."""
    record = None
    for record in read_lines_if_any(path, longest, on_bytes):
        yield record
    if record is None:
        raise UserError(f"{display_name(path)}: is empty; there is no text in it")


def read_lines_if_any(
    path: str, longest: int = MAX_LINE_CHARACTERS, on_bytes: BytesCallback | None = None
) -> Iterator[Record]:
    """All lines of a text file, without line ends; none for an empty file."""
    name = display_name(path)
    # A character has at most four bytes; two more for the line's end, three for a byte-order mark.
    limit = 4 * positive("longest", longest) + 6
    number = 0
    try:
        with open_bytes(path, on_bytes) as file:
            while raw := file.readline(limit):
                number += 1
                text = None if len(raw) == limit else _decoded(raw, name, number)
                if text is None or len(text) > longest:
                    raise UserError(
                        f"{name}:{number}: a line of more than {longest:,} characters; "
                        "break it up into several"
                    )
                yield Record(number, (text,))
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as problem:
        kind = "xz" if path.endswith(".xz") else "gzip"
        raise UserError(
            f"{name}:{number + 1}: damaged {kind} file: {problem}; download it again"
        ) from None
    except OSError as problem:
        raise UserError(
            f"{name}:{number + 1}: cannot be read: {problem.strerror or problem}"
        ) from None


def _decoded(raw: bytes, name: str, number: int) -> str:
    """The text of a line without its end."""
    if number == 1:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    if raw.endswith(b"\n"):
        raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
    if b"\0" in raw:
        raise UserError(
            f"{name}:{number}: byte {raw.index(0) + 1} of the line is NUL (0x00), "
            f"which is not allowed in text{_guess(raw, name)}"
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as problem:
        raise UserError(
            f"{name}:{number}: byte {problem.start + 1} of the line, 0x{raw[problem.start]:02x}, "
            f"is not UTF-8 ({problem.reason}){_guess(raw, name)}"
        ) from None


def _guess(raw: bytes, name: str) -> str:
    """A guess what a line that is not text is, and what to do about it."""
    if raw.startswith(b"\x1f\x8b"):
        rename = "decompress it first" if name == "stdin" else "rename it to end in .gz"
        return f"; this looks like gzip: {rename}"
    every_other = raw[:4].count(0) == 2 and b"\0\0" in (raw[:4:2], raw[1:4:2])
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or every_other:
        return "; this looks like UTF-16: convert it, as `iconv -f UTF-16 -t UTF-8` does"
    return "; remove it, or convert the file, as `iconv -f LATIN1 -t UTF-8` does"


def read_tsv(
    path: str,
    columns: Sequence[Field],
    longest: int = MAX_LINE_CHARACTERS,
    on_bytes: BytesCallback | None = None,
) -> Iterator[Record]:
    """The selected columns of every row, by number from 1 or by name.

    The first line is a header if any column is selected by name. Cells are separated by tabs;
    there is no quoting.
    """
    name = display_name(path)
    headed = any(isinstance(column, str) for column in columns)
    places = [column if isinstance(column, int) else 0 for column in columns]
    if not headed and min(places) < 1:
        raise UserError(f"{name}: there is no column {min(places)}; columns count from 1")
    number = width = 0
    for number, (line,) in read_lines(path, longest, on_bytes):
        cells = line.split("\t")
        width = width or len(cells)
        if headed and number == 1:
            places = [_place(column, cells, name) for column in columns]
            continue
        if len(cells) > width:
            raise UserError(
                f"{name}:{number}: {len(cells)} cells where line 1 has {width}; cells are "
                "separated by tabs and cannot contain one"
            )
        if max(places) > len(cells):
            raise UserError(
                f"{name}:{number}: there is no column {max(places)}: "
                f"this row has {len(cells)}; columns are separated by tabs"
            )
        yield Record(number, tuple(cells[place - 1] for place in places))
    if headed and number == 1:
        raise UserError(f"{name}: has a header and no rows")


def _place(column: Field, header: list[str], name: str) -> int:
    """The number of a column, given the header."""
    if isinstance(column, int):
        if not 1 <= column <= len(header):
            raise UserError(
                f"{name}:1: there is no column {column}; there are {len(header)}, from 1"
            )
        return column
    if column not in header:
        raise UserError(f"{name}:1: {unknown('column', column, header)}")
    return header.index(column) + 1


def read_jsonl(
    path: str,
    fields: Sequence[str],
    longest: int = MAX_LINE_CHARACTERS,
    on_bytes: BytesCallback | None = None,
) -> Iterator[Record]:
    """The selected fields of every JSON object, one per line; blank lines are skipped."""
    name = display_name(path)
    found = False
    for number, (line,) in read_lines(path, longest, on_bytes):
        if line.strip():
            found = True
            held = parse_json_object(line, f"{name}:{number}")
            texts = tuple(text_field(held, field, f"{name}:{number}") for field in fields)
            yield Record(number, texts)
    if not found:
        raise UserError(f"{name}: has only blank lines; expected one JSON object per line")


def parse_json_object(line: str, where: str) -> dict[str, object]:
    """The JSON object of a line."""
    try:
        held: object = json.loads(line)
    except json.JSONDecodeError as problem:
        raise UserError(
            f"{where}: not JSON: {problem.msg} at character {problem.pos + 1}"
        ) from None
    except (ValueError, RecursionError) as problem:
        # A number with thousands of digits, or very deeply nested brackets.
        raise UserError(f"{where}: JSON that cannot be read: {problem}") from None
    if not isinstance(held, dict):
        raise UserError(f'{where}: not a JSON object; expected, for example, {{"text": ...}}')
    return held


def text_field(held: dict[str, object], field: str, where: str) -> str:
    """The text of a field."""
    if field not in held:
        raise UserError(f"{where}: {unknown('field', field, held)}")
    text = held[field]
    if not isinstance(text, str):
        raise UserError(f"{where}: field {field!r} is not a string: {json.dumps(text)[:40]}")
    if "\0" in text:
        raise UserError(f"{where}: field {field!r} contains a NUL character, which is not text")
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON may contain a single \ud800, which is not a character.
        raise UserError(
            f"{where}: field {field!r} contains half a surrogate pair, which is not text"
        ) from None
    return text


def uncompressed_name(path: str) -> str:
    """The name of a file without the suffix of a compressed file.

    >>> uncompressed_name("reviews.tsv.xz")
    'reviews.tsv'
    """
    return path.removesuffix(".gz").removesuffix(".xz")
