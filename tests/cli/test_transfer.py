"""Recipes in a row: each begins with the run of the one before, and says what it took of it."""

from pathlib import Path

import pytest

from tests.cli.command import Regard

pytestmark = pytest.mark.usefixtures("as_users_run_it")

ABOUT = """
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
"""
TRAIN = """
[train]
updates = 2
optimiser = { name = "adam", lr = 0.01 }
"""
TEXT = """
task = "language_model"
[data]
train = "text.txt"
batch = 2
window = 8
evaluate_batch = 2
[model]
kind = "awd_lstm"
width = 6
hidden = 8
layers = 2
drop_weights = 0.2
"""
LABELS = """
task = "classify"
[data]
train = "labels.txt"
validation = 0.25
characters = true
[model]
"""
TAGS = """
task = "tag"
[data]
train = "tags.txt"
validation = "tags.txt"
characters = true
[model]
kind = "bilstm_crf"
width = 5
hidden = 4
characters = "none"
source = "runs/both"
"""
PAIRS = """
task = "translate"
[data]
train = "pairs.tsv"
validation = "pairs.tsv"
fields = [1, 2]
batch = 4
[model]
kind = "bahdanau"
width = 5
hidden = 4
"""
BOTH = """
task = "bidirectional_lm"
[data]
train = "text.txt"
batch = 2
window = 6
evaluate_batch = 2
[model]
kind = "elmo"
width = 4
hidden = 6
character_width = 3
filters = [[1, 4], [2, 4]]
"""


@pytest.fixture(autouse=True)
def files(place: Path) -> None:
    """Labelled sentences, tagged words, pairs, and a recipe for each step."""
    sentences = ["to be or not", "that is it", "the question is", "not that"] * 4
    labelled = [f"{number % 2} {each}" for number, each in enumerate(sentences)]
    (place / "labels.txt").write_text("\n".join(labelled))
    tagged = [
        "\n".join(f"{word} {'B-PER' if word == 'be' else 'O'}" for word in each.split())
        for each in sentences
    ]
    (place / "tags.txt").write_text("\n\n".join(tagged) + "\n")
    (place / "pairs.tsv").write_text("\n".join(f"{each}\t{each.upper()}" for each in sentences))
    recipes = {
        "lm": TEXT,
        "tuned": f'{TEXT}source = "runs/lm"\n',
        "ulmfit": f'{LABELS}kind = "ulmfit"\nsource = "runs/tuned"\nhidden = 5\n',
        "scratch": f'{LABELS}kind = "ulmfit"\nsource = "runs/tuned"\nhidden = 5\nfresh = true\n',
        "pairs": PAIRS,
        "cove": f'{LABELS}kind = "attention_pool"\nsource = "runs/pairs"\nwidth = 5\nhidden = 4\n',
        "both": BOTH,
        "elmo": TAGS,
        "han": f'{LABELS}kind = "han"\nsource = "runs/both"\nwidth = 5\nhidden = 4\n',
        "looking": f'{LABELS}kind = "text_transformer"\nsource = "runs/both"\nwidth = 4\n',
        "taglm": f'{TAGS}source_at = "between"\nmix = "top"\n',
    }
    for name, text in recipes.items():
        stages = "stages = { unfreeze = 1 }\n" if name == "ulmfit" else ""
        (place / f"{name}.toml").write_text(text + ABOUT + TRAIN + stages)


def trained(regard: Regard, *names: str) -> list[str]:
    """What each of some recipes said of how its model began."""
    said = []
    for name in names:
        done = regard("train", f"{name}.toml")
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines()[0])
    return said


def test_pre_train_fine_tune_and_classify_are_three_recipes_in_a_row(regard: Regard) -> None:
    _, tuned, classified, scratch = trained(regard, "lm", "tuned", "ulmfit", "scratch")
    cells = "cells.0 (3 tensors), cells.1 (3 tensors)"
    assert tuned == f"from runs/lm: bias (1 tensor), {cells}, embed (1 tensor)"
    assert classified.startswith("from runs/tuned: ")
    assert all(part in classified for part in ("embed (1 tensor)", "cells.1 (3 tensors)"))
    assert "new here: top.0 (5 tensors), top.2" in classified
    assert scratch.startswith("from runs/tuned: nothing; left out: bias (1 tensor), cells.0")
    done = regard("eval", "runs/ulmfit")
    assert done.returncode == 0, done.stderr


def test_the_encoder_of_a_translator_is_kept_and_its_decoder_left_out(
    regard: Regard, place: Path
) -> None:
    _, cove = trained(regard, "pairs", "cove")
    taken, _, left = cove.partition("; left out: ")
    assert taken == "from runs/pairs: reader.embed (1 tensor), reader.encoder.cells (8 tensors)"
    assert "decoder" in left
    assert "new here: words.table (1 tensor)" in left
    (place / "runs" / "pairs").rename(place / "elsewhere")
    assert regard("eval", "runs/cove").returncode == 0, "a run folder is whole by itself"


def test_a_tagger_takes_a_language_model_that_reads_characters_both_ways(regard: Regard) -> None:
    _, elmo, taglm = trained(regard, "both", "elmo", "taglm")
    assert elmo.startswith("from runs/both: ")
    assert "words.source.mix" in elmo.partition("new here: ")[2]
    assert "mix" not in taglm
    assert "ahead.0.read (2 tensors)" in taglm


def test_classifiers_of_documents_and_of_self_attention_take_it_too(regard: Regard) -> None:
    _, *told = trained(regard, "both", "han", "looking")
    for said in told:
        assert said.startswith("from runs/both: ")
        assert "words.source.mix" in said.partition("new here: ")[2]
    assert "together (2 tensors)" in told[1]
