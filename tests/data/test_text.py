"""Readers: what they give back, and what they say about files that are not as they should be."""

import gzip
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.data.text.files import read_jsonl, read_lines, read_tsv
from regard.data.text.source import TEXT_FORMS, TextSource, source_at

# Characters that no line can hold are left out: its end, the return before it, NUL, surrogates.
LINE = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=30)


def texts(path: Path, **options: int) -> list[str]:
    return [record.text for record in read_lines(str(path), **options)]


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def write(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for tests that write many files, one after another, under the same name."""
    return tmp_path_factory.mktemp("scratch")


@given(
    content=st.lists(LINE, min_size=1), packed=st.booleans(), end=st.sampled_from(["\n", "\r\n"])
)
def test_lines_come_back_as_they_were_written(
    scratch: Path, content: list[str], packed: bool, end: str
) -> None:
    path = scratch / ("a.txt.gz" if packed else "a.txt")
    raw = b"".join((line + end).encode() for line in content)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    # A mark that opens the file is a byte-order mark, not a character of the text.
    content[0] = content[0].removeprefix("\ufeff")
    assert texts(path) == content
    assert [record.number for record in read_lines(str(path))] == list(range(1, len(content) + 1))


@given(rows=st.lists(st.tuples(LINE, LINE), min_size=1))
def test_jsonl_gives_back_any_text(scratch: Path, rows: list[tuple[str, str]]) -> None:
    path = scratch / "a.jsonl"
    path.write_text("".join(json.dumps({"a": a, "b": b}) + "\n" for a, b in rows))
    assert [record.texts for record in read_jsonl(str(path), ["b", "a"])] == [
        (b, a) for a, b in rows
    ]


def test_a_last_line_needs_no_end(written: Callable[[str, bytes], Path]) -> None:
    assert texts(written("a.txt", b"one\ntwo")) == ["one", "two"]


def test_only_line_ends_end_a_line(written: Callable[[str, bytes], Path]) -> None:
    odd = "a\x0b\x0c\x1c\x85\u2028\u2029b\rc"
    assert texts(written("a.txt", odd.encode())) == [odd]


def test_a_byte_order_mark_is_skipped_once(written: Callable[[str, bytes], Path]) -> None:
    assert texts(written("a.txt", b"\xef\xbb\xbf\xef\xbb\xbfa\n\xef\xbb\xbfb\n")) == [
        "\ufeffa",
        "\ufeffb",
    ]


def test_stdin_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    assert [record.text for record in read_lines("-")] == ["a", "b"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff\n")))
    with pytest.raises(UserError, match=r"^stdin:2: .*0xff.* not UTF-8"):
        list(read_lines("-"))


def test_a_line_of_a_million_characters_is_read(written: Callable[[str, bytes], Path]) -> None:
    path = written("a.txt", b"short\n" + b"x" * 1_000_000 + b"\nshort\n")
    assert [len(text) for text in texts(path)] == [5, 1_000_000, 5]


@pytest.mark.parametrize("letter", ["x", "é", "語", "🙂"])
def test_the_limit_counts_characters_and_is_exact(
    written: Callable[[str, bytes], Path], letter: str
) -> None:
    path = written("a.txt", f"a\n{letter * 100}\n".encode())
    assert texts(path, longest=100) == ["a", letter * 100]
    with pytest.raises(UserError, match=r"a.txt:2: a line of more than 99 characters; break it up"):
        texts(path, longest=99)
    with pytest.raises(UserError, match=r"a.txt:2: a line of more than 3 characters"):
        texts(path, longest=3)


def test_reading_holds_one_line_at_a_time(written: Callable[[str, bytes], Path]) -> None:
    """Asking for one line of a file that is broken further on must not meet the break."""
    path = written("a.txt", b"good\n" * 3 + b"\xff\n")
    reader = read_lines(str(path))
    assert [next(reader).text for _ in range(3)] == ["good"] * 3
    with pytest.raises(UserError, match=r"a.txt:4:"):
        next(reader)


def test_a_watcher_sees_every_byte_of_the_file_on_disk(
    written: Callable[[str, bytes], Path],
) -> None:
    raw = b"line\n" * 1000
    for name, content in [("a.txt", raw), ("a.txt.gz", gzip.compress(raw))]:
        seen: list[bytes] = []
        assert sum(1 for _ in read_lines(str(written(name, content)), on_bytes=seen.append)) == 1000
        assert b"".join(seen) == content


BROKEN = {
    "empty": ("a.txt", b"", r"a\.txt: is empty"),
    "empty gzip": ("a.txt.gz", gzip.compress(b""), r"a\.txt\.gz: is empty"),
    "NUL": ("a.txt", b"ok\nab\0c\n", r"a\.txt:2: byte 3 of the line is NUL.*text; remove it"),
    "NUL in front": ("a.txt", b"c\0d\n", r"a\.txt:1: byte 2 of the line is NUL.*text; remove it"),
    "latin": ("a.txt", b"ok\nok\ncaf\xe9\n", r"a\.txt:3: byte 4 .*0xe9.* not UTF-8 .*LATIN1"),
    "cut short": ("a.txt", b"ok\n\xe8\xaa", r"a\.txt:2: byte 1 .*0xe8.* not UTF-8"),
    "surrogate": ("a.txt", b"\xed\xa0\x80\n", r"a\.txt:1: byte 1 .*not UTF-8"),
    "UTF-16": ("a.txt", "text\n".encode("utf-16"), r"a\.txt:1: .*looks like UTF-16"),
    "UTF-16 LE": ("a.txt", "text\n".encode("utf-16-le"), r"a\.txt:1: .*looks like UTF-16"),
    "UTF-16 BE": ("a.txt", "text\n".encode("utf-16-be"), r"a\.txt:1: .*looks like UTF-16"),
    "hidden gzip": ("a.txt", gzip.compress(b"a" * 99), r"a\.txt:\d+: .*looks like gzip"),
    "no gzip": ("a.txt.gz", b"plain\n", r"a\.txt\.gz:1: damaged gzip file"),
    "torn gzip": ("a.txt.gz", gzip.compress(b"a\n" * 9999)[:-9], r":\d+: damaged gzip file"),
    "altered gzip": (
        "a.txt.gz",
        gzip.compress(b"a\n" * 9)[:-8] + b"\1" * 8,
        r":\d+: damaged gzip file",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_refused_by_file_and_line(
    kind: str, written: Callable[[str, bytes], Path]
) -> None:
    name, content, message = BROKEN[kind]
    with pytest.raises(UserError, match=message):
        texts(written(name, content))


def test_a_missing_file_names_the_one_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "ptb.train.txt.gz").touch()
    (tmp_path / "notes").touch()
    with pytest.raises(UserError, match=re.escape(f"did you mean {tmp_path}/ptb.train.txt.gz?")):
        texts(tmp_path / "ptb.train.txt")
    with pytest.raises(UserError, match=r"no such file; .* holds notes, ptb.train.txt.gz"):
        texts(tmp_path / "QQQQQQQQ")
    with pytest.raises(UserError, match=r"there is no folder .*none either"):
        texts(tmp_path / "none" / "a.txt")


def test_a_folder_and_an_impossible_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        texts(tmp_path)
    with pytest.raises(UserError, match="cannot be opened: embedded null"):
        texts(tmp_path / "a\0b")


ROWS = b"label\ttext\nyes\tit is good\nno\tit is bad\n"


def test_tsv_columns_go_by_name_or_number(written: Callable[[str, bytes], Path]) -> None:
    path = str(written("a.tsv", ROWS))
    assert [record.text for record in read_tsv(path, ["text"])] == ["it is good", "it is bad"]
    assert [record.number for record in read_tsv(path, ["text"])] == [2, 3]
    assert [record.text for record in read_tsv(path, [2])] == ["text", "it is good", "it is bad"]
    assert next(read_tsv(path, [2, "label"])).texts == ("it is good", "yes")


@pytest.mark.parametrize(
    ("content", "column", "message"),
    [
        (ROWS, "txet", r"a\.tsv:1: unknown column 'txet': did you mean 'text'"),
        (ROWS, 3, r"a\.tsv:1: there is no column 3: this row has 2"),
        (ROWS + b"torn\n", "text", r"a\.tsv:4: there is no column 2: this row has 1"),
        (ROWS, 0, r"a\.tsv: there is no column 0; columns count from 1"),
        (b"label\ttext\n", "text", r"a\.tsv: has a header and no rows"),
    ],
)
def test_a_column_that_is_not_there_is_named(
    written: Callable[[str, bytes], Path], content: bytes, column: int | str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        list(read_tsv(str(written("a.tsv", content)), [column]))


def test_a_number_beside_a_name_must_fit_the_header(
    written: Callable[[str, bytes], Path],
) -> None:
    with pytest.raises(UserError, match=r"a\.tsv:1: there is no column 3; there are 2"):
        list(read_tsv(str(written("a.tsv", ROWS)), ["text", 3]))


GOOD = b'{"text": "a", "n": 1}\n\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD + b'{"text": \n', r"a\.jsonl:3: not JSON: .* at character \d+"),
        (GOOD + b'["a"]\n', r"a\.jsonl:3: not a JSON object"),
        (GOOD + b'{"tetx": "a"}\n', r"a\.jsonl:3: unknown field 'text': did you mean 'tetx'"),
        (GOOD + b'{"text": [1, 2]}\n', r"a\.jsonl:3: field 'text' is not a string: \[1, 2\]"),
        (GOOD + b'{"text": "a\\u0000b"}\n', r"a\.jsonl:3: field 'text' contains a NUL"),
        (GOOD + b'{"text": "a\\ud800b"}\n', r"a\.jsonl:3: .* half a surrogate pair"),
        (GOOD + b"[" * 100_000 + b"\n", r"a\.jsonl:3: JSON that cannot be read"),
        (GOOD + b'{"text": ' + b"9" * 5000 + b"}\n", r"a\.jsonl:3: JSON that cannot be read"),
        (b"\n \n", r"a\.jsonl: has only blank lines"),
    ],
)
def test_bad_json_is_refused_by_file_and_line(
    written: Callable[[str, bytes], Path], content: bytes, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        list(read_jsonl(str(written("a.jsonl", content)), ["text"]))


def test_a_source_knows_its_form_by_its_name(written: Callable[[str, bytes], Path]) -> None:
    path = written("a.jsonl.gz", gzip.compress(GOOD))
    assert [record.text for record in source_at(str(path), "text").records()] == ["a"]
    assert source_at("a.tsv", 2).form == "tsv"
    assert source_at("a").form == source_at("-").form == "plain"


@pytest.mark.parametrize(
    ("form", "field", "message"),
    [
        ("plane", None, "did you mean 'plain'"),
        ("plain", 1, "plain takes no field"),
        ("tsv", None, "tsv needs field="),
        ("jsonl", 1, "JSON fields have names"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(
    form: str, field: int | str | None, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        TextSource(path="a", form=form, field=field)


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_every_form_reports_a_missing_file(form: str, tmp_path: Path) -> None:
    field = None if form in ("plain", "paragraphs") else "text"
    with pytest.raises(UserError, match="no such file"):
        list(TextSource(path=str(tmp_path / "a"), form=form, field=field).records())


def test_paragraphs_are_the_lines_up_to_a_blank_one(written: Callable[[str, bytes], Path]) -> None:
    path = written("play.txt", b"\nAnn:\nWho is there?\n\n \nBob:\nI.\n")
    source = TextSource(path=str(path), form="paragraphs")
    assert [(each.number, each.text) for each in source.records()] == [
        (2, "Ann: Who is there?"),
        (6, "Bob: I."),
    ]
    assert source.reading != source_at(str(path)).reading, "cached apart"
    blank = TextSource(path=str(written("blank.txt", b"\n \n")), form="paragraphs")
    with pytest.raises(UserError, match=r"blank\.txt: all 2 lines are blank"):
        list(blank.records())
