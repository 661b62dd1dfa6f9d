"""A run folder has one writer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import Regard
from tests.core.test_lock import ended, holder

pytestmark = pytest.mark.usefixtures("as_users_run_it")

ROOT = Path(__file__).parent.parent.parent


def test_of_two_trainings_with_one_name_one_is_refused_in_one_line(place: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "regard", "train", "small.toml"],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    ends = [(*process.communicate(timeout=120), process.returncode) for process in started]
    assert sorted(code for *_, code in ends) == [0, 2], ends
    ((_, error, _),) = [each for each in ends if each[2] == 2]
    assert error.count("\n") == 1
    assert error.startswith("regard: runs/small: ")
    assert "--name" in error


def test_resume_of_a_run_that_is_being_trained_is_refused(place: Path, regard: Regard) -> None:
    assert regard("train", "small.toml").returncode == 0
    process = holder(place / "runs" / "small")
    before = (place / "runs" / "small" / "log.jsonl").read_text()
    try:
        for words in (("resume", "runs/small"), ("train", "small.toml", "--overwrite")):
            done = regard(*words)
            assert done.returncode == 2
            assert f"process {process.pid} on " in done.stderr
            assert done.stderr.count("\n") == 1
    finally:
        ended(process)
    assert (place / "runs" / "small" / "log.jsonl").read_text() == before
    assert regard("resume", "runs/small").returncode == 0


def test_a_run_is_replaced_only_if_that_is_requested(place: Path, regard: Regard) -> None:
    assert regard("train", "small.toml").returncode == 0
    done = regard("train", "small.toml")
    assert done.returncode == 2
    assert "regard resume runs/small" in done.stderr
    assert "--name" in done.stderr
    assert "--overwrite" in done.stderr
    (place / "runs" / "small" / "left.txt").write_text("of the first run")
    bad = regard("train", "small.toml", "--overwrite", "--set", "data.train=nowhere.txt")
    assert bad.returncode == 2
    assert (place / "runs" / "small" / "left.txt").exists()  # the new one would not have worked
    assert regard("train", "small.toml", "--overwrite", "--set", "train.seed=7").returncode == 0
    assert "seed = 7" in (place / "runs" / "small" / "recipe.toml").read_text()
    assert not (place / "runs" / "small" / "left.txt").exists()
