"""A modality that lives in two files of its own does everything that the package's tasks do."""

import base64
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import torch

from regard.core.axes import Patches
from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.experiments.compare import Comparison, run_comparison
from regard.explain.audit import AuditConfig, audit_run
from regard.inference.predict import served
from regard.look import draw
from regard.runs.plugins import allow_plugin
from regard.runs.recipe import read_recipe
from regard.runs.run import Run, create, load
from regard.serve.server import server
from tests.modality.grids import GridTask
from tests.train.tiny import assert_same

HERE = Path(__file__).parent
RECIPE = str(HERE / "grids.toml")
PLUGINS = (f"{HERE / 'grids.py'}:GridTask", f"{HERE / 'grids.py'}:GridCaptioner")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A captioner of grids, trained by its recipe."""
    made = create(read_recipe(RECIPE), tmp_path_factory.mktemp("grids") / "run", HERE, "cpu")
    assert made.train().outcome == "finished"
    return made


@pytest.fixture(scope="module")
def grid(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The picture of a grid as a file."""
    image = task_of(run).painted(["red", "blue", "blue", "green"])
    path = tmp_path_factory.mktemp("pictures") / "grid.png"
    path.write_bytes(base64.b64decode(image.data_address().partition(",")[2]))
    return path


def task_of(run: Run) -> GridTask:
    """Loaded from its file, the class is another than the one imported here, and the same."""
    assert type(run.task).__name__ == "GridTask"
    return run.task


def test_it_trains_and_describes_grids(run: Run) -> None:
    measured = json.loads((run.folder / "metrics.json").read_text())
    assert measured["validation"]["exact"] > 0.9


def test_it_resumes_to_the_same_bits(run: Run, tmp_path: Path) -> None:
    short = create(read_recipe(RECIPE, ["train.updates=50"]), tmp_path / "run", HERE, "cpu")
    short.train()
    recipe = read_recipe(RECIPE)
    (tmp_path / "run" / "recipe.toml").write_text(recipe.to_toml())
    (tmp_path / "run" / "model.safetensors").unlink()
    again = Run(tmp_path / "run", recipe, short.task, short.model)
    torch.nn.init.zeros_(again.model.output.weight)
    assert again.train().outcome == "finished"
    assert_same(tmp_path / "run", run.folder)


def test_it_is_loaded_only_where_its_plugins_are_named(run: Run) -> None:
    environment = {name: each for name, each in os.environ.items() if name != "REGARD_PLUGINS"}
    command = [sys.executable, "-m", "regard", "eval", str(run.folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "grids.py:GridTask" in done.stderr
    assert "--plugin" in done.stderr


def test_it_predicts_and_writes_by_beam_search(run: Run, grid: Path) -> None:
    loaded = load(run.folder, "cpu", plugins=PLUGINS)
    assert loaded.predict([str(grid)])[0].text == "red blue blue green"
    assert loaded.translate([str(grid)]) == ["red blue blue green"]
    (every,) = loaded.task.translate(loaded.model, loaded.task.inputs(str(grid)))
    assert len(every.outputs) == 1
    with pytest.raises(UserError, match="grids takes an image, and was given a text"):
        loaded.predict([Text("red")])


def test_worker_processes_write_the_same(run: Run, grid: Path) -> None:
    for plugin in PLUGINS:
        allow_plugin(plugin)
    assert run.translate([str(grid)] * 4, workers=2) == ["red blue blue green"] * 4


def test_its_attention_lies_on_the_image(run: Run, grid: Path, tmp_path: Path) -> None:
    (payload,) = run.look(str(grid))
    assert isinstance(payload.keys, Patches)
    assert payload.keys.boxes[1] == (8.0, 0.0, 8.0, 8.0)
    assert list(payload.queries) == ["red", "blue", "blue", "green", "<eos>"]
    draw([payload], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert payload.keys.picture in page
    draw([payload], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_it_is_audited(run: Run) -> None:
    found = audit_run(run, AuditConfig(examples=8))
    assert found.verdicts
    assert all(verdict.figures for verdict in found.verdicts)


def test_its_parts_are_compared(tmp_path: Path) -> None:
    for plugin in PLUGINS:
        allow_plugin(plugin)
    comparison = Comparison(
        recipe=RECIPE,
        vary={"model.score": ("additive", "bilinear")},
        seeds=1,
        changes=("train.updates=4", "train.evaluate_every=4", "train.save_every=4"),
    )
    table = run_comparison(comparison, tmp_path, HERE)
    assert [row.name for row in table.rows] == ["additive", "bilinear"]


def test_it_is_served(run: Run, grid: Path) -> None:
    started = server([served(run)], port=0)
    where: list[str] = []
    thread = threading.Thread(target=started.listen, args=(where.append,), daemon=True)
    thread.start()
    while not where:
        time.sleep(0.01)
    try:
        ask_all(where[0], run.folder.name, grid)
    finally:
        started.should_exit = True
        thread.join(20)


def ask_all(address: str, name: str, grid: Path) -> None:
    """Every route that takes an input, over the picture."""
    picture = base64.b64encode(grid.read_bytes()).decode()
    body = {"model": name, "input": picture}
    answer = httpx.post(f"{address}/api/predict", json=body)
    assert answer.json()["text"] == "red blue blue green"
    answer = httpx.post(f"{address}/api/translate", json=body)
    assert answer.json()["translations"][0]["text"] == "red blue blue green"
    answer = httpx.post(f"{address}/api/attention", json={**body, "form": "plain"})
    assert "patches" in answer.text
    answer = httpx.post(f"{address}/api/predict", json={"model": name, "text": "red"})
    assert answer.status_code == 422
    assert "an image" in answer.json()["error"]["message"]
