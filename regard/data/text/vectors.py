"""Files of word vectors: word2vec (text and binary), GloVe and fastText (.vec), also gzipped.

A file is read as a stream, and only the words of a given vocabulary are kept in memory. In text a
vector is a line `word v1 ... vD`; word2vec and fastText begin with a line with the number of
vectors and their width, GloVe does not. Binary files have the same first line, then for each vector
`word`, a space and little-endian float32s. Of a repeated word, the first vector is used, as in
gensim.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "two.txt"
>>> write_vectors(path, Vectors(("one", "two"), torch.tensor([[1.0, 0.0], [0.5, -2.0]])))
>>> path.read_text().splitlines()
['2 2', 'one 1 0', 'two 0.5 -2']
>>> read_vectors(path, {"two"}).table.tolist()
[[0.5, -2.0]]
"""

import gzip
import re
import sys
import zlib
from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core.atomic import replace_atomically
from regard.core.errors import UserError, positive, unknown
from regard.data.text.files import ByteReader, open_bytes

_LONGEST = 1 << 20
"""The maximum number of bytes of a line of text, or of a word in a binary file."""

_FASTTEXT = b"\xba\x16\x4f\x2f"
"""The first bytes of fastText's model files (.bin), which are not word2vec's format."""

_Form = Literal["text", "binary"]


@dataclass(frozen=True)
class Vectors:
    """Words and a vector for each."""

    words: tuple[str, ...]
    table: Float[Tensor, "V D"]

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each word."""
        return {word: place for place, word in enumerate(self.words)}

    @cached_property
    def directions(self) -> Float[Tensor, "V D"]:
        """The table with all rows normalised to length one; a row of zeros stays zero."""
        return F.normalize(self.table, dim=1)

    def of(self, word: str) -> Float[Tensor, "D"]:
        """The vector of a word."""
        return self.table[self._place(word)]

    def neighbours(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words with the most similar vectors, and the cosine similarities."""
        place = self._place(word)
        return self.nearest(self.directions[place], count, besides={place})

    def analogy(self, a: str, b: str, c: str, count: int = 10) -> list[tuple[str, float]]:
        """What is to c as b is to a: the words nearest to b - a + c, none of the three (3CosAdd,
        Mikolov et al. 2013; each vector of length one, as there).
        """
        places = [self._place(word) for word in (a, b, c)]
        start, end, other = (self.directions[place] for place in places)
        return self.nearest(end - start + other, count, besides=set(places))

    def nearest(
        self, vector: Float[Tensor, "D"], count: int, besides: Collection[int] = ()
    ) -> list[tuple[str, float]]:
        """The words with the most similar vectors to a vector, except for these rows."""
        cosines = self.directions @ F.normalize(vector, dim=0)
        cosines[list(besides)] = -torch.inf
        best = cosines.topk(min(positive("count", count), max(0, len(self.words) - len(besides))))
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [(self.words[place], cosine) for cosine, place in pairs]

    def _place(self, word: str) -> int:
        if word not in self.places:
            raise _unknown_word(word, self.words)
        return self.places[word]


def _unknown_word(word: str, words: Collection[str]) -> UserError:
    """The error for a word without a vector: a similar word, and the number of words."""
    like = [each for each in words if each[:1].lower() == word[:1].lower()]
    hint = re.findall(r"did you mean '.*'\?", str(unknown("word", word, like)))
    return UserError(
        f"{word!r} is not among the {len(words):,} words that have a vector"
        + (f": {hint[0]}" if hint else "")
    )


def read_vectors(
    path: str | Path, vocabulary: Collection[str] | None = None, form: _Form | None = None
) -> Vectors:
    """The vectors of a file, in its order; with a vocabulary, of those words only.

    By default the format follows from the name: `.bin` and `.bin.gz` are binary, all else is text.
    """
    place = str(path)
    binary = _is_binary(place, form)
    wanted = None if vocabulary is None else {word.encode() for word in vocabulary}
    kept = VectorCollector(place, wanted)
    with open_bytes(place) as file, _reading_errors(kept):
        (_read_binary if binary else _read_text)(file, kept)
    return kept.vectors()


def _is_binary(path: str, form: _Form | None) -> bool:
    """Is a file in word2vec's binary format?"""
    return form == "binary" or (form is None and path.removesuffix(".gz").endswith(".bin"))


class VectorCollector:
    """Collects the vectors of a file while it is read."""

    def __init__(self, path: str, wanted: set[bytes] | None) -> None:
        self.path = path
        self.at = f"{path}:1"
        """The current line, or the current vector of a binary file."""
        self._wanted = wanted
        self._rows: dict[bytes, int] = {}
        self._packed = bytearray()

    def wants(self, word: bytes) -> bool:
        """Is this a word of the vocabulary without a vector so far?"""
        return word not in self._rows and (self._wanted is None or word in self._wanted)

    def keep(self, word: bytes, packed: bytes) -> None:
        """Add a vector, as float32s in the byte order of this machine."""
        if not word:
            raise UserError(f"{self.at}: there are numbers without a word before them")
        self._rows[word] = len(self._rows)
        self._packed.extend(packed)

    def vectors(self) -> Vectors:
        """All collected vectors."""
        if not self._rows:
            raise UserError(f"{self.path}: none of the requested words has a vector in this file")
        table = torch.frombuffer(self._packed, dtype=torch.float32)
        table = table.unflatten(0, (len(self._rows), len(table) // len(self._rows)))  # [V,D]
        broken = (~table.isfinite()).any(1).nonzero().flatten()
        names = [self._decoded(word) for word in self._rows]
        if len(broken):
            raise UserError(
                f"{self.path}: the vector of {names[int(broken[0])]!r} has numbers that are not "
                "finite; remove it, or download the file again"
            )
        return Vectors(tuple(names), table)

    def _decoded(self, word: bytes) -> str:
        try:
            return word.decode()
        except UnicodeDecodeError as problem:
            raise UserError(
                f"{self.path}: the word {word!r} is not UTF-8 ({problem.reason}); convert the "
                "file, or read only the words of a vocabulary"
            ) from None


@contextmanager
def _reading_errors(kept: VectorCollector) -> Iterator[None]:
    """Raise errors of decompression and reading as UserErrors with the position."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise UserError(f"{kept.at}: damaged gzip file: {problem}; download it again") from None
    except OSError as problem:
        raise UserError(f"{kept.at}: cannot be read: {problem.strerror or problem}") from None


def _read_text(file: ByteReader, kept: VectorCollector) -> None:
    """Read lines of a word and its numbers; only lines of requested words are parsed."""
    number, count, width = 0, None, 0
    while raw := file.readline(_LONGEST):
        number += 1
        kept.at = f"{kept.path}:{number}"
        line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        line = line.rstrip(b" \r\n")
        if len(raw) == _LONGEST:
            raise UserError(
                f"{kept.at}: a line of more than {_LONGEST:,} bytes is not a word vector"
            )
        if number == 1:
            if line.startswith(_FASTTEXT) or b"\0" in line:
                raise UserError(f"{kept.at}: this is not text; {_binary_hint(line)}")
            if header := _HEADER.fullmatch(line):
                count, width = int(header[1]), int(header[2])
                continue
            width = line.count(b" ")
        blanks = line.count(b" ")
        if blanks < width or not width:
            raise UserError(
                f"{kept.at}: {blanks} numbers where {_width_source(count, width)}; every line is a "
                "word and its numbers, separated by single spaces"
            )
        # A word may contain spaces (as in GloVe 840B), so numbers are counted from the end.
        word = line.split(b" ", 1)[0] if blanks == width else line.rsplit(b" ", width)[0]
        if blanks > width and _is_number(word.rsplit(b" ", 1)[-1]):
            raise UserError(f"{kept.at}: {blanks} numbers where {_width_source(count, width)}")
        if kept.wants(word):
            kept.keep(word, _numbers_of(line, width, kept.at))
    if number == 0:
        raise UserError(f"{kept.path}: is empty; there are no vectors in it")
    read = number - (count is not None)
    if count is not None and count != read:
        raise UserError(
            f"{kept.path}:1: the header has {count:,} vectors, but there are {read:,}; the "
            "file may be truncated: download it again, or correct the header"
        )


_HEADER = re.compile(rb"(\d+)[ \t](\d+)")
"""The number of vectors, and their width."""


def _width_source(count: int | None, width: int) -> str:
    """Where the width of the vectors comes from."""
    return f"the {'header' if count is not None else 'first line'} has {width}"


def _numbers_of(line: bytes, width: int, at: str) -> bytes:
    """The last `width` fields of a line, packed as float32s."""
    fields = line.rsplit(b" ", width)[1:]
    try:
        return array("f", map(float, fields)).tobytes()
    except ValueError:
        wrong = next(each for each in fields if not _is_number(each))
        raise UserError(f"{at}: {wrong.decode(errors='replace')!r} is not a number") from None


def _is_number(field: bytes) -> bool:
    """Is this a number?"""
    try:
        float(field)
    except ValueError:
        return False
    return True


def _read_binary(file: ByteReader, kept: VectorCollector) -> None:
    """Read word2vec's binary format: words and float32s, with or without newlines."""
    first = file.readline(_LONGEST)
    header = _HEADER.fullmatch(first.strip())
    if not header or not int(header[2]):
        raise UserError(
            f"{kept.at}: word2vec's binary format begins with the number of vectors and their "
            f"width, not {first[:40]!r}; {_binary_hint(first)}"
        )
    count, width = int(header[1]), int(header[2])
    held = BufferedBytes(file)
    for number in range(count):
        kept.at = f"{kept.path}: vector {number + 1:,} of {count:,}"
        word = held.until(b" ")
        numbers = None if word is None else held.take(4 * width)
        if word is None or numbers is None:
            raise UserError(
                f"{kept.at}: the file ends here; it is truncated, or its header, {count} "
                f"vectors of {width} numbers, is wrong"
            )
        word = word.lstrip(b"\n")
        if kept.wants(word):
            kept.keep(word, _swapped(numbers))
    if held.rest().strip(b"\n"):
        raise UserError(
            f"{kept.path}:1: the header has {count:,} vectors of {width} numbers, but there "
            "is more data; it is wrong"
        )


def _swapped(packed: bytes) -> bytes:
    """Convert float32s between the byte order of this machine and little-endian."""
    if sys.byteorder == "little":
        return packed
    numbers = array("f", packed)
    numbers.byteswap()
    return numbers.tobytes()


def _binary_hint(line: bytes) -> str:
    """A guess what a file with a wrong name is."""
    if line.startswith(_FASTTEXT):
        return "it looks like a model of fastText: use the .vec file beside it"
    if line.startswith(b"\x1f\x8b"):
        return "it looks like gzip: rename it to end in .gz"
    return 'binary files end in .bin and text files do not, unless form="text" is set'


class BufferedBytes:
    """A file that is read in large blocks."""

    def __init__(self, file: ByteReader, size: int = 1 << 20) -> None:
        self._file = file
        self._size = size
        self._held = b""
        self._at = 0

    def _more(self) -> bool:
        taken = self._file.read(self._size)
        self._held = self._held[self._at :] + taken
        self._at = 0
        return bool(taken)

    def until(self, mark: bytes) -> bytes | None:
        """The bytes up to a separator, which is skipped; None if there is none near.

        With a wrong width, numbers are read as words, which soon exceed the maximum length.
        """
        while (found := self._held.find(mark, self._at)) < 0:
            if len(self._held) - self._at > _LONGEST or not self._more():
                return None
        word, self._at = self._held[self._at : found], found + len(mark)
        return word

    def take(self, count: int) -> bytes | None:
        """The next `count` bytes; None if there are fewer."""
        while len(self._held) - self._at < count:
            if not self._more():
                return None
        taken = self._held[self._at : self._at + count]
        self._at += count
        return taken

    def rest(self) -> bytes:
        """The next bytes, at most 100."""
        if len(self._held) == self._at:
            self._more()
        return self._held[self._at : self._at + 100]


def write_vectors(path: str | Path, vectors: Vectors, form: _Form | None = None) -> None:
    """Write vectors in word2vec's format; `.bin` is binary, all else text.

    The file is compressed if its name ends in .gz.
    """
    place = Path(path)
    binary = _is_binary(str(path), form)
    for word in vectors.words:
        if not word or re.search(r"[ \n\r]", word):
            raise UserError(
                f"{word!r} cannot be written to a file of vectors: a word ends at the first space"
            )
    count, width = vectors.table.shape
    with replace_atomically(place) as plain, _compressed(plain, place) as file:
        file.write(f"{count} {width}\n".encode())
        for word, row in zip(vectors.words, vectors.table.detach().float().cpu(), strict=True):
            if binary:
                packed = _swapped(array("f", row.tolist()).tobytes())
                file.write(word.encode() + b" " + packed + b"\n")
            else:
                # Nine digits are exact for every float32.
                numbers = " ".join(f"{number:.9g}" for number in row.tolist())
                file.write(f"{word} {numbers}\n".encode())


@contextmanager
def _compressed(file: BinaryIO, path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """The file, or a compressor that writes to it if the name ends in .gz."""
    if path.suffix != ".gz":
        yield file
        return
    with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        yield packed
