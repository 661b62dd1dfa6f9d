"""The command line as people and scripts use it: in a process of its own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.recipes.test_recipes import SMALL


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("to be or not to be that is the question\n" * 60)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def regard(place: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "REGARD_CACHE": str(place / "cache"), "COLUMNS": "100"}
    environment.pop("REGARD_DATA", None)
    return subprocess.run(
        [sys.executable, "-m", "regard", *words],
        cwd=place,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_names_every_verb_and_needs_no_torch(place: Path) -> None:
    shown = regard(place, "--help")
    assert shown.returncode == 0
    for verb in ("train", "resume", "eval", "reproduce", "zoo", "doctor"):
        assert verb in shown.stdout
    script = "import sys, regard.cli; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_train_evaluate_and_reproduce(place: Path) -> None:
    trained = regard(place, "train", "small.toml", "--device", "cpu")
    assert trained.returncode == 0, trained.stderr
    assert "finished after 4 updates" in trained.stdout
    assert "update 4" in trained.stderr, "plain lines when not on a terminal"
    measured = regard(place, "eval", "runs/small")
    figures = json.loads(measured.stdout)
    written = json.loads((place / "runs/small/metrics.json").read_text())
    assert figures["split"] == "validation"
    assert figures["loss"] == pytest.approx(written["validation"]["loss"])
    again = regard(place, "train", "small.toml")
    assert again.returncode == 2
    assert "there is a run already" in again.stderr


def test_a_figure_that_is_missed_is_exit_code_one(place: Path) -> None:
    figure = (
        '[figure]\nmetric = "loss"\nsplit = "validation"\nvalue = 1\nreach = {}\nsource = "x"\n'
    )
    for reach, code, word in ((99.0, 0, "reached"), (0.001, 1, "MISSED")):
        name = f"small-{code}.toml"
        (place / name).write_text(SMALL + figure.format(reach))
        done = regard(place, "reproduce", name)
        assert (done.returncode, word in done.stdout) == (code, True), done.stderr


def test_an_interrupted_training_says_how_to_go_on_and_does(place: Path) -> None:
    words = ["train", "small.toml", "--set", "train.updates=100000", "--name", "long"]
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", *words],
        cwd=place,
        env={**os.environ, "REGARD_CACHE": str(place / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = place / "runs/long/log.jsonl"
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "go on with: regard resume runs/long" in out
    recipe = place / "runs/long/recipe.toml"
    update = int(out.split("update ")[1].split(";")[0])
    recipe.write_text(recipe.read_text().replace("updates = 100000", f"updates = {update + 3}"))
    resumed = regard(place, "resume", "runs/long")
    assert resumed.returncode == 0, resumed.stderr
    assert f"finished after {update + 3} updates" in resumed.stdout


def test_errors_are_one_line_and_exit_code_two(place: Path) -> None:
    for words, message in (
        (["train", "smal"], "unknown recipe 'smal'"),
        (["train", "small.toml", "--set", "model.widht=3"], "did you mean 'model.width'"),
        (["train", "small.toml", "--data", "nowhere"], "no such file"),
        (["eval", "runs/none"], "this is no run folder"),
        (["resume", "runs/none"], "this is no run folder"),
    ):
        done = regard(place, *words)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_zoo_and_doctor_answer(place: Path) -> None:
    rows = [json.loads(line) for line in regard(place, "zoo", "--json").stdout.splitlines()]
    assert "shakespeare-gpt" in {row["recipe"] for row in rows}
    told = regard(place, "doctor").stdout
    assert "float32     works" in told
    assert "torch" in told
