"""Files of word vectors: written and read back, other programs' forms, and files that lie."""

import gzip
import os
import struct
import tracemalloc
from pathlib import Path

import pytest
import torch

from regard.core.errors import UserError
from regard.data.text.vectors import Vectors, read_vectors, write_vectors

WORDS = ("the", "Öl", "x1", "ice-cream", "犬")

GLOVE = Path(os.environ.get("REGARD_DATA", "nowhere")) / "glove-6b-50d" / "glove.6B.50d.30k.txt.gz"

NAMES = ["v.txt", "v.vec", "v.bin"]


def some(count: int = len(WORDS), width: int = 4) -> Vectors:
    return Vectors(WORDS[:count], torch.randn(count, width))


@pytest.mark.parametrize("name", [*NAMES, *(f"{name}.gz" for name in NAMES)])
def test_what_is_written_is_read_to_the_same_bits(name: str, tmp_path: Path) -> None:
    vectors = some()
    write_vectors(tmp_path / name, vectors)
    again = read_vectors(tmp_path / name)
    assert again.words == vectors.words
    assert torch.equal(again.table, vectors.table)


@pytest.mark.parametrize("name", NAMES)
def test_gzip_is_unpacked_and_only_the_vocabulary_is_kept(name: str, tmp_path: Path) -> None:
    vectors = some()
    write_vectors(tmp_path / name, vectors)
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    kept = read_vectors(packed, {"犬", "Öl", "nowhere"})
    assert kept.words == ("Öl", "犬")
    assert torch.equal(kept.table, vectors.table[[1, 4]])


def test_glove_has_no_first_line_and_words_may_hold_blanks(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("a 1 2\n. . 3 4\na 5 6\nat me@x.org 7 8\n")
    read = read_vectors(path)
    assert read.words == ("a", ". .", "at me@x.org")
    assert read.table.tolist() == [[1, 2], [3, 4], [7, 8]], "the first of two counts"


def test_the_blank_that_word2vec_leaves_at_the_end_of_lines_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "v.vec"
    path.write_bytes(b"2 2\r\na 1 2 \r\nb 3 4 \r\n")
    assert read_vectors(path).table.tolist() == [[1, 2], [3, 4]]


def test_binary_without_line_ends_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "v.bin"
    path.write_bytes(b"2 1\na " + struct.pack("<f", 1.5) + b"b " + struct.pack("<f", 2.0))
    read = read_vectors(path)
    assert (read.words, read.table.tolist()) == (("a", "b"), [[1.5], [2.0]])


FLOATS = struct.pack("<2f", 1.0, 2.0)

BAD: dict[str, tuple[str, bytes, str]] = {
    "a line that is too narrow": ("v.txt", b"a 1 2\nb 3\n", r"v\.txt:2: 1 numbers where .* has 2"),
    "a line that is too wide": ("v.txt", b"a 1 2\nb 3 4 5\n", r"v\.txt:2: 3 numbers where .* 2"),
    "a width that lies": ("v.txt", b"1 3\na 1 2\n", r"v\.txt:2: 2 numbers .* has 3"),
    "a count that lies": ("v.txt", b"3 2\na 1 2\n", r"v\.txt:1: .* has 3 vectors.* there are 1"),
    "a word for a number": ("v.txt", b"a 1 2\nb 3 x\n", r"v\.txt:2: 'x' is not a number"),
    "no word": ("v.txt", b"a 1 2\n 3 4\n", r"v\.txt:2: there are numbers without a word"),
    "a blank line": ("v.txt", b"a 1 2\n\nb 3 4\n", r"v\.txt:2: 0 numbers"),
    "an empty file": ("v.txt", b"", r"v\.txt: is empty"),
    "numbers that are not finite": ("v.txt", b"a 1 nan\n", "vector of 'a' .* not finite"),
    "a word that is not UTF-8": ("v.txt", b"\xff 1 2\n", r"not UTF-8"),
    "damaged gzip": ("v.txt.gz", gzip.compress(b"a 1 2\n" * 9)[:-12], r"gz:\d+: damaged gzip"),
    "binary under a text's name": ("v.txt", b"\0\1 2\n", r"v\.txt:1: this is not text"),
    "a model of fastText": ("v.bin", b"\xba\x16\x4f\x2f\n", r"use the \.vec file"),
    "text under a binary's name": (
        "v.bin",
        b"a 1 2\n",
        r"v\.bin:1: .* begins with the number of vectors",
    ),
    "binary cut off": ("v.bin", b"2 2\na " + FLOATS + b"\nb 12", r"vector 2 of 2: the file ends"),
    "a binary count too small": ("v.bin", b"1 2\na " + FLOATS + b"\nb " + FLOATS, "there is more"),
    "a binary width too large": ("v.bin", b"1 9\na " + FLOATS, "is wrong"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_its_place(
    case: str, tmp_path: Path, as_users_run_it: None
) -> None:
    name, content, message = BAD[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / name)


def test_a_width_that_changes_is_seen_also_in_words_that_are_not_kept(
    tmp_path: Path, as_users_run_it: None
) -> None:
    (tmp_path / "v.txt").write_text("a 1 2\nb 3\nc 4 5\n")
    with pytest.raises(UserError, match=r"v\.txt:2"):
        read_vectors(tmp_path / "v.txt", {"a"})


def test_words_that_no_file_can_hold_and_vocabularies_without_a_vector_are_refused(
    tmp_path: Path, as_users_run_it: None
) -> None:
    with pytest.raises(UserError, match="'a b' cannot be written to a file of vectors"):
        write_vectors(tmp_path / "v.txt", Vectors(("a b",), torch.zeros(1, 2)))
    write_vectors(tmp_path / "v.txt", some())
    with pytest.raises(UserError, match="none of the requested words"):
        read_vectors(tmp_path / "v.txt", {"zzz"})


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_that_of_what_is_kept(name: str, tmp_path: Path) -> None:
    many = Vectors(tuple(f"word{n}" for n in range(4_000)), torch.randn(4_000, 300))
    write_vectors(tmp_path / name, many)
    size = (tmp_path / name).stat().st_size
    tracemalloc.start()
    read = read_vectors(tmp_path / name, {"word7", "word3999"})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert torch.equal(read.table, many.table[[7, 3999]])
    assert peak < 3_500_000 < size, "two pieces of the file, not the file"


def test_neighbours_point_the_same_way_and_analogies_are_sums() -> None:
    words = ("king", "queen", "man", "woman", "apple")
    table = torch.tensor([[1.0, 1, 0], [1, -1, 0], [0, 1, 0.1], [0, -1, 0.1], [0, 0, 1]])
    vectors = Vectors(words, table)
    assert vectors.analogy("man", "king", "woman", 1)[0][0] == "queen"
    found = vectors.neighbours("king", 9)
    assert found[0][0] == "man"
    assert len(found) == 4, "all but the word itself"
    want = torch.cosine_similarity(table[0], table[2], dim=0).item()
    assert abs(found[0][1] - want) < 1e-6


@pytest.mark.skipif(not GLOVE.exists(), reason="GloVe's vectors are not in REGARD_DATA")
def test_gloves_own_file_is_read_and_knows_queens_and_frogs() -> None:
    some = {"king", "man", "woman", "queen", "frog", "toad", "berlin", "germany", "paris", "france"}
    vectors = read_vectors(GLOVE, some)
    assert set(vectors.words) == some
    assert vectors.table.shape == (10, 50)
    assert vectors.analogy("man", "king", "woman", 1)[0][0] == "queen"
    assert vectors.analogy("germany", "berlin", "france", 1)[0][0] == "paris"
    assert vectors.neighbours("frog", 1)[0][0] == "toad"


def test_a_word_without_a_vector_is_named_with_a_like_one(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match=r"'icecream' is not among the 5 .* mean 'ice-cream'\?"):
        some().neighbours("icecream")
