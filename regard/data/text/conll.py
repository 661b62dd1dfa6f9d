"""Sentences in columns, as the shared tasks of CoNLL have them, and the schemes of their tags.

One word a line, columns apart by blanks or tabs, a blank line between sentences; `-DOCSTART-` lines
are skipped. A chunk is written by tags on its words, in one of three schemes:

- IOB1 (Ramshaw and Marcus 1995): I-X; B-X only where a chunk follows another of its type at once;
- IOB2: every chunk begins with B-X;
- BIOES: B-X I-X E-X, and S-X for a chunk of one word.

Between them tags are converted by way of chunks, exactly and both ways.

>>> to_tags(to_chunks(["I-PER", "I-PER", "O", "I-LOC", "B-LOC"], "iob1"), 5, "bioes")
['B-PER', 'E-PER', 'O', 'S-LOC', 'S-LOC']
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from regard.core.errors import UserError, choose
from regard.data.text.files import display_name, read_lines

CONLL_SUFFIXES = (".conll", ".conll2003", ".iob", ".iob1", ".iob2", ".bio", ".bioes")
"""How names of files end that hold columns."""

_DOCUMENT = "-DOCSTART-"
"""The word that begins a document in CoNLL-2003, on a line and in a sentence of its own."""

OUTSIDE = "O"


class Chunk(NamedTuple):
    """Some words of a sentence that are one thing."""

    kind: str
    first: int
    last: int
    """The last word, not the one after it."""


class TaggedSentence(NamedTuple):
    """A sentence."""

    path: str
    line: int
    """Of its first word, from 1."""
    words: tuple[str, ...]
    tags: tuple[str, ...]
    """As they stand in the file."""

    def where(self, word: int) -> str:
        """Where a word stands, as errors say it."""
        return f"{display_name(self.path)}:{self.line + word}"


def read_conll(path: str, word: int = 1, tag: int = -1) -> Iterator[TaggedSentence]:
    """Every sentence of a file; columns are counted from 1, or from the end as -1, -2, ..."""
    name = display_name(path)
    if word == 0 or tag == 0:
        raise UserError(f"{name}: column 0 was asked for; columns count from 1, or back from -1")
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
                "word has all its columns, and a blank line ends a sentence"
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
        raise UserError(f"{where}: column {column} was asked for; this line has {columns}")


def split_tag(tag: str) -> tuple[str, str]:
    """The letter of a tag and its kind.

    >>> split_tag("B-NP"), split_tag("O")
    (('B', 'NP'), ('O', ''))
    """
    letter, _, kind = tag.partition("-")
    return letter, kind


def check_tags(sentence: TaggedSentence, scheme: str) -> TaggedSentence:
    """The sentence, if its tags are those of the scheme; else an error with the line.

    An I-X of IOB2 or BIOES must go on with a chunk of X, which in BIOES must end in E-X. Tags of
    IOB1 may stand in any order; those of IOB2 are among them and mean the same.
    """
    flaw = choose("scheme of tags", scheme, _FLAWS)
    tags = (OUTSIDE, *sentence.tags, OUTSIDE)
    for place, (before, tag) in enumerate(pairwise(tags)):
        inside = place < len(sentence.tags)
        wrong = _letters_wrong(tag, scheme) if inside else None
        wrong = wrong or flaw(before, tag)
        if wrong:
            raise UserError(f"{sentence.where(min(place, len(sentence.tags) - 1))}: {wrong}")
    return sentence


_LETTERS_OF = {"iob1": "IOB", "iob2": "IOB", "bioes": "BIOES"}
"""How tags of each scheme begin."""


def all_tags(tags: Iterable[str], scheme: str) -> set[str]:
    """All tags of a scheme for the kinds of chunks that there are.

    A chunk of two words may come though all there were had one.

    >>> sorted(all_tags(["S-LST", "O"], "bioes"))
    ['B-LST', 'E-LST', 'I-LST', 'O', 'S-LST']
    """
    kinds = {kind for _, kind in map(split_tag, tags) if kind}
    begins = [letter for letter in _LETTERS_OF[scheme] if letter != OUTSIDE]
    return {OUTSIDE, *(f"{letter}-{kind}" for letter in begins for kind in kinds)}


def _letters_wrong(tag: str, scheme: str) -> str | None:
    """What is wrong with a tag by itself."""
    letter, kind = split_tag(tag)
    if letter in _LETTERS_OF[scheme] and bool(kind) == (letter != OUTSIDE) and len(letter) == 1:
        return None
    known = ", ".join("O" if each == "O" else f"{each}-X" for each in _LETTERS_OF[scheme])
    return f"{tag!r} is no tag of {scheme}, which has {known}; set data.scheme to that of the file"


def _flaw_iob1(before: str, tag: str) -> str | None:
    """Nothing: a B- that need not be there still begins a chunk, and CoNLL-2003 has two such."""
    return None


def _flaw_iob2(before: str, tag: str) -> str | None:
    """I-X with nothing of X before it."""
    (_, kind), (letter, own) = split_tag(before), split_tag(tag)
    if letter == "I" and own != kind:
        return (
            f"{tag!r} after {before!r} has no B-{own} before it; mend the tag, or if the file is "
            'in iob1, set data.scheme = "iob1"'
        )
    return None


def _flaw_bioes(before: str, tag: str) -> str | None:
    """A chunk that is not closed, or not begun."""
    (last, kind), (letter, own) = split_tag(before), split_tag(tag)
    opened = last in "BI"
    if letter in "IE" and not (opened and own == kind):
        return f"{tag!r} after {before!r} has no B-{own} before it; mend the tag"
    if opened and letter not in "IE":
        return f"{tag!r} after {before!r}, whose chunk has no E-{kind}; mend the tag"
    return None


_FLAWS: dict[str, Callable[[str, str], str | None]] = {
    "iob1": _flaw_iob1,
    "iob2": _flaw_iob2,
    "bioes": _flaw_bioes,
}
"""What is wrong with a tag after another, for each scheme."""


def to_chunks(tags: Sequence[str], scheme: str) -> list[Chunk]:
    """The chunks of a sentence, whatever the tags: what is wrong is read as conlleval reads it.

    A chunk goes on as long as its kind does, up to a tag that ends it (E, S) or to one that begins
    another (B, S; in IOB2 and BIOES too an I that has no beginning begins one).
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
    """The tags of a sentence of so many words; chunks are in order and apart."""
    write = choose("scheme of tags", scheme, WRITERS)
    tags = [OUTSIDE] * words
    before: Chunk | None = None
    for chunk in chunks:
        inside = [f"I-{chunk.kind}"] * (chunk.last - chunk.first + 1)
        tags[chunk.first : chunk.last + 1] = write(inside, chunk, before)
        before = chunk
    return tags


def _write_iob1(tags: list[str], chunk: Chunk, before: Chunk | None) -> list[str]:
    """B- only where the chunk before is of the same kind and ends right here."""
    touches = before is not None and before.last + 1 == chunk.first and before.kind == chunk.kind
    return [f"B-{chunk.kind}", *tags[1:]] if touches else tags


def _write_iob2(tags: list[str], chunk: Chunk, before: Chunk | None) -> list[str]:
    """B- at every beginning."""
    return [f"B-{chunk.kind}", *tags[1:]]


def _write_bioes(tags: list[str], chunk: Chunk, before: Chunk | None) -> list[str]:
    """B- ... E-, or S- alone."""
    if len(tags) == 1:
        return [f"S-{chunk.kind}"]
    return [f"B-{chunk.kind}", *tags[1:-1], f"E-{chunk.kind}"]


WRITERS: dict[str, Callable[[list[str], Chunk, Chunk | None], list[str]]] = {
    "iob1": _write_iob1,
    "iob2": _write_iob2,
    "bioes": _write_bioes,
}
"""How each scheme writes the tags of one chunk."""


def convert_tags(tags: Sequence[str], given: str, wanted: str) -> list[str]:
    """Tags of one scheme as those of another."""
    return to_tags(to_chunks(tags, given), len(tags), wanted)
