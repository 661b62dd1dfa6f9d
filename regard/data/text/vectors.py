"""Word vectors in files: word2vec (text and binary), GloVe and fastText (.vec), perhaps gzipped.

A file is read as a stream, and of a given vocabulary only those words are kept, so that gigabytes
are read in the memory of what is kept. In text a vector is a line `word v1 ... vD`; word2vec and
fastText begin with a line that says how many and how wide, GloVe does not. Binary is the same
beginning, then `word`, a blank and little-endian float32s. Of a word that comes twice, the first
counts, as in gensim.

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
"""How many bytes a line of text, or a word of a binary file, may have."""

_FASTTEXT = b"\xba\x16\x4f\x2f"
"""How fastText's own model files (.bin) begin, which are not word2vec's."""

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
        """The table with all rows brought to length one; a row of zeros stays one."""
        return F.normalize(self.table, dim=1)

    def of(self, word: str) -> Float[Tensor, "D"]:
        """The vector of a word."""
        return self.table[self._place(word)]

    def neighbours(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words whose vectors point most nearly the same way, with the cosine."""
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
        """The words that point most nearly the same way as a vector, but for these rows."""
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
    """The error for a word without a vector: a like one, and how many there are."""
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

    The form is told by the name: `.bin` and `.bin.gz` are word2vec's binary, all else is text.
    """
    place = str(path)
    binary = _is_binary(place, form)
    wanted = None if vocabulary is None else {word.encode() for word in vocabulary}
    kept = VectorCollector(place, wanted)
    with open_bytes(place) as file, _told(kept):
        (_read_binary if binary else _read_text)(file, kept)
    return kept.vectors()


def _is_binary(path: str, form: _Form | None) -> bool:
    """Does a file have word2vec's binary form?"""
    return form == "binary" or (form is None and path.removesuffix(".gz").endswith(".bin"))


class VectorCollector:
    """What has been read of a file so far."""

    def __init__(self, path: str, wanted: set[bytes] | None) -> None:
        self.path = path
        self.at = f"{path}:1"
        """The line, or the vector of a binary file, that is being read."""
        self._wanted = wanted
        self._rows: dict[bytes, int] = {}
        self._packed = bytearray()

    def wants(self, word: bytes) -> bool:
        """Is this word to be kept, and not there yet?"""
        return word not in self._rows and (self._wanted is None or word in self._wanted)

    def keep(self, word: bytes, packed: bytes) -> None:
        """Keep a vector, given as float32s of this machine."""
        if not word:
            raise UserError(f"{self.at}: there are numbers but no word before them")
        self._rows[word] = len(self._rows)
        self._packed.extend(packed)

    def vectors(self) -> Vectors:
        """All that was kept."""
        if not self._rows:
            raise UserError(f"{self.path}: none of the words that were asked for has a vector here")
        table = torch.frombuffer(self._packed, dtype=torch.float32)
        table = table.unflatten(0, (len(self._rows), len(table) // len(self._rows)))  # [V,D]
        broken = (~table.isfinite()).any(1).nonzero().flatten()
        names = [self._decoded(word) for word in self._rows]
        if len(broken):
            raise UserError(
                f"{self.path}: the vector of {names[int(broken[0])]!r} has numbers that are not "
                "finite; leave it out, or fetch the file again"
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
def _told(kept: VectorCollector) -> Iterator[None]:
    """Errors of unpacking and reading, with the place."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise UserError(f"{kept.at}: damaged gzip file: {problem}; fetch it again") from None
    except OSError as problem:
        raise UserError(f"{kept.at}: cannot be read: {problem.strerror or problem}") from None


def _read_text(file: ByteReader, kept: VectorCollector) -> None:
    """Lines of a word and its numbers; only those that are kept are taken apart."""
    number, count, width = 0, None, 0
    while raw := file.readline(_LONGEST):
        number += 1
        kept.at = f"{kept.path}:{number}"
        line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        line = line.rstrip(b" \r\n")
        if len(raw) == _LONGEST:
            raise UserError(f"{kept.at}: a line of more than {_LONGEST:,} bytes is no word vector")
        if number == 1:
            if line.startswith(_FASTTEXT) or b"\0" in line:
                raise UserError(f"{kept.at}: this is no text; {_binary_hint(line)}")
            if header := _HEADER.fullmatch(line):
                count, width = int(header[1]), int(header[2])
                continue
            width = line.count(b" ")
        blanks = line.count(b" ")
        if blanks < width or not width:
            raise UserError(
                f"{kept.at}: {blanks} numbers where {_said(count, width)}; every line must be a "
                "word and its numbers, set apart by single blanks"
            )
        # A word may hold blanks itself (GloVe 840B has such), so numbers are counted from the end.
        word = line.split(b" ", 1)[0] if blanks == width else line.rsplit(b" ", width)[0]
        if blanks > width and _is_number(word.rsplit(b" ", 1)[-1]):
            raise UserError(f"{kept.at}: {blanks} numbers where {_said(count, width)}")
        if kept.wants(word):
            kept.keep(word, _numbers_of(line, width, kept.at))
    if number == 0:
        raise UserError(f"{kept.path}: is empty; there are no vectors in it")
    read = number - (count is not None)
    if count is not None and count != read:
        raise UserError(
            f"{kept.path}:1: the first line says {count:,} vectors, but there are {read:,}; the "
            "file may be cut off: fetch it again, or put the line right"
        )


_HEADER = re.compile(rb"(\d+)[ \t](\d+)")
"""How many vectors, and how wide."""


def _said(count: int | None, width: int) -> str:
    """Who said how wide the vectors are."""
    return f"the first line {'says' if count is not None else 'has'} {width}"


def _numbers_of(line: bytes, width: int, at: str) -> bytes:
    """The last so many fields of a line, packed as float32s."""
    fields = line.rsplit(b" ", width)[1:]
    try:
        return array("f", map(float, fields)).tobytes()
    except ValueError:
        wrong = next(each for each in fields if not _is_number(each))
        raise UserError(f"{at}: {wrong.decode(errors='replace')!r} is no number") from None


def _is_number(field: bytes) -> bool:
    """Can this be read as a number?"""
    try:
        float(field)
    except ValueError:
        return False
    return True


def _read_binary(file: ByteReader, kept: VectorCollector) -> None:
    """word2vec's binary: words and float32s one after the other, with or without line ends."""
    first = file.readline(_LONGEST)
    header = _HEADER.fullmatch(first.strip())
    if not header or not int(header[2]):
        raise UserError(
            f"{kept.at}: word2vec's binary begins with two numbers, how many vectors and how wide, "
            f"not {first[:40]!r}; {_binary_hint(first)}"
        )
    count, width = int(header[1]), int(header[2])
    held = Chunks(file)
    for number in range(count):
        kept.at = f"{kept.path}: vector {number + 1:,} of {count:,}"
        word = held.until(b" ")
        numbers = None if word is None else held.take(4 * width)
        if word is None or numbers is None:
            raise UserError(
                f"{kept.at}: the file ends there; it is cut off, or its first line, {count} "
                f"vectors of {width} numbers, does not tell the truth"
            )
        word = word.lstrip(b"\n")
        if kept.wants(word):
            kept.keep(word, _swapped(numbers))
    if held.rest().strip(b"\n"):
        raise UserError(
            f"{kept.path}:1: the first line says {count:,} vectors of {width} numbers, but there "
            "is more; it does not tell the truth"
        )


def _swapped(packed: bytes) -> bytes:
    """Float32s from this machine's order to that of the files, little-endian, or back."""
    if sys.byteorder == "little":
        return packed
    numbers = array("f", packed)
    numbers.byteswap()
    return numbers.tobytes()


def _binary_hint(line: bytes) -> str:
    """What a file may be that is not what its name says."""
    if line.startswith(_FASTTEXT):
        return "it looks like a model of fastText: give the .vec file that lies beside it"
    if line.startswith(b"\x1f\x8b"):
        return "it looks like gzip: let its name end in .gz"
    return 'text has a name that does not end in .bin, or form="text"; binary ends in .bin'


class Chunks:
    """A file in large pieces, cut wherever one likes."""

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
        """All up to a mark, which is passed over; None if it does not come within a word's length.

        A width that lies makes words of what are numbers, which soon are longer than any word.
        """
        while (found := self._held.find(mark, self._at)) < 0:
            if len(self._held) - self._at > _LONGEST or not self._more():
                return None
        word, self._at = self._held[self._at : found], found + len(mark)
        return word

    def take(self, count: int) -> bytes | None:
        """So many bytes; None if there are fewer."""
        while len(self._held) - self._at < count:
            if not self._more():
                return None
        taken = self._held[self._at : self._at + count]
        self._at += count
        return taken

    def rest(self) -> bytes:
        """A little of what is left."""
        if len(self._held) == self._at:
            self._more()
        return self._held[self._at : self._at + 100]


def write_vectors(path: str | Path, vectors: Vectors, form: _Form | None = None) -> None:
    """Write vectors as word2vec does, for gensim and others; `.bin` is binary, all else text.

    Packed if the name ends in .gz.
    """
    place = Path(path)
    binary = _is_binary(str(path), form)
    for word in vectors.words:
        if not word or re.search(r"[ \n\r]", word):
            raise UserError(
                f"{word!r} cannot stand in a file of vectors: a word ends at the first blank"
            )
    count, width = vectors.table.shape
    with replace_atomically(place) as plain, _packing(plain, place) as file:
        file.write(f"{count} {width}\n".encode())
        for word, row in zip(vectors.words, vectors.table.detach().float().cpu(), strict=True):
            if binary:
                packed = _swapped(array("f", row.tolist()).tobytes())
                file.write(word.encode() + b" " + packed + b"\n")
            else:
                # Nine digits tell every float32 from every other.
                shown = " ".join(f"{number:.9g}" for number in row.tolist())
                file.write(f"{word} {shown}\n".encode())


@contextmanager
def _packing(file: BinaryIO, path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """The file itself, or what packs into it if the name ends in .gz."""
    if path.suffix != ".gz":
        yield file
        return
    with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        yield packed
