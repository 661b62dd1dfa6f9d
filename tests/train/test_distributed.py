"""Several processes take the steps that one takes with the batches of all."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import regard.cli.train
import regard.runs.run
import regard.train.parallel.world
from regard.core.errors import UserError
from regard.runs.recipe import read_recipe
from regard.runs.run import create
from regard.train.parallel.world import World, process_group
from tests.train.launch import launch
from tests.train.tiny import assert_same
from tests.train.together import learn

UPDATES = 12


def together(folder: Path, *arguments: str) -> list[str]:
    """How the training of two processes in a folder ended, in each of them."""
    return [json.loads(out) for out in launch("tests.train.together", str(folder), *arguments)]


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
    for name in ("loss", "norm", "lr", "right", "begins"):
        ours, theirs = curve(two, name), curve(tmp_path, name)
        assert len(ours) == UPDATES or name == "begins"
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
    assert not (tmp_path / "another-disk").exists(), "only the first process has files"


def test_alone_there_is_nothing_to_add() -> None:
    world = World()
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full((2,), 3.0)
    world.all_reduce_gradients([weight])
    assert weight.grad.tolist() == [3.0, 3.0]
    assert world.all_reduce_sum([1.0, 2.0]) == [1.0, 2.0]
    assert world.broadcast(4.0) == 4.0
    assert world.is_main


def test_a_world_that_torchrun_did_not_make_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="WORLD_SIZE=2 is set but RANK, MASTER_ADDR, MASTER_PORT"):
        process_group(torch.device("cpu")).__enter__()


RECIPE = """
task = "language_model"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "text.txt"
batch = 2
window = 4
evaluate_batch = 2
[model]
kind = "rnn_lm"
width = 4
[train]
updates = 1
optimiser = { name = "sgd", lr = 0.1 }
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe in a folder with its text."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 20)
    (tmp_path / "tiny.toml").write_text(RECIPE)
    return tmp_path / "tiny.toml"


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Where models are put and processes are joined, as process 1 on a machine with two GPUs."""
    used: list[torch.device] = []

    @contextmanager
    def join(device: torch.device) -> Iterator[World]:
        used.append(device)
        yield World()

    def move(model: nn.Module, device: torch.device) -> nn.Module:
        used.append(device)
        return model

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(nn.Module, "to", move)
    monkeypatch.setattr(regard.runs.run, "process_group", join)
    monkeypatch.setattr(regard.train.parallel.world, "process_group", join)
    monkeypatch.setattr(regard.cli.train, "finish", lambda run: None)
    monkeypatch.setattr(regard.cli.train, "finish", lambda run: None)
    return used


def test_a_training_is_on_the_gpu_of_its_process(recipe: Path, places: list[torch.device]) -> None:
    runs, data = recipe.parent / "runs", recipe.parent
    regard.cli.train.train_recipe([str(recipe)], data=data, runs=runs)
    assert len(places) == 3  # joined by the command, joined by `create`, and the model
    regard.cli.train.resume(runs / "tiny", data=data)
    assert len(places) == 5
    assert set(places) == {torch.device("cuda", 1)}


def test_a_process_that_does_not_see_the_run_folder_says_so(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regard.runs.run, "process_group", lambda device: nullcontext(World(rank=1)))
    with pytest.raises(UserError, match="process 1 does not see the run folder that process 0"):
        create(read_recipe(str(recipe), []), recipe.parent / "run", recipe.parent, "cpu")


@pytest.mark.parametrize(
    ("device", "backend"), [(torch.device("cpu"), "gloo"), (torch.device("cuda", 1), "nccl")]
)
def test_processes_wait_for_hours_of_scoring(
    device: torch.device, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, dict[str, object]]] = []
    chosen: list[torch.device] = []
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    fakes = {
        "init_process_group": lambda name, **rest: started.append((name, rest)),
        "get_rank": lambda: 0,
        "get_world_size": lambda: 2,
        "destroy_process_group": lambda: None,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.distributed, name, fake)
    with process_group(device) as world:
        assert world.device == (device if backend == "nccl" else "cpu")
    ((name, rest),) = started
    assert name == backend
    assert rest["timeout"] >= timedelta(days=1)
    assert rest["device_id"] == (device if backend == "nccl" else None)
    assert chosen == [device] * (backend == "nccl")
