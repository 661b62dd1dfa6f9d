"""regard compare and regard cost, as a person runs them."""

import json
import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from regard.core.errors import UserError
from regard.experiments.compare import Comparison, parse_vary, train_one
from regard.runs.recipe import read_recipe
from regard.runs.run import create
from tests.cli.command import Regard

SHORT = ("--set", "train.updates=4", "--set", "train.save_every=2")


@pytest.fixture
def _children_find_regard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are trained by processes of their own, outside the folder of the tests."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def _trained_here(monkeypatch: pytest.MonkeyPatch, as_users_run_it: None) -> None:
    """Train in this process, one run after the other: a new process takes a second to begin."""

    def train(folder: Path, data: Path, threads: int) -> None:
        recipe = read_recipe(str(folder.with_suffix(".toml")))
        create(recipe, folder, data, "cpu").train()

    monkeypatch.setattr("regard.experiments.compare.train_one", train)


@pytest.mark.usefixtures("_children_find_regard")
def test_values_are_compared_kept_and_gone_on_with(regard: Regard, place: Path) -> None:
    asked = ("compare", "small.toml", "--vary", "model.width=4,8", "--seeds", "1", "--json")
    first = regard(*asked, *SHORT, "-o", "cost.png", "--workers", "2")
    assert first.returncode == 0, first.stderr
    rows = [json.loads(line) for line in first.stdout.splitlines() if line.startswith("{")]
    assert [row["model.width"] for row in rows] == ["4", "8"]
    assert rows[0]["parameters"] < rows[1]["parameters"]
    assert all(row["peak_bytes"] > 10**7 for row in rows)
    assert (place / "cost.png").stat().st_size > 1000
    again = regard(*asked, *SHORT)
    assert "to train" not in again.stderr
    assert [json.loads(line) for line in again.stdout.splitlines()] == rows
    (left,) = place.glob("runs/compare-small/model-width/model.width=4/seed-*/metrics.json")
    left.unlink()
    resumed = regard(*asked, *SHORT)
    assert "1 of 2 runs to train" in resumed.stderr
    values = [json.loads(line)["values"] for line in resumed.stdout.splitlines()]
    assert values == [row["values"] for row in rows]
    other = regard(*asked, "--set", "train.updates=5")
    assert other.returncode == 2
    assert "another recipe" in other.stderr


@pytest.mark.usefixtures("_trained_here")
def test_values_are_compared_over_seeds(regard: Regard, place: Path) -> None:
    vary = ("--vary", "model.width=4,8", "--seeds", "2", "--workers", "1")
    done = regard("compare", "small.toml", *vary, *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0]["p"] is None
    assert 0 <= rows[1]["p"] <= 1
    for row in rows:
        assert len(set(row["values"])) == 2  # seeds differ, or they were not used
        assert row["low"] <= row["mean"] <= row["high"]


def test_a_failed_run_is_told_with_its_reason(
    regard: Regard, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "text.txt").unlink()
    words = ("compare", "small.toml", "--vary", "model.width=4", "--seeds", "1", "--data", ".")
    done = regard(*words)
    assert done.returncode == 2
    assert "model.width=4: text.txt: no such file" in done.stderr
    assert not (place / "runs").exists()
    monkeypatch.setattr("regard.experiments.compare._check_rows", lambda *_: None)
    done = regard(*words)
    assert done.returncode == 2
    assert "training failed" in done.stderr


@pytest.mark.usefixtures("_children_find_regard")
@pytest.mark.parametrize(("set_to", "expected"), [(None, "2"), ("1", "1")])
def test_the_users_number_of_threads_is_kept(
    set_to: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if set_to is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", set_to)
    asked = {}

    def run(command: list[str], env: dict[str, str], **rest: object) -> CompletedProcess[str]:
        asked.update(env)
        return CompletedProcess(command, 0)

    monkeypatch.setattr("regard.experiments.compare.subprocess.run", run)
    train_one(tmp_path / "seed-1", tmp_path, threads=2)
    assert asked["OMP_NUM_THREADS"] == expected


@pytest.mark.usefixtures("_trained_here")
def test_two_keys_are_varied_together_and_an_empty_value_leaves_one_out(
    regard: Regard, place: Path
) -> None:
    vary = ("--vary", "model.width=4,8", "--vary", "model.tied=,false", "--workers", "1")
    done = regard("compare", "small.toml", *vary, "--seeds", "1", *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["model.width"], row["model.tied"]) for row in rows] == [
        ("4", ""),
        ("4", "false"),
        ("8", ""),
        ("8", "false"),
    ]
    sizes = [row["parameters"] for row in rows]
    assert sizes[0] < sizes[1] < sizes[2]  # a table of their own for what is written
    assert len({row["mean"] for row in rows}) == 4
    shown = regard("compare", "small.toml", *vary, "--seeds", "1", *SHORT)
    assert "(none)" in shown.stdout


@pytest.mark.parametrize("text", ["", "model.width", "model.width="])
def test_nothing_to_vary_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--vary takes"):
        parse_vary([text])


def test_a_key_that_varies_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"model\.width is given twice"):
        parse_vary(["model.width=4", "model.width=8"])


@pytest.mark.parametrize(
    ("key", "values", "said"),
    [
        ("model.widht", ("4",), "did you mean 'model.width'"),
        ("model.width", ("4", "x"), "model.width"),
        ("model.width", ("4", "4"), "differ"),
    ],
)
def test_a_comparison_of_nonsense_is_refused_before_it_begins(
    place: Path, key: str, values: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        Comparison(recipe="small.toml", vary={key: values})


def test_cost_counts_and_draws(regard: Regard, place: Path) -> None:
    done = regard("cost", "small.toml", "--width", "8", "--lengths", "4..16", "-o", "cost.svg")
    assert done.returncode == 0, done.stderr
    assert "self-attention costs more than recurrence from 8 on" in done.stdout
    assert (place / "cost.svg").read_text().startswith("<?xml")
    lines = regard("cost", "small.toml", "--lengths", "4", "--json").stdout.splitlines()
    assert [json.loads(line)["layer"] for line in lines] == [
        "self-attention",
        "recurrence",
        "convolution",
    ]


@pytest.mark.usefixtures("_trained_here")
def test_the_metric_and_the_name_of_a_comparison_can_be_chosen(regard: Regard, place: Path) -> None:
    words = ("compare", "small.toml", "--vary", "model.width=4", "--seeds", "1", "--json", *SHORT)
    watched = regard(*words, "--set", "train.monitor=perplexity")
    assert json.loads(watched.stdout)["metric"] == "perplexity"
    done = regard(*words, "--metric", "perplexity", "--name", "mine")
    row = json.loads(done.stdout)
    assert (row["metric"], row["split"]) == ("perplexity", "validation")
    assert (place / "runs" / "mine" / "model.width=4").is_dir()
    wrong = regard(*words, "--metric", "test.loss", "--name", "other")
    assert wrong.returncode == 2
    assert "unknown split 'test'" in wrong.stderr
