"""Pairs of sentences: how they are read, what is kept of them, and the batches they make."""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.data import BucketBatches
from regard.data.batch import IGNORE
from regard.data.bucket import EMPTY_ROW
from regard.data.text import parallel as module
from regard.data.text.parallel import (
    PairCounts,
    PairTokenisers,
    ParallelText,
    SentencePair,
    encode_pairs,
)
from regard.data.text.pipeline import split_words
from regard.data.text.tokeniser import TOKENISERS, train_tokeniser

LINE = st.text(st.characters(exclude_characters="\n\r\0\t", exclude_categories=["Cs"]), max_size=20)
CELLS = st.lists(st.tuples(LINE, LINE), min_size=1, max_size=20)
TEXTS = ["ein haus", "a house", "der garten", "the garden", "語 🙂"]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


def two_files(folder: Path, rows: list[tuple[str, str]]) -> ParallelText:
    for name, side in (("a.src", 0), ("a.tgt.gz", 1)):
        raw = "".join(row[side] + "\n" for row in rows).encode()
        (folder / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return ParallelText(paths=(str(folder / "a.src"), str(folder / "a.tgt.gz")))


def by_number(folder: Path, rows: list[tuple[str, str]]) -> ParallelText:
    (folder / "a.tsv").write_text("".join(f"id\t{b}\t{a}\n" for a, b in rows), newline="")
    return ParallelText(paths=(str(folder / "a.tsv"),), fields=(3, 2))


def by_name(folder: Path, rows: list[tuple[str, str]]) -> ParallelText:
    table = "de\ten\n" + "".join(f"{a}\t{b}\n" for a, b in rows)
    (folder / "b.tsv").write_text(table, newline="")
    return ParallelText(paths=(str(folder / "b.tsv"),), fields=("de", "en"))


def by_field(folder: Path, rows: list[tuple[str, str]]) -> ParallelText:
    raw = "".join(json.dumps({"en": b, "de": a}) + "\n" for a, b in rows).encode()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(raw))
    return ParallelText(paths=(str(folder / "a.jsonl.gz"),), fields=("de", "en"))


FORMS = {"two files": two_files, "by number": by_number, "by name": by_name, "by field": by_field}


@pytest.mark.parametrize("form", FORMS)
@given(rows=CELLS)
def test_pairs_come_back_as_they_were_written(
    scratch: Path, form: str, rows: list[tuple[str, str]]
) -> None:
    # A mark that opens a file is a byte-order mark, not a character of the text.
    rows = [(a.replace("\ufeff", ""), b.replace("\ufeff", "")) for a, b in rows]
    read = list(FORMS[form](scratch, rows).pairs())
    assert [(pair.source, pair.target) for pair in read] == rows
    first = 2 if form == "by name" else 1
    assert [pair.number for pair in read] == list(range(first, first + len(rows)))


def test_json_may_hold_line_ends_and_a_sentence_none(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"a": "one\ntwo", "b": "x\r\ny"}) + "\n")
    text = ParallelText(paths=(str(tmp_path / "a.jsonl"),), fields=("a", "b"))
    assert list(text.pairs()) == [SentencePair(1, "one two", "x y")]


@pytest.mark.parametrize(("left", "right"), [(5, 3), (3, 5), (1, 4)])
def test_files_of_unequal_length_are_refused_with_both_counts(
    tmp_path: Path, left: int, right: int
) -> None:
    (tmp_path / "a").write_text("x\n" * left)
    (tmp_path / "b").write_text("x\n" * right)
    longer, shorter = ("a", "b") if left > right else ("b", "a")
    message = (
        rf"{longer}:{min(left, right) + 1}: the first line without a partner: \S*{longer} has "
        rf"{max(left, right)} lines and \S*{shorter} has {min(left, right)};"
    )
    pairs = ParallelText(paths=(str(tmp_path / "a"), str(tmp_path / "b"))).pairs()
    with pytest.raises(UserError, match=message):
        list(pairs)


@pytest.mark.parametrize(
    ("paths", "fields", "message"),
    [
        ((), None, "one file or two, not 0"),
        (("a", "b", "c"), None, "one file or two, not 3"),
        (("-", "-"), None, "stdin cannot be both sides"),
        (("a", "b"), (1, 2), r"a, b: two files have one sentence per line and take no fields"),
        (("a.txt",), (1, 2), r"a.txt: a file with both sides must be .tsv or .jsonl"),
        (("a.tsv",), None, "a.tsv: needs fields="),
        (("a.jsonl.gz",), ("de", 2), "JSON fields have names"),
    ],
)
def test_files_that_cannot_be_pairs_are_refused(
    as_users_run_it: None, paths: tuple[str, ...], fields: tuple[str, str] | None, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        ParallelText(paths=paths, fields=fields)


def test_a_bad_byte_is_told_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"fine\nfine\n")
    (tmp_path / "b").write_bytes(b"fine\n\xff\n")
    with pytest.raises(UserError, match=r"b:2: byte 1 of the line, 0xff, is not UTF-8"):
        list(ParallelText(paths=(str(tmp_path / "a"), str(tmp_path / "b"))).pairs())


@cache
def numbering(kind: str) -> PairTokenisers:
    return PairTokenisers(train_tokeniser(kind, TEXTS[::2]), train_tokeniser(kind, TEXTS[1::2]))


@pytest.mark.parametrize("kind", TOKENISERS)
@given(rows=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=12))
def test_a_batch_is_source_and_target_with_their_marks(
    kind: str, rows: list[tuple[str, str]]
) -> None:
    numbers = numbering(kind)
    pairs, kept = encode_pairs(rows, numbers, whole=True)
    assert kept == PairCounts(len(rows))
    order = torch.arange(len(rows)).flip(0)
    batch = pairs.gather(order)
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    source, target = numbers.source, numbers.target
    for place, number in enumerate(order.tolist()):
        theirs, ours = source.encode(rows[number][0]), target.encode(rows[number][1])
        padding = batch["source"].shape[1] - len(theirs) - 1
        assert batch["source"][place].tolist() == [*theirs, source.eos] + [source.pad] * padding
        assert batch["source_lengths"][place] == len(theirs) + 1
        padding = batch["targets"].shape[1] - len(ours) - 1
        assert batch["tokens"][place].tolist() == [target.bos, *ours] + [target.pad] * padding
        assert batch["targets"][place].tolist() == [*ours, target.eos] + [IGNORE] * padding
        assert pairs.lengths[number] == max(len(theirs), len(ours)) + 1


def test_encoding_in_blocks_is_encoding_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"a{'b' * (number % 7)}", "c" * (number % 5)) for number in range(50)]
    whole, counted = encode_pairs(rows, numbering("byte"), longest=5)
    monkeypatch.setattr(module, "PAIR_BLOCK", 7)
    parts, recounted = encode_pairs(rows, numbering("byte"), longest=5)
    assert counted == recounted
    assert len(whole) == len(parts) == counted.kept
    for number in range(len(whole)):
        assert torch.equal(whole.source[number], parts.source[number])
        assert torch.equal(whole.target[number], parts.target[number])


def test_what_is_left_out_of_training_is_counted_and_the_rest_is_in_order() -> None:
    rows = [
        ("ab", "cd"),
        ("", "c"),
        ("a", ""),
        ("abcd", "c"),
        ("a", "cdef"),
        ("abc", "def"),
        ("", ""),
    ]
    pairs, kept = encode_pairs(rows, numbering("byte"), longest=3)
    assert kept == PairCounts(kept=2, too_long=2, empty=3)
    assert str(kept) == "2 pairs kept, 2 too long, 3 with an empty side"
    decode = numbering("byte").source.decode
    assert [decode(pairs.source[number][:-1].tolist()) for number in (0, 1)] == ["ab", "abc"]
    assert sum((kept, kept), PairCounts(0)) == PairCounts(4, 4, 6)


def test_nothing_is_left_out_where_every_line_counts() -> None:
    rows = [("", ""), ("a" * 100, "b"), ("", "b")]
    pairs, kept = encode_pairs(rows, numbering("byte"), longest=3, whole=True)
    assert kept == PairCounts(3)
    assert pairs.lengths == [1, 101, 2]


@pytest.mark.parametrize("copies", [False, True])
def test_nobody_is_a_source_of_just_its_end_without_targets(copies: bool) -> None:
    one = train_tokeniser("word", TEXTS)
    pairs, _ = encode_pairs(
        [("ein haus", "a neu"), ("neu", "neu")], PairTokenisers(one, one, copies)
    )
    batch = pairs.gather(torch.tensor([0, EMPTY_ROW]))
    alone = pairs.gather(torch.tensor([0]))
    for name, rows in alone.items():
        assert torch.equal(batch[name][:1], rows)
    assert batch["source"][1].tolist() == [one.eos, one.pad, one.pad]
    assert batch["source_lengths"].tolist() == [3, 1]
    assert bool((batch["targets"][1] == IGNORE).all())
    assert ("source_extended" in batch) == copies
    assert not copies or batch["source_extended"][1].tolist() == [one.eos, one.pad, one.pad]
    nobody = pairs.gather(torch.tensor([EMPTY_ROW]))
    assert {
        name: list(rows.shape) for name, rows in nobody.items() if name != "source_lengths"
    } == {name: [1, 1] for name in nobody if name != "source_lengths"}


def test_pairs_are_dealt_out_by_the_longer_side() -> None:
    rows = [("a" * (1 + number % 30), "b" * (1 + number * 7 % 30)) for number in range(60)]
    pairs, _ = encode_pairs(rows, numbering("byte"))
    batches = BucketBatches(pairs.lengths, pairs.gather, tokens_per_batch=128, seed=0)
    seen = 0
    for index in range(len(batches)):
        batch = batches.batch(0, index)
        assert max(batch["source"].numel(), batch["tokens"].numel()) <= 128
        seen += len(batch["source"])
    assert seen == 60


@given(
    source=st.lists(st.sampled_from(["ein", "haus", "neu", "alt", "<unk>", "7"]), max_size=8),
    target=st.lists(st.sampled_from(["a", "house", "neu", "alt", "<unk>", "9"]), max_size=8),
)
def test_unknown_words_of_the_source_have_numbers_beyond_the_vocabulary(
    source: list[str], target: list[str]
) -> None:
    """Literally: a loop over the words, with a list of what is new in this row."""
    theirs, ours = train_tokeniser("word", ["ein haus"]), train_tokeniser("word", ["a house ein"])
    row = (" ".join(source), " ".join(target))
    pairs, _ = encode_pairs([row], PairTokenisers(theirs, ours, copies=True), whole=True)
    batch = pairs.gather(torch.tensor([0]))
    known = ["<pad>", "<unk>", "<bos>", "<eos>", "a", "ein", "house"]
    new: list[str] = []
    due = []
    for word in source:
        if word == "<unk>" or word not in known:
            if word not in new:
                new.append(word)
            due.append(len(known) + new.index(word))
        else:
            due.append(known.index(word))
    assert batch["source_extended"][0].tolist() == [*due, ours.eos]
    assert batch["source"].shape == batch["source_extended"].shape
    said = [
        len(known) + new.index(word) if word in new else known.index(word) if word in known else 1
        for word in target
    ]
    assert batch["targets"][0].tolist() == [*said, ours.eos]
    read = [number if number < len(known) else ours.unk for number in said]
    assert batch["tokens"][0].tolist() == [ours.bos, *read]


@given(text=LINE)
def test_words_and_their_numbers_are_equally_many(text: str) -> None:
    tokeniser = train_tokeniser("word", TEXTS)
    assert len(split_words(text)) == len(tokeniser.encode(text))


@pytest.mark.parametrize("kind", sorted(set(TOKENISERS) - {"word"}))
def test_only_words_are_copied(kind: str) -> None:
    one = train_tokeniser(kind, TEXTS)
    with pytest.raises(UserError, match=f"copying needs word tokenisers, not {kind} and"):
        PairTokenisers(one, one, copies=True)


def test_numbers_take_four_bytes_each() -> None:
    pairs, _ = encode_pairs([("ab", "c")] * 1000, numbering("byte"))
    assert pairs.source[0].dtype == pairs.source.lengths.dtype == torch.int32
    assert pairs.source[0].untyped_storage().nbytes() == 1000 * 3 * 4
