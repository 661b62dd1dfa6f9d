"""regard eval on files, predictions of interrupted runs, and resume --set, as people type them."""

import json
import tomllib
from pathlib import Path

import pytest

import regard as package
from regard.train.loop import Loop
from tests.cli.command import Regard
from tests.tasks.test_tag import RECIPE as TAG
from tests.tasks.test_tag import SENTENCES

pytestmark = pytest.mark.usefixtures("as_users_run_it")

ROWS = [("a fine warm film", "pos"), ("a dull cold film", "neg")] * 10
SMALL = ["--set", "model.hidden=8", "--set", "model.width=8", "--set", "train.epochs=3"]

LONG = ["--set", "train.epochs=15", "--set", "train.optimiser.lr=0.03", "--set", "model.dropout=0"]


@pytest.fixture
def reviews(place: Path) -> Path:
    (place / "train.csv").write_text("text,label\n" + "\n".join(map(",".join, ROWS)) + "\n")
    return place


@pytest.fixture
def classifier(reviews: Path, regard: Regard) -> str:
    done = regard("train", "--task", "classify", "train.csv", *SMALL, *LONG)
    assert done.returncode == 0, done.stderr
    return "runs/classify"


def test_a_run_is_measured_on_any_file(classifier: str, reviews: Path, regard: Regard) -> None:
    (reviews / "other.csv").write_text("text,label\na fine warm film,pos\na dull cold film,pos\n")
    done = regard("eval", classifier, "train.csv", "other.csv")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["file"], each["accuracy"]) for each in told] == [
        ("train.csv", 1.0),
        ("other.csv", 0.5),
    ]
    (reviews / "train.csv").unlink()
    alone = regard("eval", classifier, "other.csv")
    assert json.loads(alone.stdout)["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["none.csv"], "none.csv: no such file"),
        (["bad.csv"], "bad.csv:2: the label 'good'"),
        (["train.csv", "--split", "test"], "not both"),
    ],
)
def test_files_that_cannot_be_measured(
    words: list[str], told: str, classifier: str, reviews: Path, regard: Regard
) -> None:
    (reviews / "bad.csv").write_text("text,label\na fine warm film,good\n")
    done = regard("eval", classifier, *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr


def test_taggers_and_translators_are_measured_on_files(place: Path, regard: Regard) -> None:
    (place / "train.txt").write_text("\n".join(SENTENCES))
    (place / "dev.txt").write_text("\n".join(SENTENCES))
    (place / "tag.toml").write_text(TAG)
    assert regard("train", "tag.toml").returncode == 0
    assert "f1" in json.loads(regard("eval", "runs/tag", "train.txt").stdout)
    (place / "a.de").write_text("ja\nnein\n" * 20)
    (place / "a.en").write_text("yes\nno\n" * 20)
    short = ["--set", "train.epochs=1", "--set", "model.width=16", "--set", "data.vocabulary=300"]
    done = regard("train", "--task", "translate", "a.de", "a.en", *short)
    assert done.returncode == 0, done.stderr
    measured = regard("eval", "runs/a-translate", "a.de", "a.en")
    assert json.loads(measured.stdout)["file"] == "a.de, a.en"
    odd = regard("eval", "runs/a-translate", "a.de")
    assert (odd.returncode, "in pairs" in odd.stderr) == (2, True)


def test_an_interrupted_run_predicts(
    reviews: Path,
    regard: Regard,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    update = Loop.update

    def interrupted(self: Loop, stop: object) -> None:
        stop.requested = self.state.progress.update >= 4  # type: ignore[attr-defined]
        update(self, stop)  # type: ignore[arg-type]

    monkeypatch.setattr(Loop, "update", interrupted)
    done = regard("train", "--task", "classify", "train.csv", *SMALL)
    assert (done.returncode, "go on with: regard resume" in done.stdout) == (130, True)
    assert not (reviews / "runs/classify/model.safetensors").exists()
    predicted = regard("predict", "runs/classify", text="a fine warm film\n")
    assert predicted.stdout.split("\t")[0] in ("pos", "neg")
    assert "not finished; using the weights after update" in caplog.text
    for each in (reviews / "runs/classify/state").iterdir():
        each.rename(each.with_name(each.name + ".gone"))
    refused = regard("predict", "runs/classify", text="a\n")
    assert (refused.returncode, "nor a checkpoint" in refused.stderr) == (2, True)


def test_a_finished_training_goes_on_for_longer(reviews: Path, regard: Regard) -> None:
    # A constant rate: with a cosine, a longer training has another course from the beginning.
    plain = [*SMALL, "--set", "train.schedule={name='constant'}", "--set", "train.weights=last"]
    assert regard("train", "--task", "classify", "train.csv", *plain).returncode == 0
    longer = regard("resume", "runs/classify", "--set", "train.epochs=5")
    assert longer.returncode == 0, longer.stderr
    assert tomllib.loads(Path("runs/classify/recipe.toml").read_text())["train"]["epochs"] == 5
    whole = [*plain, "--set", "train.epochs=5", "--name", "whole"]
    assert regard("train", "--task", "classify", "train.csv", *whole).returncode == 0
    weights = [package.load(f"runs/{name}").model.state_dict() for name in ("classify", "whole")]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("model.width=9", "only keys of [train]"),
        ("train.seed=7", "depend on it"),
        ("train.epoch=9", "did you mean 'train.epochs'"),
    ],
)
def test_changes_that_cannot_be_made(
    change: str, told: str, classifier: str, regard: Regard
) -> None:
    before = Path(classifier, "recipe.toml").read_text()
    done = regard("resume", classifier, "--set", change)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert Path(classifier, "recipe.toml").read_text() == before
    updates = regard("resume", classifier, "--set", "train.updates=70")
    assert updates.returncode == 0, updates.stderr
