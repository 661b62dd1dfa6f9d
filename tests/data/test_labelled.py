"""Labelled texts: every form reads alike, and whatever is wrong is said with file and line."""

import csv
import gzip
import io
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.data.text.labelled import LabelledText, csv_records

EXAMPLES = [("1", 'good, "really"\tgood'), ("0", "bad"), ("1", "été ☃")]


def written_in(folder: Path, form: str) -> LabelledText:
    """The same examples in one of the forms."""
    if form == "folder":
        for number, (label, text) in enumerate(EXAMPLES):
            (folder / "all" / label).mkdir(parents=True, exist_ok=True)
            with gzip.open(folder / "all" / label / f"{number}.txt.gz", "wt") as file:
                file.write(text)
        return LabelledText(path=str(folder / "all"))
    path = folder / f"all.{form}"
    if form == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("label", "text"), *EXAMPLES])
    elif form == "jsonl":
        rows = [json.dumps({"label": int(label), "text": text}) for label, text in EXAMPLES]
        path.write_text("\n".join(rows))
    elif form == "tsv":
        rows = ["\t".join((label, text.replace("\t", " "))) for label, text in EXAMPLES]
        path.write_text("\n".join(["label\ttext", *rows]))
    else:
        path.write_text("".join(f"__label__{label} {text}\n" for label, text in EXAMPLES))
    if form == "line":
        return LabelledText(path=str(path))
    return LabelledText(path=str(path), text=("text",), label="label")


@pytest.mark.parametrize("form", ["csv", "jsonl", "line", "tsv", "folder"])
def test_every_form_gives_the_same_examples(form: str, tmp_path: Path) -> None:
    found = [(each.label, each.texts[0]) for each in written_in(tmp_path, form).examples()]
    expected = [
        (label, text.replace("\t", " ") if form == "tsv" else text) for label, text in EXAMPLES
    ]
    assert sorted(found) == sorted(expected) if form == "folder" else found == expected


def test_packed_files_read_as_plain_ones(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tgood\n0\tbad\n")
    packed = {"a.tsv.gz": gzip.open, "a.tsv.xz": lzma.open}
    for name, opener in packed.items():
        with opener(tmp_path / name, "wb") as file:
            file.write((tmp_path / "a.tsv").read_bytes())
    read = [
        [each[2:] for each in LabelledText(path=str(path), text=(2,), label=1).examples()]
        for path in (tmp_path / "a.tsv", *(tmp_path / name for name in packed))
    ]
    assert read[0] == read[1] == read[2] == [("1", ("good",)), ("0", ("bad",))]


def test_a_pair_is_two_fields(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("yes\ta man\ta person\n")
    (one,) = LabelledText(path=str(path), text=(2, 3), label=1).examples()
    assert (one.label, one.texts, one.where) == ("yes", ("a man", "a person"), f"{path}:1")


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6))
def test_csv_as_python_writes_it_reads_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([*rows, ("end", "end")])
    path = tmp_path_factory.mktemp("csv") / "any.csv"
    path.write_text(file.getvalue(), encoding="utf-8", newline="")
    read = [record.texts for record in csv_records(str(path), [1, 2])]
    assert read == [*rows, ("end", "end")]


def test_a_csv_record_stands_where_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text('label,text\n1,"two\nlines"\n\n0,"one"\n')
    assert [record.number for record in csv_records(str(path), ["label", "text"])] == [2, 5]


BAD: dict[str, tuple[str, str, dict[str, object], str]] = {
    "a quote that never ends": ("a.csv", '1,"bad\nmore\n', {}, r"a\.csv:1: not CSV: .*doubled"),
    "text behind a quote": ("a.csv", '1,good\n0,"bad"ly\n', {}, r"a\.csv:2: not CSV"),
    "a row that is too short": ("a.csv", "1,good\n0\n", {}, r"a\.csv:2: 1 cells .* 1 has 2$"),
    "a row of too many": (
        "a.csv",
        "1,good\n0,so, so\n",
        {},
        r"a\.csv:2: 3 cells .* must be quoted",
    ),
    "a tab too many": ("a.tsv", "1\tgood\n0\tso\tso\n", {}, r"a\.tsv:2: 3 cells .* 1 has 2"),
    "columns that no row has": (
        "a.csv",
        "1,a\n",
        {"text": (3,)},
        r"a\.csv:1: there are no columns .* has 2",
    ),
    "two of fastText's labels": (
        "a.txt",
        "__label__a __label__b good\n",
        {"text": (), "label": None},
        r"a\.txt:1: a second label, '__label__b'",
    ),
    "a column nobody named": (
        "a.csv",
        "label,text\n1,a\n",
        {"text": ("txet",), "label": "label"},
        r"a\.csv:1: unknown column 'txet': did you mean 'text'",
    ),
    "a header and no rows": (
        "a.csv",
        "label,text\n",
        {"text": ("text",), "label": "label"},
        r"a\.csv: has a header and no rows",
    ),
    "an empty label": ("a.tsv", "1\tgood\n \tbad\n", {}, r"a\.tsv:2: the label is empty"),
    "no such field": (
        "a.jsonl",
        '{"text": "a"}\n',
        {"text": ("text",), "label": "label"},
        r"a\.jsonl:1: unknown field 'label'",
    ),
    "a label that is a list": (
        "a.jsonl",
        '\n{"text": "a", "label": [1]}\n',
        {"text": ("text",), "label": "label"},
        r"a\.jsonl:2: a list of labels",
    ),
    "numbers for JSON": ("a.jsonl", "{}", {}, "JSON fields have names"),
    "no text field": ("a.csv", "1,a\n", {"text": (), "label": 1}, "csv needs text="),
    "fields of a line": ("a.txt", "1 a\n", {"text": (2,), "label": 1}, "line has no fields"),
    "three parts": ("a.csv", "1,a\n", {"text": (1, 2, 3)}, "one part or two, not 3"),
    "an empty line": ("a.txt", "1 good\n\n", {"text": (), "label": None}, r"a\.txt:2: an empty"),
    "an unknown form": ("a.txt", "", {"form": "xml"}, "unknown form of labelled text 'xml'"),
}


BABI = {"form": "babi", "text": ("story", "question"), "label": "answer"}
BAD |= {
    "babi, no number": (
        "a.txt",
        "Mary went.\n",
        BABI,
        r"a.txt:1: expected a number and a sentence",
    ),
    "babi, a strange number": (
        "a.txt",
        "² Mary went.\n",
        BABI,
        r"a.txt:1: expected a number and a sentence",
    ),
    "babi, a number twice": ("a.txt", "1 A.\n2 B.\n2 C.\n", BABI, r"a.txt:3: number 2 after 2"),
    "babi, no facts": ("a.txt", "1 A.\n2 Q?\there\n", BABI, r"a.txt:2: .* there are 2 cells"),
    "babi, unknown field": (
        "a.txt",
        "1 A.\n2 Q?\there\t1\n",
        {**BABI, "label": "anser"},
        "answer",
    ),
}


def test_questions_of_babi_are_about_all_of_their_story_so_far(tmp_path: Path) -> None:
    text = "1 Mary went.\n2 Where is Mary? \there\t1\n3 She ran.\n4 Where? \tthere\t1 3\n"
    (tmp_path / "qa.txt").write_text(text + "1 John sat.\n2 Where is he?\tthere\t1\n")
    source = LabelledText(path=str(tmp_path / "qa.txt"), form="babi", text=("story", "question"),
                          label="answer")  # fmt: skip
    assert [(each.line, each.label, each.texts) for each in source.examples()] == [
        (2, "here", ("Mary went.", "Where is Mary?")),
        (4, "there", ("Mary went. She ran.", "Where?")),
        (6, "there", ("John sat.", "Where is he?")),
    ]


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said_with_file_and_line(
    case: str, tmp_path: Path, as_users_run_it: None
) -> None:
    name, text, fields, message = BAD[case]
    (tmp_path / name).write_text(text)
    chosen = {"text": (2,), "label": 1, **fields}
    with pytest.raises(UserError, match=message):
        list(LabelledText(path=str(tmp_path / name), **chosen).examples())  # type: ignore[arg-type]


def test_a_folder_without_folders_is_refused(tmp_path: Path, as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="no folders in it; expected one for each class"):
        list(LabelledText(path=str(tmp_path)).examples())


def test_a_label_ends_at_any_blank(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("__label__a\tgood film\nb  bad\nc\n")
    read = [(each.label, each.texts) for each in LabelledText(path=f"{tmp_path}/a.txt").examples()]
    assert read == [("a", ("good film",)), ("b", ("bad",)), ("c", ("",))]


def test_an_empty_file_of_a_class_is_an_empty_text(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.txt").touch()
    assert [each.texts for each in LabelledText(path=str(tmp_path)).examples()] == [("",)]
