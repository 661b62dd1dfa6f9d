"""Folders that were altered at random: each is used, or refused in one line, at once.

`make nightly` tries many more than every day.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard.runs.recipe import parse_recipe
from regard.runs.run import create
from tests.hub.folders import bert_folder
from tests.runs.test_sizes import RECIPE

LANGUAGE = """
task = "language_model"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "text.txt"
tokeniser = "bpe"
vocabulary = 300
batch = 2
window = 8
order = "random"
steps = 1
[model]
kind = "gpt"
width = 8
heads = 2
layers = 1
context = 16
[train]
updates = 1
optimiser = { name = "adamw", lr = 1e-3 }
"""
COUNT = int(os.environ.get("REGARD_ALTERATIONS", "300"))


@pytest.mark.timeout(120 + COUNT)
def test_altered_folders_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be that is the question\n" * 60)
    folders = [bert_folder(tmp_path / "bert", "BertForSequenceClassification")]
    for name, text in {"dates": RECIPE, "gpt": LANGUAGE}.items():
        run = create(parse_recipe(text, name), tmp_path / name, tmp_path, "cpu")
        run.train()
        folders.append(run.folder)
    place = tmp_path / "place"
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.runs.alterations", str(COUNT), "7", place, *folders],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print({name: each for name, each in found.items() if name != "wrong"})
    assert found["wrong"] == []
    assert sum(found["ends"].values()) == COUNT
    assert found["peak"] < 1_000_000_000 + found["base"]
