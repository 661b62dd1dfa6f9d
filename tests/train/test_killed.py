"""SIGKILL at random moments, in the middle of a checkpoint too, costs nothing but time."""

import os
import subprocess
import sys
from pathlib import Path

from tests.train.killed import train_here
from tests.train.tiny import assert_same

ROOT = Path(__file__).parent.parent.parent
KILLS = int(os.environ.get("REGARD_KILLS", "12"))
"""`make nightly` has more."""


def test_a_training_killed_many_times_ends_with_the_same_bits(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.killed", str(tmp_path / "killed"), str(KILLS), "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30 + 5 * KILLS,
    )
    assert done.returncode == 0, done.stderr
    killed, writing = (int(number) for number in done.stdout.split())
    assert killed >= KILLS
    assert writing >= 1
    train_here(tmp_path / "whole")
    assert_same(tmp_path / "killed", tmp_path / "whole")
