"""regard recipe show, new and keys, and regard train --task, as people type them."""

import json
import tomllib
from pathlib import Path

import pytest

from regard.runs.keys import keys_in, reference, tables_of_recipes
from regard.runs.recipe import parse_recipe, shipped_recipes
from tests.cli.command import Regard

pytestmark = pytest.mark.usefixtures("as_users_run_it")

GOOD, BAD = ("a fine warm film", "what a joy to see"), ("a dull cold film", "what a waste of time")


@pytest.fixture
def reviews(place: Path) -> Path:
    rows = [f"{number},{text},pos" for number in range(12) for text in GOOD]
    rows += [f"{number},{text},neg" for number in range(12) for text in BAD]
    path = place / "train.csv"
    path.write_text("id,review,sentiment\n" + "\n".join(rows) + "\n")
    return path


def test_show_prints_a_recipe_to_copy(regard: Regard) -> None:
    assert regard("recipe", "show", "dates").stdout == shipped_recipes()["dates"]
    names = [line.split()[0] for line in regard("recipe", "show").stdout.splitlines()]
    assert names == list(shipped_recipes())
    wrong = regard("recipe", "show", "date")
    assert (wrong.returncode, "did you mean 'dates'" in wrong.stderr) == (2, True)


def test_every_key_of_every_table_has_a_type_and_a_meaning() -> None:
    keys = [key for table in tables_of_recipes() for key in keys_in(table)]
    assert len(keys) > 500
    without = [key.path for key in keys if not key.meaning.strip().split(") ")[-1] or not key.type]
    assert without == [], "add a docstring below the field"


def test_keys_are_those_of_the_configs(regard: Regard) -> None:
    shown = regard("recipe", "keys", "model.gpt").stdout
    assert 'model.position   "learned" | "sinusoidal" | "rotary"   (default "learned")' in shown
    assert regard("recipe", "keys", "gpt").stdout == shown
    told = [
        json.loads(line)
        for line in regard("recipe", "keys", "train", "--json").stdout.split("\n")[:-1]
    ]
    rate = next(each for each in told if each["path"] == "train.optimiser.lr")
    assert rate["type"] == "number > 0"
    assert "model.gpt" in regard("recipe", "keys").stdout
    assert regard("recipe", "keys", "model.gtp").stderr.count("\n") == 1
    assert regard("recipe", "keys", "--markdown").stdout == reference()


def test_a_recipe_is_written_from_a_look_at_a_file(reviews: Path, regard: Regard) -> None:
    done = regard("recipe", "new", "--task", "classify", "train.csv", "-o", "mine.toml")
    assert (done.returncode, done.stderr) == (0, "")
    text = Path("mine.toml").read_text()
    assert "48 examples (csv); classes: pos 24, neg 24" in text
    data = tomllib.loads(text)["data"]
    assert (data["text"], data["label"], data["train"]) == ("review", "sentiment", "train.csv")
    again = regard("recipe", "new", "--task", "classify", "train.csv", "-o", "mine.toml")
    assert (again.returncode, "already" in again.stderr) == (2, True)


def test_a_model_is_trained_without_a_recipe(reviews: Path, regard: Regard) -> None:
    done = regard("train", "--task", "classify", "train.csv", "--test", "train.csv")
    assert done.returncode == 0, done.stderr
    measured = json.loads(Path("runs/classify/metrics.json").read_text())
    assert measured["test"]["accuracy"] == 1.0
    predicted = regard("predict", "runs/classify", text="a fine warm film\na dull cold film\n")
    assert [line.split("\t")[0] for line in predicted.stdout.splitlines()] == ["pos", "neg"]


@pytest.mark.parametrize(
    ("task", "files", "wanted"),
    [
        ("tag", {"a.conll": "EU B-ORG\nrejects O\n\nParis B-LOC\n\n"}, {"scheme": "iob2"}),
        ("tag", {"a.conll": "EU I-ORG\nrejects O\n\nParis I-LOC\n\n"}, {"scheme": "iob1"}),
        ("tag", {"a.conll": "EU S-ORG\nrejects O\n\n"}, {"scheme": "bioes"}),
        ("tag", {"a.conll": "EU NNP\nrejects VBZ\n\n"}, {"scheme": "none"}),
        ("translate", {"a.de": "ja\nnein\n", "a.en": "yes\nno\n"}, {"validation": 0.05}),
        ("translate", {"a.tsv": "ja\tyes\nnein\tno\n"}, {"fields": [1, 2]}),
        ("translate", {"a.jsonl": '{"de": "ja", "en": "yes"}\n'}, {"fields": ["de", "en"]}),
        ("language_model", {"a.txt": "to be or not\n" * 9}, {"tokeniser": "char"}),
        ("classify", {"a.tsv": "1\tgood\n0\tbad day\n1\tfine\n"}, {"text": 2, "label": 1}),
        ("classify", {"a.txt": "__label__a x y\n__label__b z\n"}, {"words": "plain"}),
        (
            "classify",
            {"a.jsonl": '{"y": 1, "q": "so it is"}\n{"y": 0, "q": "no"}\n'},
            {"text": "q"},
        ),
        (
            "classify",
            {"a.csv": "premise,hypothesis,label\na b,c,yes\nd,e,no\n"},
            {"text": ["premise", "hypothesis"]},
        ),
    ],
)
def test_what_is_found_in_files(
    task: str, files: dict[str, str], wanted: dict[str, object], place: Path, regard: Regard
) -> None:
    for name, text in files.items():
        (place / name).write_text(text)
    done = regard("recipe", "new", "--task", task, *files)
    assert (done.returncode, done.stderr) == (0, "")
    parse_recipe(done.stdout, "new")
    data = tomllib.loads(done.stdout)["data"]
    assert {key: data[key] for key in wanted} == wanted


def test_columns_can_be_named_where_none_is_found(place: Path, regard: Regard) -> None:
    (place / "a.csv").write_text("p,q\none text,other text\nno text,more text\n")
    guess = regard("train", "--task", "classify", "a.csv")
    assert (guess.returncode, guess.stderr.count("\n")) == (2, 1)
    assert "--set data.label=COLUMN" in guess.stderr
    named = regard("recipe", "new", "--task", "classify", "a.csv", "--set", "data.label=q")
    data = tomllib.loads(named.stdout)["data"]
    assert (data["text"], data["label"]) == ("p", "q")
    wrong = regard("recipe", "new", "--task", "classify", "a.csv", "--set", "data.label=r")
    assert (wrong.returncode, "unknown column 'r'" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "--task", "classfy", "a.txt"], "did you mean 'classify'"),
        (["train", "--task", "classify", "none.csv"], "none.csv"),
        (["train", "--task", "classify", "a.txt", "b.txt"], "one training file, not 2"),
        (["train", "--task", "translate", "a.txt"], "two files"),
        (["train", "--task", "answer", "a.txt"], "regard recipe show"),
        (["train", "a.toml", "b.toml"], "one recipe"),
        (["train", "dates", "--test", "a.txt"], "--task"),
        (["train", "--task", "tag", "a.txt"], "a.txt:2"),
    ],
)
def test_refusals_are_one_line_and_leave_no_folder(
    words: list[str], told: str, place: Path, regard: Regard
) -> None:
    (place / "a.txt").write_text("one\ntwo words\n")
    done = regard(*words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert told in done.stderr
    assert not (place / "runs").exists()
