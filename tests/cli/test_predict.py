"""regard predict, report and look, as people type them, for classifiers and taggers."""

import json
from pathlib import Path

import pytest

from tests.cli.command import Regard
from tests.tasks.test_classify import RECIPE as CLASSIFY
from tests.tasks.test_tag import RECIPE as TAG
from tests.tasks.test_tag import SENTENCES

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture
def classifier(place: Path, regard: Regard) -> str:
    rows = [
        ("pos", 'a fine, "nice"\nfilm'),
        ("neg", "a dull film"),
        ("pos", "fine"),
        ("neg", "dull"),
    ]
    table = "".join(f'{label},"{text.replace(chr(34), chr(34) * 2)}"\n' for label, text in rows * 6)
    (place / "all.csv").write_text("label,text\n" + table)
    fields = 'text = "text"\nlabel = "label"\nwords = "plain"\n[model]'
    recipe = CLASSIFY.replace("train.txt", "all.csv").replace("dev.txt", "all.csv")
    (place / "mine.toml").write_text(recipe.replace("[model]", fields))
    done = regard("train", "mine.toml")
    assert done.returncode == 0, done.stderr
    assert "regard predict runs/mine < texts.txt" in done.stdout
    return "runs/mine"


def test_a_classifier_answers_stdin_and_files(classifier: str, place: Path, regard: Regard) -> None:
    done = regard("predict", classifier, text="fine film\n\na dull film\n")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [rows[0][0], rows[2][0]] == ["pos", "neg"]
    assert 0.5 <= float(rows[1][1]) <= 1.0
    as_json = regard("predict", classifier, "--json", "--chunk", "1", text="fine film\ndull\n")
    told = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert [each["number"] for each in told] == [1, 2]
    assert [each["label"] for each in told] == ["pos", "neg"]
    assert set(told[0]["probabilities"]) == {"neg", "pos"}
    assert sum(told[0]["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)
    latin = regard("predict", classifier, text=b"fine\ncaf\xe9\n")
    assert (latin.returncode, "stdin:2: byte 4" in latin.stderr) == (2, True)
    assert len(regard("predict", classifier, text="fine\rdull\n").stdout.splitlines()) == 1
    assert regard("predict", classifier, text="").stdout == ""
    (place / "new.csv").write_text('id,text\n7,"fine,\nreally"\n8,dull\n')
    (place / "new.txt").write_text("dull film\n")
    read = regard("predict", classifier, "new.csv", "new.txt")
    assert [line.split("\t")[0] for line in read.stdout.splitlines()] == ["pos", "neg", "neg"]


def test_a_report_has_a_row_for_each_class_and_a_picture(
    classifier: str, place: Path, regard: Regard
) -> None:
    done = regard("report", classifier, "-o", "confusion.png")
    assert done.stdout.splitlines()[0].split() == ["precision", "recall", "f1", "texts"]
    assert [line.split()[0] for line in done.stdout.splitlines()[1:5]] == [
        "neg",
        "pos",
        "macro",
        "micro",
    ]
    assert (place / "confusion.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["seen.png", "seen.html"])
def test_the_heat_of_a_text_is_drawn(
    name: str, classifier: str, place: Path, regard: Regard
) -> None:
    done = regard("look", classifier, "a fine film", "-o", name)
    assert (done.returncode, done.stdout) == (0, f"{name}: pool\n")
    assert (place / name).stat().st_size > 2000


def test_a_tagger_answers_in_columns_or_json(place: Path, regard: Regard) -> None:
    (place / "train.txt").write_text("\n".join(SENTENCES * 16))
    (place / "tagger.toml").write_text(TAG)
    assert regard("train", "tagger.toml").returncode == 0
    done = regard("predict", "runs/tagger", text="John Smith saw Paris\nMary sleeps\n")
    first, second = done.stdout.strip().split("\n\n")
    assert first.splitlines() == ["John\tB-PER", "Smith\tI-PER", "saw\tO", "Paris\tB-LOC"]
    assert second.splitlines()[0] == "Mary\tB-PER"
    told = json.loads(regard("predict", "runs/tagger", "--json", text="In New York\n").stdout)
    assert told["chunks"] == [
        {"kind": "LOC", "first": 1, "last": 2, "begin": 3, "end": 11, "text": "New York"}
    ]
    assert len(told["probabilities"]) == 3
    table = regard("report", "runs/tagger").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["precision", "LOC", "PER", "macro", "overall"]
    drawn = regard("report", "runs/tagger", "-o", "x.png")
    assert "x.png: " in drawn.stdout
    assert (place / "x.png").read_bytes().startswith(b"\x89PNG")
    (place / "new.conll").write_text("John x\nSmith x\n\nParis x\n")
    columns = regard("predict", "runs/tagger", "new.conll").stdout
    assert columns == "John\tB-PER\nSmith\tI-PER\n\nParis\tB-LOC\n\n"
    unseen = regard("look", "runs/tagger", "John sleeps")
    assert (unseen.returncode, "has no attention" in unseen.stderr) == (2, True)


def test_a_language_model_predicts_the_next_token(place: Path, regard: Regard) -> None:
    assert regard("train", "small.toml").returncode == 0
    (line,) = regard("predict", "runs/small", text="a\n").stdout.splitlines()
    assert len(line.split("\t")) == 5
    told = json.loads(regard("predict", "runs/small", "--json", text="a\n").stdout)
    shares = [each["p"] for each in told["next"]]
    assert shares == sorted(shares, reverse=True)
    assert line.startswith(json.dumps(told["next"][0]["token"]))
    refused = "regard: runs/small: task language_model does not support reports\n"
    assert regard("report", "runs/small").stderr == refused
    assert "only translators are compared" in regard("report", "runs/small", "runs/small").stderr


def test_files_that_are_wrong_are_said_with_their_line(
    classifier: str, place: Path, regard: Regard
) -> None:
    missing = regard("predict", classifier, "nowhere.txt")
    assert (missing.returncode, "nowhere.txt: no such file" in missing.stderr) == (2, True)
    (place / "torn.csv").write_text('text\n"a\n')
    assert "torn.csv:2: not CSV" in regard("predict", classifier, "torn.csv").stderr
    assert "chunk=0 must be" in regard("predict", classifier, "--chunk", "0").stderr
