"""Examples from Python as files: lists, data frames and torch data sets, written into a run.

A run must be able to go on in another process, so its data are files, whatever they came from.
Records (dicts, rows of a data frame) keep their fields; pairs are named by the task.

>>> import tempfile
>>> path = write_examples([("a fine film", "pos")], "classify", Path(tempfile.mkdtemp()) / "train")
>>> Path(path[0]).read_text()
'{"text": "a fine film", "label": "pos"}\\n'
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from regard.core.atomic import replace_atomically
from regard.core.errors import UserError

_FIELDS = {
    "classify": ("text", "label"),
    "translate": ("source", "target"),
    "language_model": ("text",),
    "tag": ("words", "tags"),
}
"""The names of the parts of an example, by task."""


@runtime_checkable
class _DataFrame(Protocol):
    """A data frame of pandas; polars has `to_dicts` instead."""

    @property
    def columns(self) -> Sequence[str]: ...

    def to_dict(self, orient: str) -> list[dict[str, object]]: ...


@runtime_checkable
class _PolarsFrame(Protocol):
    def to_dicts(self) -> list[dict[str, object]]: ...


@runtime_checkable
class _Numbered(Protocol):
    """A list, or a map-style torch data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


def files_of(data: object) -> list[str] | None:
    """The files, if data are given as files: a path, or a tuple of two for a pair of files."""
    if isinstance(data, str | Path):
        return [str(data)]
    if isinstance(data, tuple) and data and all(isinstance(each, Path) for each in data):
        return [str(each) for each in data]
    if isinstance(data, tuple) and len(data) == 2 and all(_is_file(each) for each in data):
        return [str(each) for each in data]
    return None


def _is_file(given: object) -> bool:
    return (
        isinstance(given, str) and len(given) < 4096 and "\n" not in given and Path(given).exists()
    )


def write_examples(data: object, task: str, path: Path) -> list[str]:
    """Write examples in the form that the task reads; `path` has no ending yet."""
    if task not in _FIELDS:
        raise UserError(f"examples in memory are for {', '.join(_FIELDS)}; for {task!r} give files")
    if task == "tag":
        target, text = path.with_suffix(".conll"), "".join(map(_columns, _examples(data, task)))
    else:
        target = path.with_suffix(".jsonl")
        text = "".join(f"{json.dumps(each)}\n" for each in _examples(data, task))
    if not text:
        raise UserError("there are no examples")
    with replace_atomically(target) as file:
        file.write(text.encode())
    return [str(target.resolve())]


def _examples(data: object, task: str) -> Iterator[dict[str, object]]:
    """Each example as a record."""
    if isinstance(data, _PolarsFrame):
        data = data.to_dicts()
    elif isinstance(data, _DataFrame):
        data = data.to_dict("records")
    if not isinstance(data, _Numbered):
        raise UserError(
            "data must be files, a list of examples, a data frame or a data set with a length and "
            f"examples by number, not a {type(data).__name__}"
        )
    names = _FIELDS[task]
    for number in range(len(data)):
        yield _record(data[number], names, number)


def _record(example: object, names: Sequence[str], number: int) -> dict[str, object]:
    """An example as a record with plain values."""
    if isinstance(example, Mapping):
        return {str(name): _plain(value, number) for name, value in example.items()}
    parts = (example,) if isinstance(example, str) else example
    if not isinstance(parts, Sequence) or len(parts) != len(names):
        shape = f"({', '.join(names)})" if len(names) > 1 else "a text"
        raise UserError(
            f"example {number}: expected {shape} or a dict with such fields, "
            f"not {type(example).__name__} {str(example)[:60]!r}"
        )
    if names[0] == "text" and not isinstance(parts[0], str) and len(names) == 2:
        first, second = _pair(parts[0], number)
        return {"text1": first, "text2": second, "label": _plain(parts[1], number)}
    return {name: _plain(value, number) for name, value in zip(names, parts, strict=True)}


def _pair(given: object, number: int) -> tuple[object, object]:
    """The two texts of a pair."""
    if isinstance(given, Sequence) and len(given) == 2 and all(isinstance(g, str) for g in given):
        return given[0], given[1]
    raise UserError(f"example {number}: a text must be a string, or two for a pair")


def _plain(value: object, number: int) -> object:
    """A value as JSON has it; numbers of numpy and torch become Python's."""
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Sequence):
        return [_plain(each, number) for each in value]
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", 0) == 0:
        return item()
    tolist = getattr(value, "tolist", None)
    if callable(tolist):
        return tolist()
    raise UserError(f"example {number}: a {type(value).__name__} is neither text nor a number")


def _columns(record: Mapping[str, object]) -> str:
    """A tagged sentence in columns."""
    words, tags = (record.get(name, record.get(other)) for name, other in
                   (("words", "tokens"), ("tags", "ner_tags")))  # fmt: skip
    if not isinstance(words, list) or not isinstance(tags, list) or len(words) != len(tags):
        raise UserError(f"a tag for each word is needed: {words!r} and {tags!r}")
    for each in (*words, *tags):
        if not isinstance(each, str) or not each or any(map(str.isspace, each)):
            raise UserError(f"words and tags are texts without whitespace, not {each!r}")
    return "".join(f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n"
