"""Trains in children that are killed at random moments, until one comes through.

`python -m tests.train.killed FOLDER KILLS SEED` prints how many were killed, and how many of those
in the middle of writing a checkpoint. The children are forks, so that none has to import torch.
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.train.tiny import run

UPDATES = 200


def train_here(folder: Path) -> None:
    """The training of every child: a checkpoint after each update."""
    run(folder, updates=UPDATES, save_every=1, evaluate_every=7)


def child(folder: Path) -> int:
    """The process id of a child that trains."""
    process = os.fork()
    if process == 0:
        try:
            train_here(folder)
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
    return process


def main(folder: Path, kills: int, seed: int) -> None:
    draw = random.Random(seed)
    killed = 0
    drafts: set[int] = set()
    with tempfile.TemporaryDirectory() as warm:  # what loads when it is first used
        run(Path(warm), updates=2)
    while True:
        process = child(folder)
        if killed < kills:
            time.sleep(draw.uniform(0.0, 0.15))
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            killed += 1
            drafts |= {each.stat().st_mtime_ns for each in (folder / "state").glob("*.draft")}
        elif os.WEXITSTATUS(status):
            raise SystemExit(f"a child failed after {killed} kills")
        elif killed >= kills:
            break
    print(killed, len(drafts))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
