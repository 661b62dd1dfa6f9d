"""Stories: what is read, what is lost and counted, and a tiny reader that answers and is drawn."""

import json
import logging
import random
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import app
from regard.core.errors import UserError
from regard.core.inputs import Question
from regard.data.text.stories import (
    Story,
    StoryBatches,
    encode_stories,
    read_stories,
    split_story,
    story_files,
)
from regard.data.text.tokeniser import Tokeniser, train_tokeniser
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create, load

NAMES, PLACES = ("mary", "john", "ann"), ("garden", "office", "hall")

RECIPE = """
task = "stories"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "babi/qa{task}_*_train.txt"
test = "babi/qa{task}_*_test.txt"
task = "*"
memory = 6
noise = 0.1
linear_epochs = 1
[model]
kind = "memn2n"
width = 16
hops = 2
copies = 2
[train]
epochs = 40
optimiser = { name = "sgd", lr = 0.3 }
clip = 1.0
log_every = 50
evaluate_every = 100
save_every = 100
"""


def written(seed: int, count: int) -> str:
    """Stories in which people move, and where each of them is last."""
    draw, lines = random.Random(seed), []
    for _ in range(count):
        places = {}
        for number in range(1, 4):
            name, place = draw.choice(NAMES), draw.choice(PLACES)
            places[name] = (place, number)
            lines.append(f"{number} {name.title()} went to the {place}.")
        name = draw.choice(sorted(places))
        lines.append(f"4 Where is {name.title()}? \t{places[name][0]}\t{places[name][1]}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stories")
    (folder / "babi").mkdir()
    for task in (1, 2):
        (folder / f"babi/qa{task}_where_train.txt").write_text(written(task, 150))
        (folder / f"babi/qa{task}_where_test.txt").write_text(written(task + 10, 40))
    return folder


@pytest.fixture(scope="module")
def run(place: Path) -> Run:
    made = create(parse_recipe(RECIPE, "tiny"), place / "run", place, "cpu")
    made.train()
    return load(place / "run", "cpu")


def tokens() -> Tokeniser:
    words = " ".join((*NAMES, *PLACES, "went to the where is"))
    return train_tokeniser("word", [words], None, 1)


def test_a_tiny_reader_answers(run: Run) -> None:
    figures = run.evaluate("test")
    assert figures["error"] < 15
    assert figures["failed"] <= 2
    mean = (figures["error_qa1"] + figures["error_qa2"]) / 2
    assert figures["error"] == pytest.approx(mean)
    (answer,) = run.predict(["Where is Ann?\tAnn went to the hall. John went to the office."])
    assert answer.fields["answer"] == "hall"
    assert sum(each.probability for each in answer.choices) <= 1.001


def test_hops_over_facts_are_drawn(run: Run, place: Path) -> None:
    line = "Where is Ann?\tAnn went to the hall. John went to the office. Ann went to the garden."
    (payload,) = run.look(line)
    assert list(payload.queries) == ["hop 1", "hop 2"]
    assert payload.keys[:2] == ("(empty)", "Ann went to the hall.")
    assert payload.weights.shape[-2:] == (2, 4)
    for name in ("hops.png", "hops.svg", "hops.html"):
        done = CliRunner().invoke(app, ["look", str(place / "run"), line, "-o", str(place / name)])
        assert done.exit_code == 0, done.output
        assert (place / name).stat().st_size > 1000


def test_questions_of_a_file_are_answered(run: Run, place: Path) -> None:
    path = place / "babi/qa1_where_test.txt"
    done = CliRunner().invoke(app, ["predict", str(place / "run"), str(path), "--json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 40
    right = [
        row["answer"] == each.answer for row, each in zip(rows, read_stories(path), strict=True)
    ]
    assert sum(right) > 30


def test_what_is_lost_is_counted(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    story = "Ann went to the garden. " * 7 + "Ann went to the hall. Zoe flew to the moon."
    with caplog.at_level(logging.WARNING):
        (answer,) = run.predict([f"Where is Ann?\t{story}"])
    assert answer.fields["answer"] in PLACES
    assert "6 facts dropped, the oldest of stories with more than 3" in caplog.text
    assert "3 words are not in the vocabulary" in caplog.text
    held = encode_stories([Story("Where is Ann?", ("Ann went to the hall",), "attic")], tokens(), 6)
    assert (held.unseen, held.dropped, held.unknown) == (1, 0, 0)


def test_an_answer_never_seen_is_an_error_and_no_target(run: Run) -> None:
    task = run.task
    held = encode_stories([Story("Where is Ann?", ("Ann slept",), "attic")], task.tokeniser, 6)
    with torch.no_grad():
        loss = task.loss(run.model, held.gather(torch.tensor([0])), None)
    assert (loss.items, loss.counts["error"], float(loss.total)) == (1, 100.0, 0.0)


BAD = {
    "no fact": ("1 Where is Ann?\thall\t1\n", r"qa3_bad_train.txt:1: .* has no fact before it"),
    "no answer": ("1 Ann slept.\n2 Where is Ann?\t\t1\n", "has no answer"),
    "no questions": ("1 Ann slept.\n", "there are no questions in it"),
    "no numbers": ("Ann slept.\n", "expected a number and a sentence"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named(case: str, tmp_path: Path, as_users_run_it: None) -> None:
    text, message = BAD[case]
    (tmp_path / "babi").mkdir()
    (tmp_path / "babi/qa3_bad_train.txt").write_text(text)
    recipe = parse_recipe(RECIPE, "tiny", ["data.task=3", "data.test="])
    with pytest.raises(UserError, match=message):
        create(recipe, tmp_path / "run", tmp_path, "cpu")


def test_missing_files_and_empty_inputs_are_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such files.*come from: elsewhere"):
        story_files(tmp_path, "qa*_train.txt", "elsewhere")
    with pytest.raises(UserError, match="has no story: give at least one sentence"):
        run.predict([Question("Where is Ann?", " ")])
    with pytest.raises(UserError, match="the question is empty"):
        run.predict([Question("?", "Ann slept.")])
    with pytest.raises(UserError, match="expected a question and its story"):
        run.predict(["Where is Ann?"])


def test_facts_are_sentences_or_lines() -> None:
    assert split_story("Ann slept. Bob\nran!  Eve sat") == ("Ann slept.", "Bob", "ran!", "Eve sat")
    assert split_story(" \n .") == ()


def test_noise_keeps_the_order_of_facts_and_every_age_possible() -> None:
    facts = tuple(f"{name} went to the {p}" for name in NAMES for p in PLACES) * 2  # 18 facts
    stories = [Story("where is mary", facts[:count], "hall") for count in (18, 3, 1)]
    held = encode_stories(stories, tokens(), 18)
    batches = StoryBatches(
        held, batch=3, seed=0, by_length=False, noise=0.1, linear_epochs=2, slots=20
    )
    seen = set()
    for epoch in range(30):
        batch = batches.batch(epoch, 0)
        assert torch.equal(batch["ages"], batches.batch(epoch, 0)["ages"])
        assert bool(batch["linear"].all()) == (epoch < 2)
        for ages, count in zip(batch["ages"], batch["counts"].tolist(), strict=True):
            real = ages[:count]
            assert (real.diff() < 0).all()
            assert real[-1] >= 1
            assert not ages[count:].any()
            assert real.max() <= count + -(-count // 10)
            seen.add(int(real.max()) - count)
    assert seen == {0, 1, 2}
