"""The command line as people and scripts use it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import regard.runs.recipe as recipe_module
from tests.cli.command import Regard
from tests.recipes.test_recipes import SMALL

pytestmark = pytest.mark.usefixtures("as_users_run_it")

FIGURE = '[figure]\nmetric = "loss"\nsplit = "validation"\nvalue = 1\nreach = {}\nsource = "x"\n'


def test_help_names_every_verb_and_needs_no_torch(regard: Regard, place: Path) -> None:
    shown = regard("--help")
    assert shown.returncode == 0
    for verb in ("train", "resume", "eval", "reproduce", "zoo", "doctor"):
        assert verb in shown.stdout
    script = "import sys, regard.cli; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_train_evaluate_and_reproduce(regard: Regard, place: Path) -> None:
    trained = regard("train", "small.toml", "--device", "cpu")
    assert trained.returncode == 0, trained.stderr
    assert "finished after 4 updates" in trained.stdout
    assert "update 4" in trained.stderr, "plain lines when not on a terminal"
    measured = regard("eval", "runs/small")
    figures = json.loads(measured.stdout)
    written = json.loads((place / "runs/small/metrics.json").read_text())
    assert figures["split"] == "validation"
    assert figures["loss"] == pytest.approx(written["validation"]["loss"])
    again = regard("train", "small.toml")
    assert again.returncode == 2
    assert "there is a run already" in again.stderr


def test_a_figure_that_is_missed_is_exit_code_one(regard: Regard, place: Path) -> None:
    for reach, code, word in ((99.0, 0, "reached"), (0.001, 1, "MISSED")):
        name = f"small-{code}.toml"
        (place / name).write_text(SMALL + FIGURE.format(reach))
        done = regard("reproduce", name)
        assert (done.returncode, word in done.stdout) == (code, True), done.stderr


def test_only_a_published_figure_is_called_published(regard: Regard, place: Path) -> None:
    (place / "small.toml").write_text(SMALL + FIGURE.format(99))
    own = regard("reproduce", "small.toml", "--set", "figure.set_after_run=true").stdout
    assert "own goal (" in own
    assert "published" not in own
    assert "to reach 99, set after a run" in own
    done = regard("reproduce", "small.toml", "--set", "figure.published=true").stdout
    assert "published 1 (" in done, done


def test_a_seed_makes_a_run_of_its_own_and_is_recorded(
    regard: Regard, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SMALL + FIGURE.format(99)
    monkeypatch.setattr(recipe_module, "shipped_recipes", lambda: {"tiny": text})
    monkeypatch.setattr("regard.experiments.results.shipped_recipes", lambda: {"tiny": text})
    for seed in ("5", "6"):
        done = regard("reproduce", "tiny", "--seed", seed, "--record", "results")
        assert done.returncode == 0, done.stderr
        assert f"recorded in {Path('results/tiny.json')}" in done.stdout
        assert (place / f"runs/tiny-seed{seed}/metrics.json").exists()
    held = json.loads((place / "results/tiny.json").read_text())
    assert [each["seed"] for each in held["runs"]] == [5, 6]
    assert {each["threads"] for each in held["runs"]} == {torch.get_num_threads()}
    (place / "small.toml").write_text(text)
    refused = regard("reproduce", "small.toml", "--record", "results")
    assert (refused.returncode, "shipped recipes" in refused.stderr) == (2, True)


def test_a_figure_over_several_runs_is_joined_and_recorded(
    regard: Regard, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = 'over = { "train.seed" = [3, 4] }\njoin = "worst"\n'
    text = SMALL + FIGURE.format(99) + over
    monkeypatch.setattr(recipe_module, "shipped_recipes", lambda: {"tiny": text})
    monkeypatch.setattr("regard.experiments.results.shipped_recipes", lambda: {"tiny": text})
    done = regard("reproduce", "tiny", "--record", "results")
    assert done.returncode == 0, done.stderr
    metrics = [json.loads((place / f"runs/tiny/{n}/metrics.json").read_text()) for n in (3, 4)]
    (run,) = json.loads((place / "results/tiny.json").read_text())["runs"]
    losses = [each["validation"]["loss"] for each in metrics]
    assert losses[0] != losses[1]
    assert run["metrics"]["validation"]["loss"] == pytest.approx(max(losses))
    again = regard("reproduce", "tiny")
    assert [line.split(":")[0] for line in again.stdout.splitlines()] == [
        "tiny train.seed=3", "tiny train.seed=4", "tiny",
    ]  # fmt: skip


def test_a_figure_is_not_that_of_another_recipe(regard: Regard, place: Path) -> None:
    (place / "small.toml").write_text(SMALL + FIGURE.format(99))
    assert regard("reproduce", "small.toml").returncode == 0
    for change, message in (
        ("model.width=16", "model.width is 16 and was 8; choose another --name"),
        ("train.clip=0.5", "train.clip is 0.5 and was not given"),
        ("figure.split=test", "metrics.json: nothing was measured on test"),
        ("figure.metric=bleu", "unknown metric of figure 'bleu'"),
    ):
        done = regard("reproduce", "small.toml", "--set", change)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    done = regard("reproduce", "small.toml", "--set", "model.width=16", "--name", "wide")
    assert (done.returncode, "reached" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("change", ["figure.split=test", "figure.metric=bleu"])
def test_a_figure_that_will_not_be_measured_is_told_before_training(
    change: str, regard: Regard, place: Path
) -> None:
    (place / "small.toml").write_text(SMALL + FIGURE.format(99))
    done = regard("reproduce", "small.toml", "--set", change)
    assert (done.returncode, " of figure " in done.stderr) == (2, True), done.stderr
    assert not (place / "runs/small/log.jsonl").exists(), "an update was taken"


def test_an_interrupted_training_says_how_to_go_on_and_does(regard: Regard, place: Path) -> None:
    words = ["train", "small.toml", "--set", "train.updates=100000", "--name", "long"]
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", *words],
        cwd=place,
        env=dict(os.environ),
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
    resumed = regard("resume", "runs/long")
    assert resumed.returncode == 0, resumed.stderr
    assert f"finished after {update + 3} updates" in resumed.stdout


@pytest.mark.parametrize("validation", ["text.txt", "0.2"])
def test_a_text_on_stdin_is_trained_on_and_gone_on_with(
    validation: str, regard: Regard, place: Path
) -> None:
    words = ["--set", f"data.validation={validation}", "--name", "piped"]
    text = (place / "text.txt").read_text()
    piped = regard("train", "small.toml", "--set", "data.train=-", *words, text=text)
    assert piped.returncode == 0, piped.stderr
    words[-1] = "file"
    assert regard("train", "small.toml", *words).returncode == 0
    one, other = (place / "runs" / name / "model.safetensors" for name in ("piped", "file"))
    assert one.read_bytes() == other.read_bytes()
    assert regard("eval", "runs/piped").returncode == 0
    recipe = place / "runs/piped/recipe.toml"
    recipe.write_text(recipe.read_text().replace("updates = 4", "updates = 6"))
    assert "finished after 6 updates" in regard("resume", "runs/piped").stdout
    bad = regard("train", "small.toml", "--set", "data.train=-", "--name", "bad", text="a\n\0")
    assert (bad.returncode, "stdin:2: byte 1" in bad.stderr) == (2, True)


def test_a_text_that_has_changed_is_noticed(regard: Regard, place: Path) -> None:
    assert regard("train", "small.toml").returncode == 0
    recipe, text = place / "runs/small/recipe.toml", place / "text.txt"
    recipe.write_text(recipe.read_text().replace("updates = 4", "updates = 6"))
    whole = text.read_text()
    text.write_text(whole[:1000] + whole[1001:].replace("q", "o", 1) + "\n")
    done = regard("resume", "runs/small")
    assert (done.returncode, "digest of the training data" in done.stderr) == (2, True), done.stderr
    text.write_text(whole)
    assert regard("resume", "runs/small").returncode == 0


def test_errors_are_one_line_and_exit_code_two(regard: Regard, place: Path) -> None:
    for words, message in (
        (["train", "smal"], "unknown recipe 'smal'"),
        (["train", "small.toml", "--set", "model.widht=3"], "did you mean 'model.width'"),
        (["train", "small.toml", "--data", "nowhere"], "no such file. The data folder is nowhere"),
        (["eval", "runs/none"], "this is no run folder"),
        (["resume", "runs/none"], "this is no run folder"),
        (["train", "small.toml", "--runs", "text.txt"], "text.txt/small: cannot be written"),
        (
            ["train", "small.toml", "--set", "data.window=9"],
            "data.window=9 is more than the 8",
        ),
    ):
        done = regard(*words)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_zoo_and_doctor_answer(regard: Regard, place: Path) -> None:
    rows = [json.loads(line) for line in regard("zoo", "--json").stdout.splitlines()]
    assert "shakespeare-gpt" in {row["recipe"] for row in rows}
    told = regard("doctor").stdout
    assert "float32     works" in told
    assert "torch" in told


def test_a_trained_model_writes_the_same_for_the_same_seed(regard: Regard, place: Path) -> None:
    assert regard("train", "small.toml").returncode == 0
    words = ["generate", "runs/small", "--prompt", "to", "--seed", "3", "--json", "-n", "2"]
    first, second = regard(*words), regard(*words)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    texts = [json.loads(line) for line in first.stdout.splitlines()]
    assert [(each["prompt"], each["reason"]) for each in texts] == [("to", "length")] * 2
    assert texts[0]["text"] != texts[1]["text"]
    assert texts[0]["tokens"] == 7, "a context of 8 after a prompt of 2, the last never read"
    piped = regard("generate", "runs/small", "--greedy", text="to\nbe\n")
    lines = regard("generate", "runs/small", "--greedy", "--prompt", "be").stdout
    assert piped.stdout.startswith("to")
    assert piped.stdout.endswith(lines)
    words = ["generate", "runs/small", "--greedy", "--prompt", "to", "--repetition-penalty", "9"]
    assert regard(*words).stdout != piped.stdout.splitlines(keepends=True)[0]


def test_a_text_goes_on_past_the_context(regard: Regard, place: Path) -> None:
    assert regard("train", "small.toml").returncode == 0
    words = ("generate", "runs/small", "--prompt", "to be", "--max-tokens", "40", "--seed", "1")
    done = regard(*words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tokens"] == 40
    done = regard("generate", "runs/small", "--prompt", "to be or not to be", "--json")
    assert json.loads(done.stdout)["tokens"] == 8  # as many as the context has
    greedy = regard(*words, "--greedy").stdout
    assert regard(*words, "--temperature", "0").stdout == greedy


def test_prompts_that_cannot_be_read_are_named(regard: Regard, place: Path) -> None:
    assert regard("train", "small.toml").returncode == 0
    for text, message in (
        (b"to\n\xff\n", "stdin:2: byte 1 of the line, 0xff, is not UTF-8"),
        ("to\nb\0\n", "stdin:2: byte 2 of the line is NUL"),
    ):
        done = regard("generate", "runs/small", "--greedy", text=text)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
        assert done.stdout == regard("generate", "runs/small", "--greedy", text="to\r\n").stdout
    done = regard("generate", "runs/small", text="")
    assert (done.returncode, done.stdout) == (0, "")
    done = regard("generate", "runs/small", "--prompt", "to", "--temperature", "-1")
    assert done.returncode == 2
    assert "temperature" in done.stderr
