"""Sources of text: a file, its format, the field of the text, and how words are split.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "two.tsv"
>>> _ = path.write_text("1\\tone text\\n0\\tanother\\n")
>>> [record.text for record in source_at(str(path), field=2).records()]
['one text', 'another']
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.core.errors import UserError, choose
from regard.data.text.files import (
    MAX_LINE_CHARACTERS,
    BytesCallback,
    Field,
    Record,
    display_name,
    read_jsonl,
    read_lines,
    read_tsv,
    uncompressed_name,
)
from regard.data.text.segment import plain_words

_WITHOUT_FIELDS = ("plain", "paragraphs")
"""Forms whose records are text alone."""


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """A source of text: a file, its format, and the field of each record that is the text."""

    path: str
    """A file, gzip if its name ends in .gz; `-` is stdin."""
    form: str = "plain"
    """A name in TEXT_FORMS."""
    field: Field | None = None
    """For TSV the column by number (from 1) or header; for JSONL the field by name."""
    longest: int = MAX_LINE_CHARACTERS
    """The maximum number of characters in a line."""
    words: str = "whitespace"
    """How words are split: `whitespace`, or `plain` for raw text (segment.py)."""
    lowercase: bool = False

    def __post_init__(self) -> None:
        choose("form of text", self.form, TEXT_FORMS)
        choose("way to split words", self.words, _WORDINGS)
        if (self.form in _WITHOUT_FIELDS) != (self.field is None):
            wanted = "takes no field" if self.form in _WITHOUT_FIELDS else "needs field="
            raise UserError(
                f"{display_name(self.path)}: {self.form} {wanted}, got field={self.field!r}"
            )
        if self.form == "jsonl" and not isinstance(self.field, str):
            raise UserError(f"{self.path}: field={self.field!r}: JSON fields have names")

    @property
    def reading(self) -> tuple[object, ...]:
        """The settings that the text depends on, besides the content of the file."""
        plain = (self.form, self.field, self.path.endswith(".gz"))
        worded = (self.words, self.lowercase)
        return plain if worded == ("whitespace", False) else (*plain, *worded)

    @property
    def is_continuous(self) -> bool:
        """Are its records lines of one text, rather than separate texts?"""
        return self.form in _WITHOUT_FIELDS

    def records(self, on_bytes: BytesCallback | None = None) -> Iterator[Record]:
        """The text of every record, with its line."""
        worded = _WORDINGS[self.words]
        for record in TEXT_FORMS[self.form](self, on_bytes):
            if worded is None and not self.lowercase:
                yield record
                continue
            texts = (text.lower() if self.lowercase else text for text in record.texts)
            yield Record(record.number, tuple(worded(text) if worded else text for text in texts))


def form_of(path: str) -> str:
    """The format of a file by its name: .tsv, .jsonl, anything else is plain.

    >>> form_of("talk.jsonl.gz")
    'jsonl'
    """
    suffix = Path(uncompressed_name(path)).suffix
    return {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}.get(suffix, "plain")


def source_at(path: str, field: Field | None = None) -> TextSource:
    """The source at a path, with the format of its name."""
    return TextSource(path=path, form=form_of(path), field=field)


def _plain(source: TextSource, on_bytes: BytesCallback | None) -> Iterator[Record]:
    return read_lines(source.path, source.longest, on_bytes)


def _tsv(source: TextSource, on_bytes: BytesCallback | None) -> Iterator[Record]:
    assert source.field is not None
    return read_tsv(source.path, [source.field], source.longest, on_bytes)


def _jsonl(source: TextSource, on_bytes: BytesCallback | None) -> Iterator[Record]:
    assert isinstance(source.field, str)
    return read_jsonl(source.path, [source.field], source.longest, on_bytes)


def _paragraphs(source: TextSource, on_bytes: BytesCallback | None) -> Iterator[Record]:
    """Lines up to a blank one, joined by spaces; blank lines alone are an error."""
    held: list[str] = []
    number = first = 0
    for number, (text,) in read_lines(source.path, source.longest, on_bytes):
        if text.strip():
            first = first if held else number
            held.append(text)
        elif held:
            yield Record(first, (" ".join(held),))
            held = []
    if held:
        yield Record(first, (" ".join(held),))
    elif not first:
        raise UserError(f"{display_name(source.path)}: all {number} lines are blank")


TEXT_FORMS: dict[str, Callable[[TextSource, BytesCallback | None], Iterator[Record]]] = {
    "plain": _plain,
    "paragraphs": _paragraphs,
    "tsv": _tsv,
    "jsonl": _jsonl,
}
"""The formats of text. To add one, write its reader and add an entry."""


def _plainly(text: str) -> str:
    """Raw text with spaces around its words and punctuation; newlines stay."""
    return " ".join(plain_words(text, lowercase=False))


_WORDINGS: dict[str, Callable[[str], str] | None] = {"whitespace": None, "plain": _plainly}
"""How words are split: at whitespace, or by the rules of segment.py."""
