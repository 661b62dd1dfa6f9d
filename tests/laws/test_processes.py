"""Two processes train as one does, on every task, and go on to the same bits.

Weights and losses agree to 1e-5: sums of float32 numbers are taken in another order. Models that
draw numbers, or normalise over the rows of a process, have no equal in one process; they too must
hold the same weights and buffers in both, and resume to the same bits.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.data.batch import IGNORE
from regard.runs.run import open_run
from regard.tasks import TASKS
from tests.laws import processes
from tests.laws.processes import CASES, DRAWS, UNTRIED, UPDATES
from tests.train.launch import launch
from tests.train.tiny import assert_same
from tests.unchecked import unchecked


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    processes.write_data(folder)
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Every case, trained in this process."""
    runs = tmp_path_factory.mktemp("one")
    with unchecked():
        processes.train_all(data, runs)
    return runs


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Every case, trained in two processes, and resumed in two."""
    runs = tmp_path_factory.mktemp("two")
    launch("tests.laws.processes", str(data), str(runs))
    return runs


def test_every_task_has_a_case() -> None:
    assert {task for task, _, _ in CASES.values()} | UNTRIED == set(TASKS)


def test_a_batch_of_the_masked_language_model_has_a_pair_for_one_process_only(
    one: Path, data: Path
) -> None:
    batches = open_run(one / "masked_lm", data, "cpu").task.batches()
    drawn = [batches.batch(0, index)["random_next"] for index in range(len(batches))][:UPDATES]
    assert 1 in [int((each != IGNORE).sum()) for each in drawn]


def logged(run: Path) -> list[dict[str, float]]:
    """The numbers of each line of the log, without those that are measured in seconds."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    timed = {"seconds", "items_per_second", "waiting"}
    flat = [{**line.pop("validation", {}), **line} for line in lines]
    return [{key: each for key, each in line.items() if key not in timed} for line in flat]


@pytest.mark.parametrize("name", [name for name in CASES if name not in DRAWS])
def test_two_processes_are_like_one(name: str, one: Path, two: Path) -> None:
    ours, theirs = (logged(runs / name) for runs in (one, two))
    assert len(ours) > UPDATES  # a line for each, and the validation
    for alone, together in zip(ours, theirs, strict=True):
        assert together == pytest.approx(alone, rel=1e-5, abs=1e-5)
    first, second = (load_file(runs / name / "model.safetensors") for runs in (one, two))
    torch.testing.assert_close(second, first, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_resume_to_the_same_bits(name: str, two: Path) -> None:
    assert_same(two / f"{name}-resumed", two / name)
