"""Classification: from files to figures, and what is wrong with files."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.core.config import parse
from regard.core.errors import UserError
from regard.core.inputs import Document, Pair
from regard.core.protocols import Batch, Carry
from regard.outputs.classes import Classes
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create, load
from regard.tasks.classification_data import Examples, pieces
from regard.tasks.classify import Classification

RECIPE = """
task = "classify"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "train.txt"
validation = "dev.txt"
test = "dev.txt"
[model]
kind = "attention_pool"
width = 8
hidden = 6
[train]
epochs = 12
optimiser = { name = "adam", lr = 3e-2 }
log_every = 1
"""

GOOD, BAD = ("fine good great nice", "bad poor awful dull")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with reviews that are easily told apart."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    rows = []
    for number in range(40):
        good, bad = (side.split()[number % 4] for side in (GOOD, BAD))
        more = "the film was " * (1 + number % 3)
        rows += [f"good {more}{good}", f"bad {more}{bad}"]
    (tmp_path / "train.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "dev.txt").write_text("\n".join(rows[:20]) + "\n")
    return tmp_path


def opened(place: Path, **data: object) -> Classification:
    given = {"train": "train.txt", "validation": "dev.txt", **data}
    return Classification.open(parse(Examples, given), place)


def trained(place: Path, *changes: str) -> Run:
    run = create(parse_recipe(RECIPE, "tiny", changes), place / "run", place, "cpu")
    run.train()
    return run


@pytest.mark.parametrize("kind", ["attention_pool", "han", "text_cnn", "text_transformer"])
def test_a_classifier_is_trained_measured_saved_and_used(kind: str, place: Path) -> None:
    more = {"text_cnn": "filters=8", "text_transformer": "hidden=6, heads=2"}.get(kind, "hidden=6")
    run = trained(place, f"model={{kind='{kind}', width=8, {more}}}")
    figures = run.evaluate("test")
    assert figures["accuracy"] == figures["micro_f1"] == 1.0
    again = load(place / "run", "cpu")
    assert again.evaluate("test") == figures
    answers = again.predict(["the film was awful", "great", ""])
    assert [each.fields["label"] for each in answers[:2]] == ["bad", "good"]
    likely = answers[0].fields["probabilities"]
    assert isinstance(likely, dict)
    assert sum(likely.values()) == pytest.approx(1.0, abs=1e-5)
    assert again.predict(["great"])[0].fields == answers[1].fields


def test_a_bag_of_ngrams_trains_with_sparse_gradients(place: Path) -> None:
    run = trained(
        place,
        "model={kind='bag_of_ngrams', width=8, buckets=100}",
        "train.optimiser={name='adagrad', lr=0.5}",
    )
    assert run.evaluate("test")["accuracy"] == 1.0


def test_what_a_document_looks_like_to_people(place: Path) -> None:
    run = trained(place, "model.kind=han", 'data.sentences="punctuation"', 'data.words="plain"')
    words, sentences = run.look("The film was dull. It was great!")
    assert words.keys.labels == ("The", "film", "was", "dull", ".", "It", "was", "great", "!")
    assert (
        words.queries.labels == sentences.keys.labels == ("The film was dull .", "It was great !")
    )
    assert sentences.queries[0].split()[0] in ("good", "bad")
    assert words.weights.sum(2)[0].tolist() == pytest.approx([1.0, 1.0])
    assert words.kind == sentences.kind == "pool"
    words, sentences = run.look("It was great!")
    assert words.keys.labels == ("It", "was", "great", "!")
    assert words.queries.labels == sentences.keys.labels == ("It was great !",)


def test_pairs_are_read_from_their_columns(place: Path) -> None:
    (place / "pairs.tsv").write_text("a b\tc\tyes\nd\te f\tno\n")
    task = opened(place, train="pairs.tsv", validation="pairs.tsv", text=[1, 2], label=3)
    batch = task.evaluation("validation").batch(0, 0)
    assert sorted(batch["lengths"].tolist()) == [4, 4]
    assert batch["parts"].max() == 1
    assert task.parse("a\tb", "x") == Pair("a", "b")
    with pytest.raises(UserError, match="stdin:3: expected a pair of texts, separated by a tab"):
        task.parse("a", "stdin:3")


def test_batches_hold_little_padding(place: Path) -> None:
    rows = [f"{n % 2} " + "word " * (1 + (n * 7) % 60) for n in range(800)]
    (place / "long.txt").write_text("\n".join(rows))
    assert opened(place, train="long.txt", batch=16).batches().padding_fraction(0) < 0.15


def test_a_share_of_the_training_examples_is_kept_for_validation(place: Path) -> None:
    task = opened(place, validation=0.25, limit=30)
    assert len(task.numbers("train").texts) == 30
    assert len(task.numbers("validation").texts) == 20
    again = opened(place, validation=0.25, limit=30)
    assert torch.equal(task.numbers("train").classes, again.numbers("train").classes)
    other = opened(place, validation=0.25, limit=30, seed=1)
    assert not torch.equal(task.numbers("train").classes, other.numbers("train").classes)


class Even(nn.Module):
    """All classes are as probable."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(2))

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        return Classes(self.logits.expand(len(batch["tokens"]), 2))


def test_class_weights_count_in_training_only(place: Path) -> None:
    (place / "train.txt").write_text("a x\na y\na z\nb w\n")
    model = Even()
    task = opened(place, class_weights="balanced")
    assert task.weights is not None
    assert task.weights.tolist() == pytest.approx([4 / 6, 4 / 2])
    batch = task.batches().batch(0, 0)
    task.loss(model.train(), batch, None).total.backward()
    assert model.logits.grad is not None
    assert model.logits.grad.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    plain = task.loss(model.eval(), batch, None)
    assert plain.total.item() == pytest.approx(4 * torch.tensor(2.0).log().item())
    chosen = opened(place, class_weights={"a": 1.0, "b": 5.0})
    assert chosen.weights is not None
    assert chosen.weights.tolist() == [1.0, 5.0]
    with pytest.raises(UserError, match="class_weights are for a; the classes are a, b"):
        opened(place, class_weights={"a": 1.0}).weights  # noqa: B018


def test_word_vectors_begin_the_table(place: Path) -> None:
    (place / "v.txt").write_text("great 1 2 3 4 5 6 7 8\nFILM 9 9 9 9 9 9 9 9\n")
    run = create(parse_recipe(RECIPE, "t", ["data.vectors=v.txt"]), place / "run", place, "cpu")
    assert isinstance(run.task, Classification)
    (number,) = run.task.tokeniser.encode("great")
    table = run.model.state_dict()["words.table.weight"]
    assert table[number].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert run.task.initialise(run.model) == ["vectors: v.txt has 1 of 15 words"]


def test_a_class_that_only_the_kept_share_has_is_known(place: Path) -> None:
    with (place / "train.txt").open("a") as file:
        file.write("rare once\n")
    for seed in range(4):
        task = opened(place, validation=0.5, seed=seed)
        assert task.labels == ("bad", "good", "rare")
        task.evaluation("validation")


def test_figures_over_batches_are_those_of_the_confusion(place: Path) -> None:
    run = create(
        parse_recipe(RECIPE, "tiny", ["data.evaluate_batch=7"]), place / "run", place, "cpu"
    )
    assert isinstance(run.task, Classification)
    figures, counted = run.evaluate("test"), run.task.confusion(run.model, "test")
    assert figures["macro_f1"] == pytest.approx(counted.macro_f1)
    assert figures["micro_f1"] == pytest.approx(counted.accuracy) == figures["accuracy"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("data.test=none.txt", "no such file"),
        ("data.vectors=none.txt", "no such file"),
        ("train.monitor=foo", "unknown metric 'foo'"),
    ],
)
def test_what_would_fail_later_fails_before_there_is_a_run(
    change: str, said: str, place: Path
) -> None:
    with pytest.raises(UserError, match=said):
        trained(place, change)
    assert not (place / "run").exists()
    trained(place, "train.monitor=macro_f1", "train.better=higher", "train.epochs=1")


def test_the_words_of_a_source_in_lower_case_are_looked_up_so(place: Path) -> None:
    known = opened(place)
    lower = replace(known, source=known.tokeniser, source_lowercase=True)
    for task, capital in (
        (lower, 0),
        (replace(lower, source_lowercase=False), known.tokeniser.unk),
    ):
        batch = task.numbers_of([("The FILM was",)]).gather(torch.tensor([0]))
        first = batch["source_tokens"][0, 0].item()
        assert first == (capital or known.tokeniser.encode("the")[0])


def test_where_files_were_texts_a_file_is_a_text(place: Path) -> None:
    for label, text in (("good", "so\ngood"), ("bad", "so\nbad")):
        (place / "films" / label).mkdir(parents=True)
        (place / "films" / label / "1.txt").write_text(text + "\n")
    task = opened(place, train="films", validation="films")
    assert task.inputs(str(place / "films" / "bad" / "1.txt")) == [Document("so\nbad")]
    assert task.inputs(str(place / "films")) == [Document("so\nbad"), Document("so\ngood")]
    by_line = opened(place, sentences="lines")
    assert by_line.inputs(str(place / "films" / "bad" / "1.txt")) == [Document("so\nbad")]


def test_empty_texts_are_not_learnt_from_and_are_said(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "train.txt").write_text("good a\nbad \nbad b\n")
    with caplog.at_level(logging.WARNING):
        assert len(opened(place).numbers("train").texts) == 2
    assert f"{place / 'train.txt'}:2: an empty text" in caplog.text


@pytest.mark.usefixtures("as_users_run_it")
def test_labels_that_training_had_not_are_said_with_their_line(place: Path) -> None:
    (place / "dev.txt").write_text("good a\ngoood b\n")
    with pytest.raises(UserError, match=r"dev\.txt:2: the label 'goood' is not.*mean 'good'"):
        opened(place).evaluation("validation")


FILES = {
    "one label only": ("good a\ngood b\n", {}, "all labels are 'good'; two are needed"),
    "no texts": ("good \nbad \n", {}, "there is no text to train a tokeniser on"),
    "a share of all": ("good a\nbad b\n", {"validation": 1.5}, "a share between 0 and 1"),
    "both kinds of batch": (
        "good a\nbad b\n",
        {"batch": 2, "tokens_per_batch": 9},
        "give either batch or tokens_per_batch",
    ),
    "characters of bytes": ("", {"characters": True, "tokeniser": "byte"}, "are for tokeniser="),
    "a pair in sentences": (
        "",
        {"text": ["a", "b"], "sentences": "punctuation"},
        "a pair of texts is not split",
    ),
    "stdin": ("", {"test": "-"}, "stdin can be read only once"),
}


@pytest.mark.parametrize("case", FILES)
@pytest.mark.usefixtures("as_users_run_it")
def test_what_cannot_be_is_refused(case: str, place: Path) -> None:
    text, data, message = FILES[case]
    (place / "train.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        opened(place, **data).batches()


@pytest.mark.usefixtures("as_users_run_it")
def test_a_run_without_its_classes_is_refused(place: Path) -> None:
    trained(place)
    (place / "run" / "digests.json").unlink()
    (place / "run" / "labels.json").write_text("[")
    with pytest.raises(UserError, match=r"labels\.json: "):
        load(place / "run")
    (place / "run" / "labels.json").write_text(json.dumps(["bad", "good"]))
    load(place / "run")


def test_a_file_that_changed_is_read_again(place: Path) -> None:
    assert len(opened(place).numbers("train").texts) == 80
    (place / "train.txt").write_text("good a\nbad b\n")
    assert len(opened(place).numbers("train").texts) == 2


@pytest.mark.usefixtures("as_users_run_it")
def test_fields_that_no_recipe_names_are_not_guessed(place: Path) -> None:
    (place / "new.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(UserError, match=r"new\.jsonl: .*names no fields, so its texts are lines"):
        opened(place).inputs(str(place / "new.jsonl"))


def test_a_text_that_is_cut_has_labels_for_what_is_read(place: Path) -> None:
    run = trained(
        place,
        "model.kind=han",
        'data.sentences="punctuation"',
        "data.max_length=4",
        "train.epochs=1",
    )
    words, sentences = run.look("the film . was great . and more")
    assert words.keys.labels == ("the", "film", ".", "was")
    assert sentences.keys.labels == ("the film .", "was great .")


def test_pieces_of_a_text() -> None:
    lines = Examples(train="a", sentences="lines", lowercase=True)
    assert pieces(["One\n\nTwo three"], lines) == [["one"], ["two", "three"]]
    marks = Examples(train="a", sentences="punctuation")
    assert pieces(["so . b\nc"], marks) == [["so", "."], ["b"], ["c"]]
    assert pieces(["a", "b c"], Examples(train="a", text=(1, 2))) == [["a"], ["b", "c"]]
