"""Language modelling both ways: what batches hold, and what the loss is the mean of."""

from pathlib import Path

import pytest
import torch

from regard.core.errors import UserError
from regard.data import IGNORE
from regard.data.text.characters import character_ids
from regard.outputs.both_directions import previous_tokens
from regard.runs.recipe import parse_recipe
from regard.runs.run import create
from regard.tasks.bidirectional_lm import BidirectionalLM

RECIPE = """
task = "bidirectional_lm"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "text.txt"
batch = 2
window = 6
evaluate_batch = 2
predicted = 7
[model]
kind = "elmo"
width = 4
hidden = 6
character_width = 3
filters = [[1, 4], [2, 4]]
[train]
updates = 3
optimiser = { name = "adam", lr = 0.01 }
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("to be or not to be\nthat is the question\n" * 30)
    return tmp_path


def test_words_are_spelled_as_they_are_and_predicted_only_if_frequent(place: Path) -> None:
    run = create(parse_recipe(RECIPE, "tiny"), place / "run", place, "cpu")
    assert isinstance(run.task, BidirectionalLM)
    batch, words = run.task.batches().batch(0, 0), run.task.reads
    read = ["to", "be", "or", "not", "to", "be"]
    for word, number, characters in zip(
        read, batch["tokens"][0], batch["characters"][0], strict=True
    ):
        own = words.encode(word)[0]
        assert number == (own if own < 7 else words.unk)
        assert characters[characters > 0].tolist() == character_ids(word)
    assert batch["targets"].max() < 7
    assert words.unk in batch["tokens"][0].tolist()


def test_the_loss_is_the_mean_over_both_directions(place: Path) -> None:
    run = create(parse_recipe(RECIPE, "tiny"), place / "run", place, "cpu")
    batch = run.task.batches().batch(0, 0)
    run.model.eval()
    loss = run.task.loss(run.model, batch, None)
    output = run.model(batch)
    forth = output.forward.log_probability(batch["targets"]).sum()
    back = output.backward.log_probability(previous_tokens(batch["tokens"])).sum()
    assert loss.items == 2 * 6 + 2 * 5
    torch.testing.assert_close(loss.total, -(forth + back))
    assert (previous_tokens(batch["tokens"])[:, 0] == IGNORE).all()


def test_it_trains_and_measures(place: Path) -> None:
    run = create(parse_recipe(RECIPE, "tiny"), place / "run", place, "cpu")
    before = run.evaluate()["loss"]
    assert run.train().outcome == "finished"
    assert run.evaluate()["perplexity"] < torch.tensor(before).exp()


def test_a_text_that_is_not_in_words_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="reads words one after another"):
        parse_recipe(RECIPE, "tiny", ["data.tokeniser=char"])
