"""A text to learn from: a file, its form, which field of a record is the text, and what words are.

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
    LONGEST,
    Field,
    Record,
    Watch,
    jsonl,
    lines,
    shown,
    tsv,
    unpacked_name,
)
from regard.data.text.segment import plain_words


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where text comes from: a file, its form, and the field of each record that is the text."""

    path: str
    """A file, gzip if its name ends in .gz; `-` is stdin."""
    form: str = "plain"
    """A row of FORMS."""
    field: Field | None = None
    """For TSV the column by number (from 1) or header; for JSONL the field by name."""
    longest: int = LONGEST
    """How many characters a line may have."""
    words: str = "blank"
    """A row of WORDINGS: a text as it stands, or words and signs of running text set apart."""
    lowercase: bool = False

    def __post_init__(self) -> None:
        choose("form of text", self.form, FORMS)
        choose("way to find words", self.words, _WORDINGS)
        if (self.form == "plain") != (self.field is None):
            wanted = "takes no field" if self.form == "plain" else "needs field="
            raise UserError(f"{shown(self.path)}: {self.form} {wanted}, got field={self.field!r}")
        if self.form == "jsonl" and not isinstance(self.field, str):
            raise UserError(f"{self.path}: field={self.field!r}: JSON fields have names")

    @property
    def reading(self) -> tuple[object, ...]:
        """All that the text depends on besides the content of the file."""
        plain = (self.form, self.field, self.path.endswith(".gz"))
        worded = (self.words, self.lowercase)
        return plain if worded == ("blank", False) else (*plain, *worded)

    @property
    def runs_on(self) -> bool:
        """Are its records lines of one text, rather than texts that each end for themselves?"""
        return self.form == "plain"

    def records(self, watch: Watch | None = None) -> Iterator[Record]:
        """The text of every record, with its line."""
        worded = _WORDINGS[self.words]
        for record in FORMS[self.form](self, watch):
            if worded is None and not self.lowercase:
                yield record
                continue
            texts = (text.lower() if self.lowercase else text for text in record.texts)
            yield Record(record.number, tuple(worded(text) if worded else text for text in texts))


def form_of(path: str) -> str:
    """The form of a file, told by its name: .tsv, .jsonl, anything else is plain.

    >>> form_of("talk.jsonl.gz")
    'jsonl'
    """
    suffix = Path(unpacked_name(path)).suffix
    return {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}.get(suffix, "plain")


def source_at(path: str, field: Field | None = None) -> Source:
    """The source at a path, in the form that its name tells."""
    return Source(path=path, form=form_of(path), field=field)


def _plain(source: Source, watch: Watch | None) -> Iterator[Record]:
    return lines(source.path, source.longest, watch)


def _tsv(source: Source, watch: Watch | None) -> Iterator[Record]:
    assert source.field is not None
    return tsv(source.path, [source.field], source.longest, watch)


def _jsonl(source: Source, watch: Watch | None) -> Iterator[Record]:
    assert isinstance(source.field, str)
    return jsonl(source.path, [source.field], source.longest, watch)


FORMS: dict[str, Callable[[Source, Watch | None], Iterator[Record]]] = {
    "plain": _plain,
    "tsv": _tsv,
    "jsonl": _jsonl,
}
"""The forms text comes in. To add one, write its reader and add its row."""


def _plainly(text: str) -> str:
    """Running text with blanks around its words and signs; line ends stay."""
    return " ".join(plain_words(text, lowercase=False))


_WORDINGS: dict[str, Callable[[str], str] | None] = {"blank": None, "plain": _plainly}
"""How words are found: between blanks, or by the rules of wording.py."""
