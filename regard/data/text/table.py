"""What the columns of a file of labelled texts hold: a guess from its first rows.

A column is a label by its name, or because its values repeat; a text by its name, or because its
values are the longest.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "reviews.csv"
>>> _ = path.write_text("id,stars,review\\n1,5,very good\\n2,1,very very bad\\n3,5,the best\\n")
>>> found = find_columns(str(path))
>>> found.text, found.label
(('review',), 'stars')
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.core.errors import UserError, unknown
from regard.data.text.files import Field, display_name, parse_json_object, read_lines
from regard.data.text.labelled import FORMS_WITH_FIELDS, labelled_form

_ROWS = 2000
"""The rows that a guess is made from."""

_LABELS = ("label", "labels", "class", "category", "target", "sentiment", "intent", "topic",
           "stars", "rating", "score", "polarity", "tag", "y")  # fmt: skip
_TEXTS = ("text", "sentence", "review", "content", "body", "tweet", "comment", "message",
          "document", "utterance", "question", "title", "description", "x")  # fmt: skip
_PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("question1", "question2"),
)
"""The names of the two texts of a pair."""


@dataclass(frozen=True)
class TextColumns:
    """The columns of a file that hold texts and labels."""

    text: tuple[Field, ...]
    """None in a file without columns."""
    label: Field | None
    values: tuple[str, ...]
    """The labels of the first rows, in order."""
    lengths: tuple[int, ...]
    """The words of each of those texts."""


def find_columns(path: str, text: object = None, label: object = None) -> TextColumns:
    """The columns of a TSV, CSV or JSONL file; of another form, none.

    `text` and `label` are columns that are known: names, or numbers from 1.
    """
    form = labelled_form(path)
    if form not in FORMS_WITH_FIELDS:
        return TextColumns((), None, (), ())
    names, columns = _first_columns(path, form)
    where = display_name(path)
    known = [_known(each, names, where) for each in _listed(label)]
    found = known[0] if known else _label_of(names, columns, where)
    texts = tuple(_known(each, names, where) for each in _listed(text))
    texts = texts or _texts_of(names, columns, found, where)
    parts = zip(*(columns[names.index(each)] for each in texts), strict=True)
    lengths = [sum(len(text.split()) for text in row) for row in parts]
    return TextColumns(texts, found, columns[names.index(found)], tuple(lengths))


def find_text(path: str) -> Field:
    """The column of a TSV or JSONL file that holds texts."""
    names, columns = _first_columns(path, labelled_form(path))
    return _texts_of(names, columns, None, display_name(path))[0]


def _first_columns(path: str, form: str) -> tuple[list[Field], list[tuple[str, ...]]]:
    """The names of the columns, or their numbers from 1, and the first cells of each."""
    rows = list(islice(_rows(path, form), _ROWS))
    if not rows:
        raise UserError(f"{display_name(path)}: is empty")
    names: list[Field] = list(rows[0])
    cells = [list(row.values()) for row in rows]
    if form != "jsonl" and _is_header(cells):
        names, cells = list(cells[0]), cells[1:]
    if not cells:
        raise UserError(f"{display_name(path)}: has a header and no rows")
    return names, list(zip(*cells, strict=True))


def _listed(given: object) -> list[object]:
    """One column, several, or none, as a list."""
    if given is None or given == "":
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _known(column: object, names: list[Field], where: str) -> Field:
    """A column that was named, if there is one."""
    if isinstance(column, int) and 1 <= column <= len(names):
        return names[column - 1]
    if column not in names:
        raise UserError(f"{where}: {unknown('column', str(column), map(str, names))}")
    return names[names.index(column)]


def _rows(path: str, form: str) -> Iterator[dict[Field, str]]:
    """The rows of a file; cells by their number, or by name in JSONL."""
    lines = ((number, line) for number, (line,) in read_lines(path) if line.strip())
    if form == "jsonl":
        first: tuple[str, ...] = ()
        for number, line in lines:
            held = parse_json_object(line, f"{display_name(path)}:{number}")
            first = first or tuple(held)
            yield {name: _cell(held.get(name, "")) for name in first}
        return
    if form == "tsv":
        split: Iterator[list[str]] = (line.split("\t") for _, line in lines)
    else:
        split = csv.reader(f"{line}\n" for _, (line,) in read_lines(path))
    width = 0
    for cells in split:
        width = width or len(cells)
        if len(cells) == width:  # the reader of the whole file reports others by line
            yield dict(enumerate(cells, start=1))


def _cell(value: object) -> str:
    """A value of JSON as a cell; a list has bars between its parts."""
    return "|".join(map(str, value)) if isinstance(value, list) else str(value)


def kind_of_labels(values: Sequence[str]) -> tuple[str, str | None]:
    """What labels are: one class, several with what is between them, or a number.

    >>> kind_of_labels(["a", "b", "a"]), kind_of_labels(["a;b", "a", "b;c", "c"])
    (('single_label', None), ('multi_label', ';'))
    >>> kind_of_labels([f"{n / 7:.2f}" for n in range(30)])
    ('regression', None)
    """
    numbers, distinct = [_number(each) for each in values], set(values)
    if all(each is not None for each in numbers):
        whole = all(each is not None and each.is_integer() for each in numbers)
        return ("single_label" if whole or len(distinct) <= 10 else "regression"), None
    for separator in ("|", ";", ","):
        parts = {part.strip() for each in distinct for part in each.split(separator)}
        if any(separator in each for each in distinct) and len(parts) < len(distinct):
            return "multi_label", separator
    return "single_label", None


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Is the first row names of columns? Known names are; else short cells seen nowhere below."""
    first, rest = rows[0], rows[1:]
    known = {*_LABELS, *_TEXTS, *(name for pair in _PAIRS for name in pair)}
    if any(cell.strip().lower() in known for cell in first):
        return True
    if any(
        not cell.strip() or len(cell.split()) > 3 or _number(cell) is not None for cell in first
    ):
        return False
    columns = zip(*rest, strict=True) if rest else [()] * len(first)
    return all(cell not in column for cell, column in zip(first, columns, strict=True))


def _label_of(names: Sequence[Field], columns: Sequence[Sequence[str]], where: str) -> Field:
    """The column of the label."""
    for wanted in _LABELS:
        for name in names:
            if str(name).strip().lower() == wanted:
                return name
    rows = len(columns[0])
    repeated = {
        name: len(set(column))
        for name, column in zip(names, columns, strict=True)
        if 1 < len(set(column)) <= max(2, rows // 2) and len(set(column)) < rows
    }
    if not repeated or len(names) < 2:
        shown = ", ".join(map(str, names))
        raise UserError(
            f"{where}: which column is the label? Of {shown}, none has values that repeat; name "
            "it with --set data.label=COLUMN, and the text with --set data.text=COLUMN"
        )
    return min(repeated, key=lambda name: repeated[name])


def _texts_of(
    names: Sequence[Field], columns: Sequence[Sequence[str]], label: Field | None, where: str
) -> tuple[Field, ...]:
    """The column of the text, or the two of a pair."""
    lower = {str(name).strip().lower(): name for name in names if name != label}
    for pair in _PAIRS:
        if all(each in lower for each in pair):
            return tuple(lower[each] for each in pair)
    for wanted in _TEXTS:
        if wanted in lower:
            return (lower[wanted],)
    held = dict(zip(names, columns, strict=True))
    others = [name for name in names if name != label]
    if not others:
        raise UserError(f"{where}: has one column, {names[0]}; a text and a label are needed")
    return (max(others, key=lambda name: sum(map(len, held[name]))),)


def _number(text: str) -> float | None:
    """The number that a cell is; None if it is none.

    >>> _number("1.5"), _number("one")
    (1.5, None)
    """
    try:
        return float(text)
    except ValueError:
        return None


def base_name(path: str) -> str:
    """The name of a file without its endings, for the name of a run.

    >>> base_name("my/train.csv.gz")
    'train'
    """
    return Path(path).name.split(".")[0] or "run"
