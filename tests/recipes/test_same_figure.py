"""The same recipe on the same machine: the same losses, bit for bit, in any process."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


NAMES = ("ptb-lstm", "online-echo")
"""Dropout in one, random decisions in the other."""


def losses(hash_seed: str) -> dict[str, list[float]]:
    """Ten losses of some recipes, trained by a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.recipes.ten_updates", *NAMES],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def test_ten_losses_are_the_same_in_two_processes() -> None:
    first, again = losses("1"), losses("2")
    assert [len(set(first[name])) for name in NAMES] == [10, 10]
    assert first == again
