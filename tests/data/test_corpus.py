"""The cache of tokenised texts: what is in it, when it is used, and what spoils it."""

import errno
import gzip
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core import atomic
from regard.core.errors import UserError
from regard.data import cache
from regard.data.text import corpus
from regard.data.text.corpus import Corpus, TextPart, prepare_corpus, split_held_out
from regard.data.text.source import TextSource, source_at
from regard.data.text.tokeniser import TOKENISERS, Tokeniser, train_tokeniser

LINES = ["the cat sat", "", "on the mat and the 語 🙂 cat", "  sat  "]
TEXT = "".join(f"{line}\n" for line in LINES)
BYTES = train_tokeniser("byte", [])
WORDS = train_tokeniser("word", LINES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(TEXT)
    return tmp_path / "a.txt"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each call of the tokeniser was given."""
    seen: list[int] = []
    whole = Tokeniser.encode_all

    def counted(self: Tokeniser, texts: list[str], end: int | None = None) -> torch.Tensor:
        seen.append(len(texts))
        return whole(self, texts, end)

    monkeypatch.setattr(Tokeniser, "encode_all", counted)
    return seen


def of(
    path: Path, tokeniser: Tokeniser, folder: Path, part: TextPart = corpus.WHOLE_TEXT
) -> Corpus:
    return prepare_corpus([source_at(str(path))], tokeniser, part=part, folder=folder)


@pytest.mark.parametrize("kind", TOKENISERS)
@pytest.mark.parametrize("block", [1, 7, corpus.TOKENISE_BLOCK])
def test_a_corpus_is_its_text_line_by_line(
    kind: str, block: int, path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "TOKENISE_BLOCK", block)
    tokeniser = train_tokeniser(kind, LINES)
    made = of(path, tokeniser, folder)
    expected = [number for line in LINES for number in tokeniser.encode(f"{line}\n")]
    assert made.ids.tolist() == expected
    assert made.characters == len(TEXT)


def test_the_numbers_are_as_small_as_the_vocabulary_allows(path: Path, folder: Path) -> None:
    assert of(path, BYTES, folder).ids.dtype == torch.uint16
    many = train_tokeniser("word", [str(number) for number in range((1 << 16) - 4)])
    assert of(path, many, folder).ids.dtype == torch.uint16
    more = train_tokeniser("word", [str(number) for number in range((1 << 16) - 3)])
    path.write_text("65532\n")
    assert of(path, more, folder).ids.dtype == torch.uint32
    assert more.decode(of(path, more, folder).ids.long()) == "65532\n"


def test_a_second_start_tokenises_nothing(path: Path, folder: Path, calls: list[int]) -> None:
    first = of(path, WORDS, folder)
    assert sum(calls) == len(LINES)
    calls.clear()
    second = of(path, WORDS, folder)
    assert not calls
    assert second.path == first.path
    assert torch.equal(second.ids, first.ids)
    assert second.characters == first.characters


def test_a_second_start_does_not_even_read_the_text(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "SETTLED_NS", -1)
    first = of(path, WORDS, folder)
    before = path.stat().st_mtime_ns
    stamped = cache.file_stamp(path)
    # The content is changed behind the back of the stamp: only a reader would notice.
    path.write_text(TEXT.replace("cat", "dog"))
    os.utime(path, ns=(before, before))
    monkeypatch.setattr(cache, "file_stamp", lambda path: stamped)
    assert of(path, WORDS, folder).path == first.path


def test_a_file_that_has_just_changed_is_read_again(path: Path, folder: Path) -> None:
    first = of(path, WORDS, folder)
    before = path.stat().st_mtime_ns
    path.write_text(TEXT.replace("cat", "mat"))
    os.utime(path, ns=(before, before))
    second = of(path, WORDS, folder)
    assert second.path != first.path
    assert WORDS.decode(second.ids.long()).startswith("the mat sat")


def test_the_time_stamp_of_a_file_that_has_just_changed_is_not_believed(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could change again within the same tick of the file system's clock."""
    monkeypatch.setattr(cache, "SETTLED_NS", 10**15)
    of(path, WORDS, folder)
    assert not (folder / "sources").exists()
    monkeypatch.setattr(cache, "SETTLED_NS", -1)
    of(path, WORDS, folder)
    assert len(list((folder / "sources").iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"stamp": 1, "sha256": 2}'])
def test_a_spoilt_note_of_a_file_is_no_note(
    content: bytes, path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "SETTLED_NS", -1)
    first = of(path, WORDS, folder)
    (note,) = (folder / "sources").iterdir()
    note.write_bytes(content)
    assert of(path, WORDS, folder).path == first.path
    assert note.read_bytes() != content


def test_the_content_counts_and_not_the_name(path: Path, folder: Path, calls: list[int]) -> None:
    first = of(path, WORDS, folder)
    calls.clear()
    moved = path.rename(path.with_name("b.txt"))
    assert of(moved, WORDS, folder).path == first.path
    os.utime(moved)
    assert of(moved, WORDS, folder).path == first.path
    assert not calls


def test_whatever_the_numbers_depend_on_is_in_the_key(path: Path, folder: Path) -> None:
    rows = path.with_name("a.tsv")
    rows.write_text("a\tb\nc\td\n")
    sources = [
        [source_at(str(path))],
        [source_at(str(path))] * 2,
        [TextSource(path=str(rows))],
        [source_at(str(rows), 1)],
        [source_at(str(rows), 2)],
        [source_at(str(rows), "a")],
    ]
    made = [prepare_corpus(each, BYTES, folder=folder) for each in sources]
    made += [of(path, WORDS, folder), of(path, BYTES, folder, TextPart(last=0.5))]
    assert len({each.path for each in made}) == len(made)
    assert len({tuple(each.ids.tolist()) for each in made}) == len(made)


def test_records_end_in_eos_and_lines_in_line_ends(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a\\nb"}\n{"text": ""}\n{"text": "c"}\n')
    source = source_at(str(tmp_path / "a.jsonl"), "text")
    made = prepare_corpus([source], BYTES, folder=folder)
    assert made.ids.tolist() == [
        *[*BYTES.encode("a\nb"), BYTES.eos],
        BYTES.eos,
        *[*BYTES.encode("c"), BYTES.eos],
    ]
    assert made.characters == len("a\nb") + len("c") + 3
    words = train_tokeniser("word", ["a b c"])
    assert words.decode(prepare_corpus([source], words, folder=folder).ids.long()) == "a\nb\n\nc\n"


def test_several_sources_do_not_run_together(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"two\n"))
    (tmp_path / "c.tsv").write_text("x\tthree\n")
    sources = [
        source_at(str(tmp_path / "a.txt")),
        source_at(str(tmp_path / "b.txt.gz")),
        source_at(str(tmp_path / "c.tsv"), 2),
    ]
    made = prepare_corpus(sources, BYTES, folder=folder)
    assert made.ids.tolist() == [*BYTES.encode("one\ntwo\nthree"), BYTES.eos]


@settings(max_examples=40, deadline=None)
@given(
    lines=st.lists(st.text("ab 語", max_size=5), min_size=1, max_size=8),
    share=st.floats(0.0, 0.99),
    form=st.sampled_from(["plain", "jsonl"]),
)
def test_the_parts_of_a_split_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], share: float, form: str
) -> None:
    tmp_path = tmp_path_factory.mktemp("split")
    path = tmp_path / "a"
    written = [json.dumps({"text": line}) if form == "jsonl" else line for line in lines]
    path.write_text("".join(f"{line}\n" for line in written))
    source = TextSource(path=str(path), form=form, field="text" if form == "jsonl" else None)
    whole = prepare_corpus([source], BYTES, folder=tmp_path)
    joined: list[int] = []
    border = int(whole.characters * (1.0 - share))
    expected = [border, whole.characters - border]
    for part, characters in zip(split_or_whole(share), expected, strict=False):
        if characters:
            made = prepare_corpus([source], BYTES, part=part, folder=tmp_path)
            assert made.characters == characters
            joined += made.ids.tolist()
        else:
            with pytest.raises(UserError, match="this part of the text is empty"):
                prepare_corpus([source], BYTES, part=part, folder=tmp_path)
    assert joined == whole.ids.tolist()


def split_or_whole(share: float) -> tuple[TextPart, ...]:
    return split_held_out(share) if 1.0 - share < 1.0 else (corpus.WHOLE_TEXT,)


def test_stdin_is_kept_by_its_content(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = of(path, WORDS, folder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    told: list[tuple[int, int]] = []
    piped = prepare_corpus(
        [TextSource(path="-")], WORDS, folder=folder, progress=lambda *each: told.append(each)
    )
    assert piped.path == kept.path
    assert torch.equal(piped.ids, kept.ids)
    assert told[-1] == (len(TEXT.encode()), 0)
    assert sorted(each.suffix for each in kept.path.parent.iterdir()) == [".ids", ".json"]


@pytest.mark.parametrize(
    ("sources", "part", "message"),
    [
        ([], corpus.WHOLE_TEXT, "there is no text"),
        ([TextSource(path="-")], TextPart(last=0.5), "stdin cannot be split"),
        ([TextSource(path="-")] * 2, corpus.WHOLE_TEXT, "stdin is a source twice"),
        ([TextSource(path="/dev/null")], corpus.WHOLE_TEXT, "is not a regular file"),
    ],
)
def test_what_cannot_be_prepared_is_refused(
    sources: list[TextSource], part: TextPart, message: str, folder: Path
) -> None:
    with pytest.raises(UserError, match=message):
        prepare_corpus(sources, WORDS, part=part, folder=folder)


@pytest.mark.parametrize(("first", "last"), [(0.5, 0.5), (0.6, 0.5), (-0.1, 1.0), (0.0, 1.1)])
def test_a_part_must_go_forward(first: float, last: float) -> None:
    with pytest.raises(UserError, match="must be an interval"):
        TextPart(first=first, last=last)


@pytest.mark.parametrize("content", [b"ok\n\xff\n", b"ok\na\0\n"])
def test_a_broken_text_leaves_nothing_behind(content: bytes, path: Path, folder: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.txt:2: "):
        of(path, WORDS, folder)
    assert not list((folder / "corpora").iterdir())


def test_progress_counts_the_bytes_of_the_files(path: Path, folder: Path) -> None:
    packed = path.with_name("b.txt.gz")
    packed.write_bytes(gzip.compress(TEXT.encode() * 50))
    total = path.stat().st_size + packed.stat().st_size
    told: list[tuple[int, int]] = []
    prepare_corpus(
        [source_at(str(path)), source_at(str(packed))],
        WORDS,
        folder=folder,
        progress=lambda done, of: told.append((done, of)),
    )
    assert told == sorted(told)
    assert {each for _, each in told} == {total}
    assert told[-1] == (total, total)


def flip(path: Path) -> None:
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)


SPOILS: dict[str, Callable[[Path], object]] = {
    "numbers cut short": lambda path: os.truncate(path, path.stat().st_size - 2),
    "numbers emptied": lambda path: os.truncate(path, 0),
    "numbers added": lambda path: path.write_bytes(path.read_bytes() + b"\0\0"),
    "a bit of the numbers flipped": flip,
    "numbers gone": lambda path: path.unlink(),
    "manifest gone": lambda path: path.with_suffix(".json").unlink(),
    "manifest cut short": lambda path: os.truncate(path.with_suffix(".json"), 40),
    "a bit of the manifest flipped": lambda path: flip(path.with_suffix(".json")),
    "another manifest": lambda path: path.with_suffix(".json").write_text(
        '{"manifest": {}, "sha256": 0}'
    ),
    "a manifest of no object": lambda path: path.with_suffix(".json").write_text("[]"),
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_spoilt_cache_is_told_of_and_made_again(
    spoil: str, path: Path, folder: Path, caplog: pytest.LogCaptureFixture, calls: list[int]
) -> None:
    expected = of(path, WORDS, folder).ids.tolist()
    SPOILS[spoil](of(path, WORDS, folder).path)
    calls.clear()
    with caplog.at_level(logging.WARNING):
        mended = of(path, WORDS, folder)
    assert "the text is tokenised again" in caplog.text
    assert str(mended.path) in caplog.text
    assert mended.ids.tolist() == expected
    assert sum(calls) == len(LINES)
    calls.clear()
    caplog.clear()
    assert of(path, WORDS, folder).ids.tolist() == expected
    assert not calls
    assert not caplog.records


@pytest.mark.parametrize("field", ["tokens", "characters", "dtype", "version"])
def test_a_manifest_whose_content_was_altered_is_not_believed(
    field: str, path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = of(path, WORDS, folder)
    beside = made.path.with_suffix(".json")
    held = json.loads(beside.read_text())
    held["manifest"][field] = "uint32" if field == "dtype" else 1 + held["manifest"][field]
    beside.write_text(json.dumps(held))
    assert of(path, WORDS, folder).characters == len(TEXT)
    assert "its manifest is missing or damaged" in caplog.text


def test_a_manifest_of_another_version_is_made_again(
    path: Path, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = of(path, WORDS, folder)
    held = json.loads(made.path.with_suffix(".json").read_text())["manifest"]
    other = corpus.CorpusManifest(**(held | {"byteorder": "middle"}))
    made.path.with_suffix(".json").write_bytes(other.to_json())
    assert torch.equal(of(path, WORDS, folder).ids, made.ids)
    assert "another kind of machine" in caplog.text


def test_a_corpus_in_use_survives_being_made_again(path: Path, folder: Path) -> None:
    used = of(path, WORDS, folder)
    expected = used.ids.tolist()
    used.path.with_suffix(".json").unlink()
    of(path, WORDS, folder)
    assert used.ids.tolist() == expected


def test_a_text_that_changes_while_it_is_read_is_refused(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(path: Path, folder: Path) -> str:
        digest = cache.content_digest(path, folder)
        path.write_text(TEXT + "more\n")
        return digest

    monkeypatch.setattr(corpus, "content_digest", changed)
    with pytest.raises(UserError, match=r"a\.txt: changed while it was being read"):
        of(path, WORDS, folder)
    assert not list((folder / "corpora").iterdir())


def test_a_full_disk_is_told_plainly_and_leaves_nothing(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot be written: No space left on device"):
        of(path, WORDS, folder)
    assert not list((folder / "corpora").iterdir())


def test_a_cache_folder_that_is_a_file_is_told_plainly(path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written: "):
        of(path, WORDS, path)


def test_what_a_killed_process_left_is_swept_away(path: Path, folder: Path) -> None:
    (folder / "corpora").mkdir(parents=True)
    old, new = folder / "corpora" / "x.ids.1-1.part", folder / "corpora" / "y.ids.2-2.part"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    of(path, WORDS, folder)
    assert not old.exists()
    assert new.exists()


def test_the_cache_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert cache.cache_folder() == tmp_path
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "regard"


GROWTH = """
import resource, sys
from pathlib import Path
from regard.data import prepare_corpus, source_at, train_tokeniser

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

folder = Path(sys.argv[1])
small, large = source_at(str(folder / "small.txt")), source_at(str(folder / "large.txt"))
tokeniser = train_tokeniser(sys.argv[2], ["some words to begin with"])
prepare_corpus([small], tokeniser, folder=folder / "cache")
before = peak()
corpus = prepare_corpus([large], tokeniser, folder=folder / "cache")
print(peak() - before, len(corpus.ids))
"""


@pytest.mark.parametrize(("kind", "megabytes"), [("byte", 40), ("word", 20)])
def test_memory_does_not_grow_with_the_text(kind: str, megabytes: int, tmp_path: Path) -> None:
    line = "some words to begin with and others that nobody has ever seen\n"
    (tmp_path / "small.txt").write_text(line * (1_000_000 // len(line)))
    (tmp_path / "large.txt").write_text(line * (megabytes * 1_000_000 // len(line)))
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(tmp_path), kind],
        capture_output=True,
        text=True,
        check=True,
    )
    growth, tokens = map(int, done.stdout.split())
    assert tokens > megabytes * 150_000
    assert growth < megabytes * 1_000_000 / 2
