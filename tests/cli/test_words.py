"""Word vectors from the command line: neighbours, analogies, and files for other programs."""

import json
from pathlib import Path

import pytest
import torch

from regard.data.text.vectors import Vectors, read_vectors, write_vectors
from tests.cli.command import Regard

pytestmark = pytest.mark.usefixtures("as_users_run_it")

RECIPE = """
task = "word_vectors"
[about]
title = "Words"
paper = "nobody"
minutes = 0.1
[data]
train = "text.txt"
min_frequency = 1
buckets = 50
[model]
kind = "subword_skip_gram"
width = 4
[train]
epochs = 1
optimiser = { name = "adagrad", lr = 0.1 }
"""


@pytest.fixture
def file(place: Path) -> str:
    table = torch.tensor([[1.0, 1, 0], [1, -1, 0], [0, 1, 0.1], [0, -1, 0.1], [0, 0, 1]])
    write_vectors(place / "v.txt", Vectors(("king", "queen", "man", "woman", "pear"), table))
    return "v.txt"


def test_neighbours_and_analogies_of_a_file(regard: Regard, file: str) -> None:
    done = regard("neighbours", file, "king", "man", "--count", "1")
    assert done.stdout.splitlines() == ["king: man 0.704", "man: king 0.704"]
    done = regard("analogy", file, "man", "king", "woman", "-n", "1")
    assert done.stdout.startswith("man : king = woman : ?: queen ")
    found = json.loads(regard("analogy", file, "man", "king", "woman", "--json").stdout)
    assert (found["c"], found["nearest"][0]["word"]) == ("woman", "queen")


def test_a_run_of_ngrams_knows_any_word_and_its_vectors_become_a_file(
    regard: Regard, place: Path
) -> None:
    (place / "words.toml").write_text(RECIPE)
    assert regard("train", "words.toml").returncode == 0
    done = regard("neighbours", "runs/words", "question", "questions", "-n", "2")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["question", "questions"]
    done = regard("vectors", "runs/words", "out.bin")
    assert done.stdout == "8 vectors of 4 numbers in out.bin\n"
    assert "question" in read_vectors(place / "out.bin").places


def test_what_is_wrong_is_one_line(regard: Regard, place: Path, file: str) -> None:
    done = regard("neighbours", file, "kong")
    assert done.returncode == 2
    assert done.stderr == (
        "regard: 'kong' is not among the 5 words that have a vector: did you mean 'king'?\n"
    )
    assert "no such file" in regard("neighbours", "nowhere.txt", "a").stderr
    assert regard("train", "small.toml").returncode == 0
    done = regard("neighbours", "runs/small", "a")
    assert "task language_model does not support word vectors" in done.stderr
