"""Training from Python: examples from lists, data frames and data sets."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset

import regard
from regard import UserError
from regard.look import Looks
from regard.runs.examples import write_examples
from regard.train.display import SilentDisplay

PAIRS = [("a fine warm film", "pos"), ("a dull cold film", "neg")] * 10
QUICK = {"train.epochs": 15, "train.optimiser.lr": 0.03, "model.hidden": 8, "model.dropout": 0.0}


class Frame:
    """What a data frame of pandas has."""

    columns = ("review", "stars")

    def to_dict(self, orient: str) -> list[dict[str, object]]:
        assert orient == "records"
        return [{"review": text, "stars": label} for text, label in PAIRS]


class Polars:
    """What a data frame of polars has."""

    def to_dicts(self) -> list[dict[str, object]]:
        return Frame().to_dict("records")


class Reviews(Dataset[tuple[str, str]]):
    def __len__(self) -> int:
        return len(PAIRS)

    def __getitem__(self, index: int) -> tuple[str, str]:
        return PAIRS[index]


@pytest.mark.parametrize(
    "data", [PAIRS, Frame(), Polars(), Reviews()], ids=lambda d: type(d).__name__
)
def test_a_classifier_is_trained_on_examples_in_memory(data: object, tmp_path: Path) -> None:
    run = regard.fit(
        "classify", data, folder=tmp_path / "run", changes=QUICK, display=SilentDisplay()
    )
    labels = [each.fields["label"] for each in run.predict(["a fine film", "a dull film"])]
    assert labels == ["pos", "neg"]
    again = regard.load(tmp_path / "run")  # the data are in the run
    assert again.evaluate("validation") == run.evaluate("validation")


def test_a_run_shows_itself(tmp_path: Path) -> None:
    run = regard.fit(
        "classify",
        PAIRS,
        test=PAIRS,
        folder=tmp_path / "run",
        changes={**QUICK, "train.log_every": 5},
        display=SilentDisplay(),
    )
    shown = run._repr_html_()
    assert "attention_pool" in shown
    assert "<polyline" in shown
    assert "accuracy" in shown
    looks = run.look("a fine film")
    assert isinstance(looks, Looks)
    assert tuple(looks[0].keys) == ("a", "fine", "film")
    assert looks._repr_html_().startswith("<iframe")
    result = run.audit(tests=["agreement"], examples=10)
    assert result.verdicts[0].test == "agreement"
    assert "agreement" in result._repr_html_()


def test_language_models_write(tmp_path: Path) -> None:
    small = {"train.updates": 2, "model.width": 16, "data.window": 8, "model.context": 8}
    run = regard.fit(
        "language_model",
        ["to be or not to be"] * 40,
        folder=tmp_path / "run",
        changes=small,
        display=SilentDisplay(),
    )
    text = run.generate_text("to", 5, seed=1)
    assert len(text) == 5
    assert text == run.generate_text("to", 5, seed=1)


def test_pairs_and_tags_and_files(tmp_path: Path) -> None:
    pairs = [("ja", "yes"), ("nein", "no")] * 10
    small = {"train.epochs": 1, "model.width": 16, "data.vocabulary": 300}
    run = regard.fit(
        "translate", pairs, folder=tmp_path / "a", changes=small, display=SilentDisplay()
    )
    assert len(run.translate(["ja", "nein"])) == 2
    tagged = [(["EU", "rejects"], ["B-ORG", "O"])] * 10
    small = {"train.epochs": 1, "model.hidden": 8}
    run = regard.fit("tag", tagged, folder=tmp_path / "b", changes=small, display=SilentDisplay())
    assert run.recipe.data.model_dump()["scheme"] == "iob2"
    (tmp_path / "a.csv").write_text("text,label\n" + "\n".join(map(",".join, PAIRS)))
    small = {"train.epochs": 1}
    run = regard.fit(
        "classify",
        tmp_path / "a.csv",
        folder=tmp_path / "c",
        changes=small,
        display=SilentDisplay(),
    )
    assert not (tmp_path / "c" / "data").exists()


@pytest.mark.parametrize(
    ("task", "data", "told"),
    [
        ("classify", [], "no examples"),
        ("classify", ["text without label"], "example 0: expected"),
        ("classify", [("a", "x"), ("b", object())], "example 1: a object"),
        ("classify", 3, "not a int"),
        ("clasify", PAIRS, "did you mean 'classify'"),
        ("tag", [(["a b"], ["O"])], "without whitespace"),
        ("tag", [(["a"], ["O", "O"])], "a tag for each word"),
        ("answer", PAIRS, "give files"),
    ],
)
def test_refusals_leave_no_folder(task: str, data: object, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told):
        regard.fit(task, data, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_is_not_overwritten_unless_it_is_requested(tmp_path: Path) -> None:
    quick = {"train.epochs": 1, "model.hidden": 8}
    for overwrite in (False, True):
        regard.fit(
            "classify",
            PAIRS,
            folder=tmp_path / "run",
            changes=quick,
            overwrite=overwrite,
            display=SilentDisplay(),
        )
    with pytest.raises(UserError, match="overwrite=True"):
        regard.fit("classify", PAIRS, folder=tmp_path / "run", changes=quick)


def test_numbers_of_other_libraries_become_plain(tmp_path: Path) -> None:
    examples: Sequence[object] = [
        {"text": "a", "label": torch.tensor(1)},
        {"text": "b", "label": 0.5},
    ]
    (path,) = write_examples(examples, "classify", tmp_path / "x")
    assert Path(path).read_text() == '{"text": "a", "label": 1}\n{"text": "b", "label": 0.5}\n'


def test_texts_with_several_labels_and_with_numbers(tmp_path: Path) -> None:
    several: list[tuple[str, object]] = [
        ("warm and long", ["good", "long"]),
        ("cold and long", ["long"]),
        ("warm", ["good"]),
        ("cold", []),
    ] * 8
    run = regard.fit(
        "classify", several, test=several, folder=tmp_path / "a", changes=QUICK,
        display=SilentDisplay(),
    )  # fmt: skip
    assert run.recipe.data.model_dump()["problem"] == "multi_label"
    assert run.evaluate("test")["micro_f1"] == 1.0
    labels = run.predict(["warm and long"])[0].fields["labels"]
    assert isinstance(labels, list)
    assert sorted(labels) == ["good", "long"]
    numbers = [(" ".join(["good"] * n + ["bad"] * (6 - n)), n / 6 + 0.01) for n in range(7)] * 4
    numbers += [(f"word{n} only", n / 7 + 0.005) for n in range(12)]
    run = regard.fit(
        "classify", numbers, test=numbers, folder=tmp_path / "b",
        changes={**QUICK, "train.epochs": 40}, display=SilentDisplay(),
    )  # fmt: skip
    assert run.recipe.data.model_dump()["problem"] == "regression"
    assert run.evaluate("test")["pearson"] > 0.8
