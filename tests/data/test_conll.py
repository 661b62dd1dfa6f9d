"""Columns: schemes of tags turn into one another and back, and broken files are refused by line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.data.text.conll import (
    WRITERS,
    Chunk,
    TaggedSentence,
    check_tags,
    convert_tags,
    read_conll,
    to_chunks,
    to_tags,
)


@st.composite
def chunked(draw: st.DrawFn) -> tuple[list[Chunk], int]:
    """A sentence of chunks, some of which touch."""
    chunks: list[Chunk] = []
    place = 0
    for _ in range(draw(st.integers(0, 5))):
        place += draw(st.integers(0, 2))
        length = draw(st.integers(1, 3))
        chunks.append(Chunk(draw(st.sampled_from("XY")), place, place + length - 1))
        place += length
    return chunks, place + draw(st.integers(0, 2))


@given(chunked(), st.sampled_from(list(WRITERS)))
def test_chunks_written_in_a_scheme_are_read_back(
    given_chunks: tuple[list[Chunk], int], scheme: str
) -> None:
    chunks, words = given_chunks
    tags = to_tags(chunks, words, scheme)
    assert to_chunks(tags, scheme) == chunks
    sentence = TaggedSentence("file", 1, ("w",) * words, tuple(tags))
    assert check_tags(sentence, scheme) is sentence


@given(chunked(), st.sampled_from(list(WRITERS)), st.sampled_from(list(WRITERS)))
def test_there_and_back_again_is_the_same(
    given_chunks: tuple[list[Chunk], int], one: str, other: str
) -> None:
    tags = to_tags(*given_chunks, one)
    assert convert_tags(convert_tags(tags, one, other), other, one) == tags


def test_the_schemes_by_hand() -> None:
    iob1 = ["I-X", "I-X", "B-X", "O", "I-Y", "I-X"]
    assert convert_tags(iob1, "iob1", "iob2") == ["B-X", "I-X", "B-X", "O", "B-Y", "B-X"]
    assert convert_tags(iob1, "iob1", "bioes") == ["B-X", "E-X", "S-X", "O", "S-Y", "S-X"]


def test_sentences_documents_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("-DOCSTART-\n\nJohn NNP B-PER\nruns VBZ O\n\n\nParis NNP B-LOC\n")
    first, second = read_conll(str(path))
    assert (first.words, first.tags) == (("John", "runs"), ("B-PER", "O"))
    assert [first.where(1), second.where(0)] == [f"{path}:4", f"{path}:7"]
    assert next(read_conll(str(path), word=2, tag=1)).words == ("NNP", "VBZ")


RAGGED = {
    "a line with a column less": ("a b O\nc O\n", r":2: 2 columns where line 1 has 3"),
    "a line with a column more": ("a O\n\nb c O\n", r":3: 3 columns where line 1 has 2"),
    "a column that is not there": ("a\nb\n", r":1: there is no column 2; this line has 1"),
}


@pytest.mark.parametrize("case", RAGGED)
def test_ragged_lines_are_refused(case: str, tmp_path: Path, as_users_run_it: None) -> None:
    text, message = RAGGED[case]
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(UserError, match=rf"a\.txt{message}"):
        list(read_conll(str(tmp_path / "a.txt"), tag=2))


def test_column_zero_is_refused(tmp_path: Path, as_users_run_it: None) -> None:
    (tmp_path / "a.txt").write_text("a O\n")
    with pytest.raises(UserError, match="there is no column 0; columns count from 1"):
        list(read_conll(str(tmp_path / "a.txt"), word=0))


BROKEN = {
    "an I without its B": (["O", "I-X"], "iob2", r"f:8: 'I-X' after 'O' has no B-X before it"),
    "an I of another kind": (["B-Y", "I-X"], "iob2", r"f:8: .*no B-X before it.*iob1"),
    "a chunk that is not closed": (["B-X", "O"], "bioes", r"f:8: .*has no E-X"),
    "a chunk that is open at the end": (["O", "B-X"], "bioes", r"f:8: .*has no E-X"),
    "an end without a beginning": (["E-X"], "bioes", r"f:7: .*no B-X"),
    "a tag of another scheme": (["S-X"], "iob2", r"f:7: 'S-X' is not a tag of iob2: I-X"),
    "a part of speech": (["NN"], "iob2", r"f:7: 'NN' is not a tag of iob2"),
    "a tag without a kind": (["B-"], "iob2", r"f:7: 'B-' is not a tag"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_tags_that_break_their_scheme_are_said_with_their_line(
    case: str, as_users_run_it: None
) -> None:
    tags, scheme, message = BROKEN[case]
    with pytest.raises(UserError, match=message):
        check_tags(TaggedSentence("f", 7, ("w",) * len(tags), tuple(tags)), scheme)


@given(chunked())
def test_a_file_of_iob2_reads_the_same_as_iob1(given_chunks: tuple[list[Chunk], int]) -> None:
    chunks, words = given_chunks
    tags = tuple(to_tags(chunks, words, "iob2"))
    assert (
        to_chunks(check_tags(TaggedSentence("f", 1, ("w",) * words, tags), "iob1").tags, "iob1")
        == chunks
    )


def test_an_unknown_scheme_is_named(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="unknown scheme of tags 'iob'"):
        to_chunks(["O"], "iob")
