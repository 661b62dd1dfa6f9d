"""Labelled texts from TSV, CSV, JSONL, lines that begin with their label, or folders.

Each example has its position, `file:line`, for error messages. A text may be a pair (premise and
hypothesis, title and body); both parts are fields of one record.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "reviews.csv"
>>> _ = path.write_text('stars,text\\n5,"good, ""very""\\ngood"\\n1,bad\\n')
>>> for each in LabelledText(path=str(path), text=("text",), label="stars").examples():
...     print(each.line, each.label, each.texts)
2 5 ('good, "very"\\ngood',)
4 1 ('bad',)
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regard.core.errors import UserError, choose, unknown
from regard.data.text.files import (
    MAX_LINE_CHARACTERS,
    STDIN,
    Field,
    Record,
    display_name,
    missing_file_error,
    parse_json_object,
    read_lines,
    read_lines_if_any,
    read_tsv,
    text_field,
    uncompressed_name,
)
from regard.data.text.questions import babi_questions

_PREFIX = "__label__"
"""The prefix of labels in fastText's files."""


class LabelledExample(NamedTuple):
    """A text and its label."""

    path: str
    line: int
    """Its first line, from 1."""
    label: str | tuple[str, ...] | None
    """None if no label was requested; a tuple if a text may have several."""
    texts: tuple[str, ...]
    """One text, or two for a pair."""

    @property
    def where(self) -> str:
        """Its position in error messages."""
        return f"{display_name(self.path)}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class LabelledText:
    """A source of labelled examples: a file or a folder, its format, and its fields."""

    path: str
    """A file, compressed if its name ends in .gz or .xz; for `folder`, a folder; `-` is stdin."""
    form: str | None = None
    """The format; None selects it by the name of the file."""
    text: tuple[Field, ...] = ()
    """The field of the text, or two of a pair: columns by number from 1 or name, JSON fields."""
    label: Field | None = None
    """The field of the label; None reads texts only."""
    separator: str | None = None
    """What is between labels, if a text may have any number of them; None if it has one."""

    @property
    def known_form(self) -> str:
        """The format, selected by the name if none is set."""
        return self.form or labelled_form(self.path)

    def __post_init__(self) -> None:
        form = self.known_form
        choose("form of labelled text", form, _FORMS)
        name = display_name(self.path)
        if len(self.text) > 2:
            raise UserError(f"{name}: a text has one part or two, not {len(self.text)}")
        if form in FORMS_WITH_FIELDS and not self.text:
            raise UserError(f"{name}: {form} needs text=, the field of the text")
        if form not in FORMS_WITH_FIELDS and (self.text or self.label is not None):
            raise UserError(f"{name}: {form} has no fields; leave out text= and label=")
        if form == "jsonl" and any(isinstance(each, int) for each in self.fields):
            raise UserError(f"{name}: {list(self.fields)}: JSON fields have names")

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the text, and of the label if there is one."""
        return self.text if self.label is None else (*self.text, self.label)

    def examples(self) -> Iterator[LabelledExample]:
        """All examples in order, including empty texts."""
        yield from _FORMS[self.known_form](self)

    def example(self, record: Record) -> LabelledExample:
        """An example from its fields."""
        parts = record.texts
        if self.label is None:
            return LabelledExample(self.path, record.number, None, parts)
        label = parts[-1].strip()
        if self.separator is not None:
            several = tuple(filter(None, map(str.strip, label.split(self.separator))))
            return LabelledExample(self.path, record.number, several, parts[:-1])
        if not label:
            raise UserError(f"{display_name(self.path)}:{record.number}: the label is empty")
        return LabelledExample(self.path, record.number, label, parts[:-1])


def labelled_form(path: str) -> str:
    """The format of a file by its name; a folder has a subfolder for each class.

    >>> labelled_form("reviews.csv.gz"), labelled_form("stsa.train.gz")
    ('csv', 'line')
    """
    if path != STDIN and Path(path).is_dir():
        return "folder"
    known = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    return known.get(Path(uncompressed_name(path)).suffix, "line")


def _read_tsv(source: LabelledText) -> Iterator[LabelledExample]:
    """A row of tab-separated cells is an example."""
    return (source.example(record) for record in read_tsv(source.path, source.fields))


def _read_csv(source: LabelledText) -> Iterator[LabelledExample]:
    """A row of comma-separated cells is an example; a quoted cell may contain newlines."""
    return (source.example(record) for record in csv_records(source.path, source.fields))


def csv_records(path: str, columns: Sequence[Field]) -> Iterator[Record]:
    """The selected columns of every row (RFC 4180), by number or by name in the header.

    The line of a record is the first line of its row. Blank lines are skipped.
    """
    name, headed = display_name(path), any(isinstance(column, str) for column in columns)
    places = [column if isinstance(column, int) else 0 for column in columns]
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_CHARACTERS))
    read = csv.reader((f"{line}\n" for _, (line,) in read_lines(path)), strict=True)
    rows, first = 0, (0, 0)
    while True:
        begin = read.line_num + 1
        try:
            cells = next(read, None)
        except csv.Error as problem:
            raise UserError(
                f"{name}:{begin}: not CSV: {problem}; a cell with a quote, a comma or a newline "
                'must be quoted, and quotes in it doubled: "say ""so"""'
            ) from None
        if cells is None:
            break
        if not cells:
            continue
        if not any(first):
            first = (begin, len(cells))
            if headed:
                places = [_column_at(column, cells, f"{name}:{begin}") for column in columns]
                continue
        if len(cells) != first[1]:
            quotes = '; a cell with a comma must be quoted: "so, so"'
            raise UserError(
                f"{name}:{begin}: {len(cells)} cells where line {first[0]} has {first[1]}"
                + (quotes if len(cells) > first[1] else "")
            )
        if not 1 <= min(places) <= max(places) <= len(cells):
            raise UserError(
                f"{name}:{begin}: there are no columns {list(columns)}; this row has "
                f"{len(cells)}, from 1"
            )
        rows += 1
        yield Record(begin, tuple(cells[place - 1] for place in places))
    if not rows:
        raise UserError(f"{name}: has {'a header and ' if headed else ''}no rows")


def _column_at(column: Field, header: Sequence[str], where: str) -> int:
    """The number of a column, from the header."""
    if isinstance(column, int):
        return column
    if column not in header:
        raise UserError(f"{where}: {unknown('column', column, header)}")
    return list(header).index(column) + 1


def _read_jsonl(source: LabelledText) -> Iterator[LabelledExample]:
    """A JSON object per line is an example; its label is a string, an integer or a boolean."""
    for number, (line,) in read_lines(source.path):
        if not line.strip():
            continue
        where = f"{display_name(source.path)}:{number}"
        held = parse_json_object(line, where)
        texts = tuple(text_field(held, str(field), where) for field in source.text)
        if source.label is not None:
            several = source.separator
            texts = (*texts, _json_label(held, str(source.label), where, several))
        yield source.example(Record(number, texts))


def _json_label(
    held: dict[str, object], field: str, where: str, separator: str | None = None
) -> str:
    """A label as a string: 1 becomes "1", and true becomes "true"; a list, its labels."""
    if field not in held:
        raise UserError(f"{where}: {unknown('field', field, held)}")
    label = held[field]
    if isinstance(label, list) and separator is not None:
        return separator.join(_json_label({field: each}, field, where) for each in label)
    if isinstance(label, list):
        raise UserError(
            f'{where}: a list of labels, {label}; for several labels set problem = "multi_label"'
        )
    if isinstance(label, bool | int | float):
        return json.dumps(label)
    return text_field(held, field, where)


def _read_lines(source: LabelledText) -> Iterator[LabelledExample]:
    """A line is a label, whitespace and a text; fastText's prefix `__label__` is dropped."""
    for number, (line,) in read_lines(source.path):
        where = f"{display_name(source.path)}:{number}"
        label, *rest = line.split(maxsplit=1) or [""]
        text = rest[0].strip() if rest else ""
        if not label:
            raise UserError(f"{where}: an empty line; expected a label and a text")
        if source.separator is not None:
            yield LabelledExample(source.path, number, *_several_labels(line))
            continue
        if label.startswith(_PREFIX) and text.startswith(_PREFIX):
            raise UserError(f"{where}: a second label, {text.split()[0]!r}; a text must have one")
        yield LabelledExample(source.path, number, label.removeprefix(_PREFIX), (text,))


def _several_labels(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All labels before a text, and the text; without fastText's prefix, the first word.

    >>> _several_labels("__label__a __label__b some text"), _several_labels("a some text")
    ((('a', 'b'), ('some text',)), (('a',), ('some text',)))
    """
    words = line.split()
    count = next((n for n, word in enumerate(words) if not word.startswith(_PREFIX)), len(words))
    count = count or min(1, len(words))
    text = line.split(maxsplit=count)[count:]
    return tuple(word.removeprefix(_PREFIX) for word in words[:count]), (text[0] if text else "",)


def _read_folder(source: LabelledText) -> Iterator[LabelledExample]:
    """A folder per class, and a file per text, in the order of their names."""
    top = Path(source.path)
    if not top.is_dir():
        raise missing_file_error(top)
    classes = sorted(each for each in top.iterdir() if each.is_dir())
    if not classes:
        raise UserError(f"{top}: there are no folders in it; expected one for each class")
    for folder in classes:
        for file in sorted(each for each in folder.iterdir() if each.is_file()):
            text = "\n".join(record.text for record in read_lines_if_any(str(file)))
            yield LabelledExample(str(file), 1, folder.name, (text,))


def files_in(folder: str) -> list[str]:
    """All files in a folder and its subfolders, in the order of their names."""
    found = sorted(str(each) for each in Path(folder).rglob("*") if each.is_file())
    if not found:
        raise UserError(f"{folder}: there are no files in it")
    return found


def _read_babi(source: LabelledText) -> Iterator[LabelledExample]:
    """bAbI (questions.py): the fields are `story`, `question`, `answer` and `facts`."""
    for each in babi_questions(source.path):
        held = {
            "story": each.story,
            "question": each.question,
            "answer": each.answer,
            "facts": each.facts,
        }
        fields = (choose("field", str(field), held) for field in source.fields)
        yield source.example(Record(each.line, tuple(fields)))


_FORMS: dict[str, Callable[[LabelledText], Iterator[LabelledExample]]] = {
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "line": _read_lines,
    "folder": _read_folder,
    "babi": _read_babi,
}
"""The formats of labelled texts. To add one, write its reader and add an entry."""

FORMS_WITH_FIELDS = ("tsv", "csv", "jsonl", "babi")
"""The formats whose records have several fields."""
