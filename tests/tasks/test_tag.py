"""Tagging: from columns to F1, and what is wrong with columns."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from regard.core.config import parse
from regard.core.errors import UserError
from regard.data.text.conll import may_follow
from regard.runs.recipe import parse_recipe
from regard.runs.run import create, load
from regard.tasks.conll_metrics import Counted
from regard.tasks.tag import Columns, Tagging

RECIPE = """
task = "tag"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "train.txt"
validation = "train.txt"
test = "train.txt"
batch = 8
[model]
kind = "bilstm_crf"
width = 8
hidden = 8
dropout = 0.0
[train]
epochs = 8
optimiser = { name = "adam", lr = 2e-2 }
monitor = "f1"
better = "higher"
weights = "best"
"""

SENTENCES = (
    "John B-PER\nSmith I-PER\nsaw O\nParis B-LOC\n",
    "In O\nNew B-LOC\nYork I-LOC\n",
    "Mary B-PER\nsleeps O\n",
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "train.txt").write_text("\n".join(SENTENCES * 16))
    return tmp_path


def opened(place: Path, **data: object) -> Tagging:
    given = {"train": "train.txt", "validation": "train.txt", **data}
    return Tagging.open(parse(Columns, given), place)


@pytest.mark.parametrize("crf", ["true", "false"])
def test_a_tagger_is_trained_measured_saved_and_used(crf: str, place: Path) -> None:
    run = create(parse_recipe(RECIPE, "tiny", [f"model.crf={crf}"]), place / "run", place, "cpu")
    run.train()
    figures = run.evaluate("test")
    assert figures["f1"] == pytest.approx(100.0)
    assert figures["accuracy"] == 1.0
    again = load(place / "run", "cpu")
    assert again.evaluate("test") == figures
    one, empty = again.predict(["John Smith saw Paris", ""])
    assert one.fields["tags"] == ["B-PER", "I-PER", "O", "B-LOC"], "as the file writes them"
    assert one.fields["chunks"] == [
        {"kind": "PER", "first": 0, "last": 1, "begin": 0, "end": 10, "text": "John Smith"},
        {"kind": "LOC", "first": 3, "last": 3, "begin": 15, "end": 20, "text": "Paris"},
    ]
    assert one.text.splitlines()[0] == "John\tB-PER"
    assert empty.fields["tags"] == []
    likely = one.fields["probabilities"]
    assert isinstance(likely, list)
    assert all(0.3 < each <= 1.0 for each in likely)
    assert isinstance(again.task, Tagging)
    counted, words = again.task.counts(again.model, "test")
    assert words.labels == ("O", "LOC", "PER")
    assert words.accuracy == 1.0
    assert counted.total.f1 == pytest.approx(1.0)
    assert set(counted.kinds) == {"LOC", "PER"}


def test_f1_over_batches_is_that_over_all_sentences(place: Path) -> None:
    run = create(
        parse_recipe(RECIPE, "tiny", ["data.evaluate_batch=5"]), place / "run", place, "cpu"
    )
    assert isinstance(run.task, Tagging)
    figures, (counted, words) = run.evaluate("test"), run.task.counts(run.model, "test")
    assert figures["f1"] == pytest.approx(100 * counted.total.f1)
    assert figures["precision"] == pytest.approx(100 * counted.total.precision)
    assert figures["accuracy"] == pytest.approx(counted.accuracy)
    mean = sum(each.f1 for each in counted.kinds.values()) / len(counted.kinds)
    assert figures["macro_f1"] == pytest.approx(100 * mean)
    assert f"{mean:.4f}" in counted.table()
    assert words.texts == counted.words


def test_tags_are_learnt_in_the_scheme_that_was_asked_for(place: Path) -> None:
    """All of it: a longer chunk than any of the training data may come."""
    every = ("O", *(f"{letter}-{kind}" for letter in "BEIS" for kind in ("LOC", "PER")))
    assert opened(place).labels == every
    assert opened(place, learn="iob1").labels == ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")


def test_parts_of_speech_are_no_chunks(place: Path) -> None:
    task = opened(place, scheme="none")
    assert task.labels[0] == "O"
    assert "B-PER" in task.labels
    half = {f"{what} O": 0.5 for what in ("right", "found", "there")}
    figures = task.metrics({"loss": 1.0, "accuracy": 0.5, **half})
    assert figures == {"loss": 1.0, "accuracy": 0.5, "macro_f1": 100 / len(task.labels)}
    assert isinstance(task.counted([["NN"]], [["NN"]]), Counted)


def test_words_are_looked_up_as_asked_and_spelled_as_written(place: Path) -> None:
    (place / "train.txt").write_text("Rev B-X\n1995 O\n")
    task = opened(place, lowercase=True, digits=True)
    batch = task.evaluation("validation").batch(0, 0)
    assert batch["tokens"][0].tolist() == task.tokeniser.encode("rev 0000")
    assert batch["characters"][0, 0, :4].tolist() == [259, ord("R") + 1, ord("e") + 1, ord("v") + 1]
    assert "characters" not in opened(place, characters=False).batches().batch(0, 0)


def test_a_share_of_the_sentences_is_kept_for_validation(place: Path) -> None:
    task = opened(place, validation=0.25)
    assert [len(task.numbers(split).texts) for split in ("train", "validation")] == [36, 12]
    waste = task.batches().padding_fraction(0)
    assert 0 <= waste < 1


def test_a_kind_that_only_the_kept_share_has_is_known(place: Path) -> None:
    for seed in range(4):
        with (place / "train.txt").open("a") as file:
            file.write("\nRome B-RARE\n")
        assert "RARE" in opened(place, validation=0.5, seed=seed).kinds


def test_a_limit_leaves_sentences_out_of_training_only(place: Path) -> None:
    task = opened(place, validation=0.25, limit=10)
    assert [len(task.numbers(split).texts) for split in ("train", "validation")] == [10, 12]


def test_rows_that_are_not_there_add_nothing_to_the_loss(place: Path) -> None:
    run = create(parse_recipe(RECIPE, "tiny"), place / "run", place, "cpu")
    batches = run.task.batches()
    whole = batches.batch(0, 0)
    loss = run.task.loss(run.model.eval(), whole, None)
    parts = [
        {name: rows[rank::3] for name, rows in batches.gather(numbers).items()}
        for numbers in [torch.cat([batches.numbers(0, 0), torch.tensor([-1])])]
        for rank in range(3)
    ]
    pieces = [run.task.loss(run.model, part, None) for part in parts]
    assert sum(each.items for each in pieces) == loss.items
    total = torch.stack([each.total for each in pieces]).sum()
    torch.testing.assert_close(total, loss.total, atol=1e-4, rtol=1e-5)


BROKEN = {
    "ragged lines": ("a O\nb x O\n", r"other\.txt:2: 3 columns where line 1 has 2"),
    "an I without its B": ("John O\nSmith I-PER\n", r"other\.txt:2: 'I-PER' .* no B-PER"),
    "a tag unseen in training": ("John B-ORG\n", r"other\.txt:1: the kind 'ORG' of 'John' is not"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.usefixtures("as_users_run_it")
def test_broken_columns_are_said_with_their_line(case: str, place: Path) -> None:
    text, message = BROKEN[case]
    (place / "other.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        opened(place, validation="other.txt").evaluation("validation")


def test_a_crf_never_decodes_what_the_scheme_forbids(place: Path) -> None:
    run = create(parse_recipe(RECIPE, "tiny"), place / "run", place, "cpu")
    torch.manual_seed(0)
    for each in run.model.parameters():
        torch.nn.init.normal_(each, std=2.0)  # nothing is learnt, so that all is likely
    assert isinstance(run.task, Tagging)
    texts = [["John", "New", "York", "Smith", "saw", "sleeps"][: n % 6 + 1] for n in range(60)]
    free = replace(run.task, data=run.task.data.model_copy(update={"scheme": "none"}))
    broken = sum(not legal(tags) for tags, _ in free.tags_of(run.model, texts))
    assert broken, "else this test shows nothing"
    assert all(legal(tags) for tags, _ in run.task.tags_of(run.model, texts))


def legal(tags: list[str]) -> bool:
    pairs = pairwise(("O", *tags, "O"))
    return all(may_follow(before, tag, "bioes") for before, tag in pairs)
