"""Several processes take the steps that one takes with the batches of all."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.core.errors import UserError
from regard.core.device import device_of_rank
from regard.train.distributed import World, joined
from tests.train.tiny import assert_same
from tests.train.together import learn

ROOT = Path(__file__).parent.parent.parent
UPDATES = 12


def together(folder: Path, *arguments: str, size: int = 2) -> list[str]:
    """What each of several processes says that train in a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.train.together", str(folder), *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    ended = [process.communicate(timeout=120) for process in started]
    for process, (_, error) in zip(started, ended, strict=True):
        assert process.returncode == 0, error
    return [json.loads(out) for out, _ in ended]


def curve(folder: Path, name: str) -> list[float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if name in line]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training by two processes."""
    folder = tmp_path_factory.mktemp("two")
    assert together(folder, str(UPDATES)) == [f"finished {UPDATES}"] * 2
    return folder


def test_two_processes_have_the_loss_curve_of_one(two: Path, tmp_path: Path) -> None:
    assert learn(tmp_path, UPDATES) == f"finished {UPDATES}"
    assert len(set(curve(two, "lr"))) > 1
    for name in ("loss", "norm", "lr", "right"):
        ours, theirs = curve(two, name), curve(tmp_path, name)
        assert len(ours) == UPDATES
        assert ours == pytest.approx(theirs, abs=1e-5)
    one, other = (load_file(folder / "model.safetensors") for folder in (two, tmp_path))
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], atol=1e-5, rtol=1e-5)


def test_two_processes_stop_together_when_one_is_asked_and_go_on_to_the_same_bits(
    two: Path, tmp_path: Path
) -> None:
    assert together(tmp_path, str(UPDATES), "9") == ["interrupted 5"] * 2
    assert (tmp_path / "state/00000005/rank-1.safetensors").exists()
    with pytest.raises(UserError, match="the number of processes was 2 when it was saved and is 1"):
        learn(tmp_path, UPDATES)
    assert together(tmp_path, str(UPDATES)) == [f"finished {UPDATES}"] * 2
    assert_same(tmp_path, two)


def test_alone_there_is_nothing_to_add() -> None:
    world = World()
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full((2,), 3.0)
    world.add_gradients([weight])
    assert weight.grad.tolist() == [3.0, 3.0]
    assert world.add_up([1.0, 2.0]) == [1.0, 2.0]
    assert world.follow_leader(4.0) == 4.0
    assert world.leads


def test_a_world_that_torchrun_did_not_make_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="WORLD_SIZE=2 is set but RANK, MASTER_ADDR, MASTER_PORT"):
        joined(torch.device("cpu")).__enter__()


def test_on_a_machine_without_gpus_every_rank_is_on_the_cpu() -> None:
    assert device_of_rank("cpu") == torch.device("cpu")
