"""regard audit, as people type it."""

import json
from pathlib import Path

import pytest

from tests.cli.command import Regard
from tests.tasks.test_classify import RECIPE

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture
def classifier(place: Path, regard: Regard) -> str:
    lines = ["pos\ta fine film", "neg\ta dull film", "pos\tfine", "neg\tso very dull"] * 6
    (place / "train.txt").write_text("label\ttext\n" + "\n".join(lines) + "\n")
    (place / "all.tsv").write_text("label\ttext\n" + "\n".join(lines) + "\n")
    recipe = RECIPE.replace("train.txt", "all.tsv").replace("dev.txt", "all.tsv")
    recipe = recipe.replace("[model]", 'text = "text"\nlabel = "label"\n[model]')
    (place / "mine.toml").write_text(recipe)
    done = regard("train", "mine.toml")
    assert done.returncode == 0, done.stderr
    return "runs/mine"


def test_a_classifier_is_audited_and_the_report_is_whole(
    classifier: str, place: Path, regard: Regard
) -> None:
    quick = ("--test", "agreement", "--test", "permutation", "--test", "uniform")
    done = regard("audit", classifier, *quick, "--test", "erasure", "-o", "report.html", "--json")
    assert done.returncode == 0, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["test"] for each in objects] == ["agreement", "permutation", "uniform", "erasure"]
    assert all(-1 <= each["mean"] <= 1 for row in objects for each in row["figures"].values())
    page = (place / "report.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 4
    assert "<script" not in page
    assert "nan" not in page.split("base64,")[0].lower()
    plain = regard("audit", classifier, "--test", "permutation")
    assert "Shuffling the weights changes the prediction by" in plain.stdout
    assert "18 examples; 6 with fewer than two positions left out." in plain.stdout


def test_the_adversary_runs_from_the_command_line(classifier: str, regard: Regard) -> None:
    done = regard("audit", classifier, "--test", "adversary", "--examples", "4")
    assert "very different weights give the same prediction within 0.01" in done.stdout


def test_a_language_model_is_audited_by_its_next_word(place: Path, regard: Regard) -> None:
    assert regard("train", "small.toml", "--set", "model.layers=2").returncode == 0
    done = regard("audit", "runs/small", "--test", "uniform", "--examples", "3")
    assert done.returncode == 2
    assert "choose one with --site: layers.0.attention, layers.1.attention" in done.stderr
    chosen = regard(
        *("audit", "runs/small", "--site", "layers.1.attention", "--head", "1"),
        *("--test", "uniform", "--test", "agreement", "--examples", "3"),
    )
    assert chosen.returncode == 0, chosen.stderr
    assert "predictions stay the same" in chosen.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--test", "agrement"), "agreement"),
        (("--site", "pol"), "pool"),
        (("--split", "tset"), "validation"),
        (("-o", "report.pdf"), ".html"),
        (("--examples", "0"), "examples"),
    ],
)
def test_what_cannot_be_audited_is_an_error(
    classifier: str, regard: Regard, words: tuple[str, ...], message: str
) -> None:
    done = regard("audit", classifier, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
