"""Evaluation: sums over all items in order, with the state carried."""

import math

import pytest
import torch
from torch import Tensor

from regard.core.errors import UserError
from regard.train.evaluate import Sums, evaluate, on_device
from tests.train.tiny import Apart, NextToken, Regress, Rows, Stream, recurrent


def test_perplexity_is_over_all_tokens_and_not_a_mean_of_batches() -> None:
    model = recurrent().eval()
    parts = [Stream(batches=1, rows=2, length=n).batch(0, 0) for n in (3, 9)]
    task = NextToken()
    sums = evaluate(model, task, Rows(tuple(parts)))
    carry, total = None, 0.0
    with torch.no_grad():
        for part in parts:
            loss = task.loss(model, part, carry)
            carry, total = loss.carry, total + loss.total.item()
    assert sums.items == 24
    assert sums.perplexity == pytest.approx(math.exp(total / 24), rel=1e-6)
    assert set(sums.metrics()) == {"loss", "perplexity", "right"}


def test_one_long_stream_cut_into_batches_gives_what_it_gives_whole() -> None:
    model = recurrent()
    batch = Stream(batches=1, rows=3, length=12).batch(0, 0)
    cut = [{name: each[:, i : i + 4] for name, each in batch.items()} for i in (0, 4, 8)]
    whole = evaluate(model, NextToken(), Rows((batch,)))
    pieces = evaluate(model, NextToken(), Rows(tuple(cut)))
    assert pieces.total == pytest.approx(whole.total, rel=1e-6)
    assert pieces.counts == whole.counts


def test_nothing_is_carried_into_a_batch_that_begins_anew() -> None:
    model, apart = recurrent(), Apart()
    each = [Rows((apart.batch(0, index),)) for index in range(len(apart))]
    alone = sum(evaluate(model, NextToken(), one).total for one in each)
    assert evaluate(model, NextToken(), apart).total == pytest.approx(alone, rel=1e-6)
    assert evaluate(model, NextToken(), Stream()).total != pytest.approx(alone, rel=1e-6)


def test_evaluating_changes_nothing() -> None:
    model = recurrent()
    model.lstm.eval()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    state = torch.get_rng_state()
    evaluate(model, NextToken(), Stream())
    assert model.training
    assert not model.lstm.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_nothing_to_evaluate_on_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to evaluate on: 0 batches"):
        evaluate(torch.nn.Linear(3, 2), Regress(), Rows(()))


def test_a_perplexity_beyond_all_floats_is_infinite() -> None:
    assert Sums(total=800.0, items=1).perplexity == math.inf


@pytest.mark.parametrize(
    ("device", "pinned", "background"),
    [("cuda", True, True), ("cuda", False, False), ("mps", True, False), ("cpu", True, False)],
)
def test_batches_are_copied_in_the_background_to_cuda_from_pinned_memory_only(
    device: str, pinned: bool, background: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[tuple[torch.device, bool]] = []

    def to(tensor: Tensor, place: torch.device, *, non_blocking: bool) -> Tensor:
        copies.append((place, non_blocking))
        return tensor

    monkeypatch.setattr(Tensor, "to", to)
    monkeypatch.setattr(Tensor, "is_pinned", lambda _: pinned)
    on_device({"tokens": torch.ones(2)}, torch.device(device))
    assert copies == [(torch.device(device), background)]
