"""Texts longer than a model can read: truncated and counted, or refused if that is requested."""

import json
import logging
from pathlib import Path

import pytest

from regard.attention import sites_of
from regard.runs.run import load
from tests.cli.command import Regard

pytestmark = pytest.mark.usefixtures("as_users_run_it")

CLASSIFIER = """
task = "classify"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "films.csv"
text = ["text"]
label = "label"
[model]
kind = "text_transformer"
width = 8
heads = 2
layers = 1
context = 8
[train]
updates = 2
optimiser = { name = "adam", lr = 1e-3 }
"""

TRANSLATOR = """
task = "translate"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = ["a.txt", "b.txt"]
validation = ["a.txt", "b.txt"]
scores = []
search = { max_length = 4 }
[model]
kind = "transformer"
width = 8
heads = 2
encoder_layers = 1
decoder_layers = 1
position = "learned"
context = 6
shared = "none"
[train]
updates = 2
optimiser = { name = "adam", lr = 1e-3 }
"""


@pytest.fixture
def films(place: Path) -> Path:
    rows = ["neg,dull", "pos,fine"] * 20
    rows[6] = "neg," + "dull " * 20
    rows[9] = "pos," + "fine " * 12
    (place / "films.csv").write_text("label,text\n" + "\n".join(rows) + "\n")
    (place / "films.toml").write_text(CLASSIFIER)
    return place


def test_training_truncates_and_names_the_first(
    films: Path, regard: Regard, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        done = regard("train", "films.toml", "--set", "data.validation=films.csv")
    assert done.returncode == 0, done.stderr
    told = [each.getMessage() for each in caplog.records]
    assert told == [
        "films.csv:8: 20 tokens, of which the model reads 8; 2 of 40 texts are truncated"
    ]


def test_training_refuses_if_that_is_requested(films: Path, regard: Regard) -> None:
    done = regard("train", "films.toml", "--set", "data.strict=true")
    assert done.returncode == 2
    assert "films.csv:8: 20 tokens, of which the model reads 8; shorten the text" in done.stderr
    assert not (films / "runs").exists()


def test_predict_answers_all_lines_and_with_strict_all_others(films: Path, regard: Regard) -> None:
    assert regard("train", "films.toml").returncode == 0
    lines = "fine\n" + "dull " * 30 + "\ndull\n" + "fine " * 30 + "\n"
    done = regard("predict", "runs/films", text=lines)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 4
    first, second = done.stderr.splitlines()
    assert first == "regard: stdin:2: 30 tokens, of which the model reads 8; the rest is not read"
    assert second == "regard: 2 texts were longer than the model reads"
    done = regard("predict", "runs/films", "--strict", "--json", text=lines)
    assert done.returncode == 2
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["error" in row for row in rows] == [False, True, False, True]
    assert done.stderr.splitlines()[0].startswith("regard: stdin:2: 30 tokens, of which")


def test_one_input_that_cannot_be_answered_does_not_stop_the_others(
    films: Path, regard: Regard
) -> None:
    pairs = "label,one,other\n" + "0,fine,fine\n1,fine,dull\n" * 20
    (films / "pairs.csv").write_text(pairs)
    changes = ("data.train=pairs.csv", 'data.text=["one", "other"]')
    sets = [word for each in changes for word in ("--set", each)]
    assert regard("train", "films.toml", *sets).returncode == 0
    done = regard("predict", "runs/films", text="fine\tdull\nfine\nfine\tfine\n")
    assert done.returncode == 2
    assert [bool(line) for line in done.stdout.splitlines()] == [True, False, True]
    assert done.stderr.startswith("regard: stdin:2: ")
    assert done.stderr.count("\n") == 1


def test_a_translator_reads_as_much_of_a_source_as_it_can(place: Path, regard: Regard) -> None:
    (place / "a.txt").write_text("a b c\na b c d e f g h i j\n" * 8)
    (place / "b.txt").write_text("x y z\nx y z x y z x y z\n" * 8)
    (place / "pairs.toml").write_text(TRANSLATOR)
    done = regard("train", "pairs.toml")
    assert done.returncode == 0, done.stderr
    done = regard("translate", "runs/pairs", text="a b\n" + "a " * 40 + "\nb\n")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


def test_looking_finds_every_site_of_a_translator(place: Path, regard: Regard) -> None:
    (place / "a.txt").write_text("a b c\n" * 16)
    (place / "b.txt").write_text("x y z\n" * 16)
    (place / "pairs.toml").write_text(TRANSLATOR)
    assert regard("train", "pairs.toml", "--set", "model.decoder_layers=2").returncode == 0
    run = load("runs/pairs", "cpu")
    found = run.look("a b c")
    assert {each.site for each in found} == set(sites_of(run.model))
    assert {each.kind for each in found} == {"self", "cross"}
    assert [each.kind for each in found[:2]] == ["cross", "cross"]
    for each in found:
        assert each.weights.sum(-1) == pytest.approx(1.0, abs=1e-4)
    done = regard("look", "runs/pairs", "a b", "-o", "seen.html")
    assert done.stdout.count(",") + 1 == len(found)
    done = regard("look", "runs/pairs", "a b", "-o", "seen.png")
    assert done.stdout == "seen.png: decoder.0.cross, decoder.1.cross\n"


def test_a_string_is_one_input_and_a_list_many(films: Path, regard: Regard) -> None:
    assert regard("train", "films.toml").returncode == 0
    run = load("runs/films", "cpu")
    one, many = run.predict("dull fine"), run.predict(["dull fine", "fine"])
    assert one == many[0]
    assert len(many) == 2
    (films / "a.txt").write_text("a b c\n" * 16)
    (films / "b.txt").write_text("x y z\n" * 16)
    (films / "pairs.toml").write_text(TRANSLATOR)
    assert regard("train", "pairs.toml").returncode == 0
    translator = load("runs/pairs", "cpu")
    assert isinstance(translator.translate("a b"), str)
    assert translator.translate(("a b", "c")) == [translator.translate(t) for t in ("a b", "c")]
