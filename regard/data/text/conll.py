"""Tagged sentences in the column format of the CoNLL shared tasks, and their tagging schemes.

A file has one word per line, columns separated by whitespace, and a blank line between sentences;
`-DOCSTART-` lines are skipped. The tags of its words encode a chunk in one of three schemes:

- IOB1 (Ramshaw and Marcus 1995): I-X; B-X only where a chunk follows another of its type at once;
- IOB2: every chunk begins with B-X;
- BIOES: B-X I-X E-X, and S-X for a chunk of one word.

Tags are converted between schemes by way of chunks, without loss.

>>> to_tags(to_chunks(["I-PER", "I-PER", "O", "I-LOC", "B-LOC"], "iob1"), 5, "bioes")
['B-PER', 'E-PER', 'O', 'S-LOC', 'S-LOC']
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from regard.core.errors import UserError, choose
from regard.data.text.files import display_name, read_lines

_log = logging.getLogger(__name__)

CONLL_SUFFIXES = (".conll", ".conll2003", ".iob", ".iob1", ".iob2", ".bio", ".bioes")
"""The suffixes of files in columns."""

_DOCUMENT = "-DOCSTART-"
"""The word that begins a document in CoNLL-2003, in its own sentence."""

OUTSIDE = "O"


class Chunk(NamedTuple):
    """A typed span of words in a sentence."""

    kind: str
    first: int
    last: int
    """The last word, inclusive."""


class TaggedSentence(NamedTuple):
    """A sentence with a tag for each word."""

    path: str
    line: int
    """The line of its first word, from 1."""
    words: tuple[str, ...]
    tags: tuple[str, ...]
    """The tags as in the file."""

    def where(self, word: int) -> str:
        """The position of a word, for error messages."""
        return f"{display_name(self.path)}:{self.line + word}"


def read_conll(path: str, word: int = 1, tag: int = -1) -> Iterator[TaggedSentence]:
    """All sentences of a file; columns count from 1, or from the end as -1, -2, ..."""
    name = display_name(path)
    if word == 0 or tag == 0:
        raise UserError(f"{name}: there is no column 0; columns count from 1, or back from -1")
    begin, columns, first = 1, 0, 1
    held: list[tuple[str, str]] = []
    for number, (line,) in read_lines(path):
        cells = line.split()
        cells = [] if cells[:1] == [_DOCUMENT] else cells
        if cells and not columns:
            columns, first = len(cells), number
            for column in (word, tag):
                _within(column, columns, f"{name}:{number}")
        if cells and len(cells) != columns:
            raise UserError(
                f"{name}:{number}: {len(cells)} columns where line {first} has {columns}; every "
                "word needs all columns, and a blank line ends a sentence"
            )
        if not cells:
            if held:
                yield _sentence(path, begin, held)
            held = []
            continue
        if not held:
            begin = number
        held.append((cells[_place(word)], cells[_place(tag)]))
    if held:
        yield _sentence(path, begin, held)


def _sentence(path: str, begin: int, held: Sequence[tuple[str, str]]) -> TaggedSentence:
    words, tags = zip(*held, strict=True)
    return TaggedSentence(path, begin, words, tags)


def _place(column: int) -> int:
    return column - 1 if column > 0 else column


def _within(column: int, columns: int, where: str) -> None:
    if not -columns <= column <= columns:
        raise UserError(f"{where}: there is no column {column}; this line has {columns}")


def split_tag(tag: str) -> tuple[str, str]:
    """The prefix and the type of a tag.

    >>> split_tag("B-NP"), split_tag("O")
    (('B', 'NP'), ('O', ''))
    """
    letter, _, kind = tag.partition("-")
    return letter, kind


def check_tags(sentence: TaggedSentence, scheme: str, *, lenient: bool = False) -> TaggedSentence:
    """The sentence; raises a UserError with the line if its tags do not fit the scheme.

    An I-X of IOB2 or BIOES must continue a chunk of X, which in BIOES must end in E-X. Tags of IOB1
    may have any order; IOB2 tags are valid IOB1 tags with the same meaning. If it is lenient, only
    tags that belong to no scheme are errors, and the first of the others is told once for a file.
    """
    flaw = choose("scheme of tags", scheme, _FLAWS)
    tags = (OUTSIDE, *sentence.tags, OUTSIDE)
    for place, (before, tag) in enumerate(pairwise(tags)):
        inside = place < len(sentence.tags)
        wrong = _letters_wrong(tag, scheme) if inside else None
        wrong = wrong or flaw(before, tag)
        if not wrong:
            continue
        where = sentence.where(min(place, len(sentence.tags) - 1))
        if not lenient or (inside and _letters_wrong(tag, scheme)):
            raise UserError(f"{where}: {wrong}")
        _tell_once(sentence.path, f"{where}: {wrong}")
    return sentence


def _tell_once(path: str, problem: str) -> None:
    """Log the first tag of a file that is read leniently."""
    if path not in _TOLD:
        _TOLD.add(path)
        _log.warning("%s (read leniently, like others of this file)", problem)


_TOLD: set[str] = set()
"""The files of which a lenient reading was told."""


_LETTERS_OF = {"iob1": "IOB", "iob2": "IOB", "bioes": "BIOES"}
"""The prefixes of the tags of each scheme."""


def all_tags(tags: Iterable[str], scheme: str) -> set[str]:
    """All tags of a scheme for the types of chunks in some tags.

    New text may have a longer chunk than the training data, and needs its tags too.

    >>> sorted(all_tags(["S-LST", "O"], "bioes"))
    ['B-LST', 'E-LST', 'I-LST', 'O', 'S-LST']
    """
    kinds = {kind for _, kind in map(split_tag, tags) if kind}
    begins = [letter for letter in _LETTERS_OF[scheme] if letter != OUTSIDE]
    return {OUTSIDE, *(f"{letter}-{kind}" for letter in begins for kind in kinds)}


def _letters_wrong(tag: str, scheme: str) -> str | None:
    """The error of a tag on its own, or None."""
    letter, kind = split_tag(tag)
    if letter in _LETTERS_OF[scheme] and bool(kind) == (letter != OUTSIDE) and len(letter) == 1:
        return None
    known = ", ".join("O" if each == "O" else f"{each}-X" for each in _LETTERS_OF[scheme])
    return f"{tag!r} is not a tag of {scheme}: {known}; set data.scheme to the scheme of the file"


def _flaw_iob1(before: str, tag: str) -> str | None:
    """None: an unnecessary B- still begins a chunk, and CoNLL-2003 has two of them."""
    return None


def _flaw_iob2(before: str, tag: str) -> str | None:
    """The error of an I-X that does not continue an X."""
    (_, kind), (letter, own) = split_tag(before), split_tag(tag)
    if letter == "I" and own != kind:
        return (
            f"{tag!r} after {before!r} has no B-{own} before it; correct the tag, or if the file "
            'is in iob1, set data.scheme = "iob1"'
        )
    return None


def _flaw_bioes(before: str, tag: str) -> str | None:
    """The error of a chunk without its beginning or end."""
    (last, kind), (letter, own) = split_tag(before), split_tag(tag)
    opened = last in "BI"
    if letter in "IE" and not (opened and own == kind):
        return f"{tag!r} after {before!r} has no B-{own} before it; correct the tag"
    if opened and letter not in "IE":
        return f"{tag!r} after {before!r}, whose chunk has no E-{kind}; correct the tag"
    return None


def may_follow(before: str, tag: str, scheme: str) -> bool:
    """May a tag follow another? Before the first tag and after the last stands O.

    >>> may_follow("B-NP", "I-NP", "iob2"), may_follow("O", "I-NP", "iob2")
    (True, False)
    """
    return choose("scheme of tags", scheme, _FLAWS)(before, tag) is None


_FLAWS: dict[str, Callable[[str, str], str | None]] = {
    "iob1": _flaw_iob1,
    "iob2": _flaw_iob2,
    "bioes": _flaw_bioes,
}
"""For each scheme, a function that returns the error of a tag after another, or None."""


def to_chunks(tags: Sequence[str], scheme: str) -> list[Chunk]:
    """The chunks of a sentence; invalid tags are interpreted as conlleval does.

    A chunk continues as long as its type does, up to a tag that ends it (E, S) or begins another
    (B, S; an I without a beginning begins one too, also in IOB2 and BIOES).
    """
    choose("scheme of tags", scheme, _FLAWS)
    chunks: list[Chunk] = []
    begin: int | None = None
    for place, (before, tag) in enumerate(pairwise((OUTSIDE, *tags, OUTSIDE))):
        (last, kind), (letter, own) = split_tag(before), split_tag(tag)
        ends = begin is not None and (last in "ES" or letter in "BSO" or own != kind)
        if ends:
            assert begin is not None
            chunks.append(Chunk(kind, begin, place - 1))
            begin = None
        if begin is None and letter != OUTSIDE:
            begin = place
    return chunks


def to_tags(chunks: Sequence[Chunk], words: int, scheme: str) -> list[str]:
    """The tags of a sentence of `words` words; chunks are in order and do not overlap."""
    write = choose("scheme of tags", scheme, WRITERS)
    tags = [OUTSIDE] * words
    before: Chunk | None = None
    for chunk in chunks:
        inside = [f"I-{chunk.kind}"] * (chunk.last - chunk.first + 1)
        tags[chunk.first : chunk.last + 1] = write(inside, chunk, before)
        before = chunk
    return tags


def _write_iob1(tags: list[str], chunk: Chunk, before: Chunk | None) -> list[str]:
    """B- only directly after a chunk of the same type."""
    touches = before is not None and before.last + 1 == chunk.first and before.kind == chunk.kind
    return [f"B-{chunk.kind}", *tags[1:]] if touches else tags


def _write_iob2(tags: list[str], chunk: Chunk, before: Chunk | None) -> list[str]:
    """B- at the beginning of every chunk."""
    return [f"B-{chunk.kind}", *tags[1:]]


def _write_bioes(tags: list[str], chunk: Chunk, before: Chunk | None) -> list[str]:
    """B- ... E-, or a single S-."""
    if len(tags) == 1:
        return [f"S-{chunk.kind}"]
    return [f"B-{chunk.kind}", *tags[1:-1], f"E-{chunk.kind}"]


WRITERS: dict[str, Callable[[list[str], Chunk, Chunk | None], list[str]]] = {
    "iob1": _write_iob1,
    "iob2": _write_iob2,
    "bioes": _write_bioes,
}
"""For each scheme, a function that returns the tags of one chunk."""


def convert_tags(tags: Sequence[str], given: str, wanted: str) -> list[str]:
    """Convert tags from one scheme to another."""
    return to_tags(to_chunks(tags, given), len(tags), wanted)
