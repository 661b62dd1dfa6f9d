"""regard heads: a ranking, and a run with fewer heads that works like any other."""

from pathlib import Path

import pytest

from tests.cli.command import Regard

RECIPE = """
task = "classify"
[about]
title = "t"
paper = "p"
minutes = 1
[data]
train = "train.tsv"
text = 1
label = 2
tokeniser = "wordpiece"
vocabulary = 40
[model]
kind = "bert_classifier"
encoder = { width = 8, heads = 2, layers = 2, context = 16 }
[train]
updates = 2
optimiser = { name = "adamw", lr = 1e-3 }
"""


@pytest.mark.usefixtures("as_users_run_it")
def test_heads_are_ranked_and_taken_out(regard: Regard, place: Path) -> None:
    (place / "train.tsv").write_text("a good dog\tyes\na bad cat\tno\n" * 10)
    (place / "mine.toml").write_text(RECIPE)
    assert regard("train", "mine.toml").returncode == 0
    done = regard("heads", "runs/mine", "--ablate", "--keep", "0.5", "-o", "runs/less")
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert sorted(row[:2] for row in rows) == [
        [f"encoder.{layer}.attention", str(head)] for layer in range(2) for head in range(2)
    ]
    assert [len(row) for row in rows] == [4] * 4
    assert "heads and" in done.stderr
    assert regard("predict", "runs/less", text="a good cat\n").returncode == 0
    done = regard("heads", "runs/mine", "--keep", "0.5")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
