"""Luong's translator against a literal loop over the paper's equations."""

import pytest
import torch
from torch import Tensor

from regard.attention import WEIGHS, record
from regard.core.errors import UserError
from regard.models.translation.luong import Luong
from tests.models.recurrences import LENGTHS, SOURCES, V, climbed, read, stirred, texts

D = 6
SCORES = ("dot", "bilinear", "additive", "location")
"""The paper's: dot, general, concat, location."""


def built(**changes: object) -> Luong:
    config = Luong.Config(**{"width": D, "layers": 2, "reach": 1, **changes})
    model = Luong(config, V, SOURCES)
    stirred(model)
    return model


def scored(model: Luong, h: Tensor, states: list[Tensor]) -> Tensor:
    """Equation 8, and its location-based relative."""
    score = model.attend.score
    if model.config.score == "dot":
        return torch.stack([h @ each for each in states])
    if model.config.score == "bilinear":
        return torch.stack([h @ score.turn.weight.T @ each / len(h) ** 0.5 for each in states])
    if model.config.score == "additive":
        both = torch.cat((score.ask.weight, score.answer.weight), dim=1)  # W_a [h; h̄]
        each = [score.vector @ torch.tanh(both @ torch.cat((h, s))) for s in states]
        return torch.stack(each)
    return (score.point.weight @ h)[: len(states)]


def aligned(model: Luong, h: Tensor, states: list[Tensor], step: int) -> Tensor:
    """Global, or in a window around t or around the place that h predicts (section 3.2)."""
    scores, reach, count = scored(model, h, states), model.config.reach, len(states)
    if model.config.weigh == "softmax":
        return scores.softmax(0)
    if model.config.weigh == "local_m":
        place = torch.tensor(float(min(step, count - 1))).double()
    else:
        weigh = model.attend.weigh
        place = count * torch.sigmoid(weigh.point.weight[0] @ torch.tanh(weigh.turn.weight @ h))
    inside = [s for s in range(count) if abs(s - place) <= reach]
    weights = torch.zeros(count).double()
    if not inside:
        return weights
    weights[inside] = scores[inside].softmax(0)
    if model.config.weigh == "local_p":
        sigma = reach / 2
        bell = [torch.exp(-((s - place) ** 2) / (2 * sigma**2)) for s in range(count)]
        weights = weights * torch.stack(bell)
    return weights


def literal(model: Luong, source: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and weights of one sentence."""
    keys, states = read(model, source.flip(0) if model.config.reverse else source)
    attentional = torch.zeros(D).double()
    rows, looks = [], []
    for step, token in enumerate(tokens):
        fed = attentional if model.config.feeding else None
        states = climbed(model.decoder, model.words.embed.weight[token], fed, states)
        h = states[-1][0]
        alpha = aligned(model, h, keys, step)
        c = sum(a * key for a, key in zip(alpha, keys, strict=True))
        attentional = torch.tanh(model.join.weight @ torch.cat((c, h)))
        rows.append(model.words.output.weight @ attentional + model.words.bias)
        looks.append(alpha)
    return torch.stack(rows), torch.stack(looks)


def check(model: Luong) -> Tensor:
    """Logits and weights are the literal ones; gives the weights."""
    batch = texts()
    with record(model) as tape:
        logits = model(batch).logits()
    weights = tape.join("attend")
    assert weights.shape == (len(LENGTHS), 1, batch["tokens"].shape[1], max(LENGTHS))
    for row, length in enumerate(LENGTHS):
        want, looks = literal(model, batch["source"][row, :length], batch["tokens"][row])
        torch.testing.assert_close(logits[row], want)
        torch.testing.assert_close(weights[row, 0, :, :length], looks)
        assert (weights[row, 0, :, length:] == 0).all()
    return weights


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("weigh", ["softmax", "local_m", "local_p"])
@pytest.mark.parametrize("score", SCORES)
def test_it_is_the_equation(score: str, weigh: str, feeding: bool) -> None:
    weights = check(built(score=score, weigh=weigh, feeding=feeding))
    if weigh != "local_p":
        torch.testing.assert_close(weights.sum(3), torch.ones_like(weights[..., 0]))
    if weigh != "softmax":
        assert ((weights > 0).sum(3) <= 3).all(), "the window is one to either side"


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("way", ["bidirectional", "reverse"])
def test_it_is_the_equation_whatever_the_recurrence(
    feeding: bool, cell: str, layers: int, way: str
) -> None:
    check(built(feeding=feeding, cell=cell, layers=layers, **{way: True}))


@pytest.mark.parametrize("weigh", ["softmax", "coverage"])
def test_without_feeding_all_positions_look_at_once(weigh: str) -> None:
    """One call of Attend for the whole target, even where rows need those before them."""
    changes = {"score": weigh} if weigh == "coverage" else {"weigh": weigh}
    model, batch = built(feeding=False, **changes), texts()
    with record(model) as tape:
        model(batch)
    assert len(tape["attend"]) == 1


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("weigh", WEIGHS)
def test_every_weighing_serves(weigh: str, feeding: bool) -> None:
    model, batch = built(weigh=weigh, feeding=feeding), texts()
    logits = model(batch).logits()
    assert logits.isfinite().all()
    state = model.start(batch)
    for position, tokens in enumerate(batch["tokens"].unbind(1)):
        step, state = model.step(tokens, state)
        torch.testing.assert_close(step, logits[:, position])


def test_a_width_that_cannot_be_halved_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="width=5 is not divisible by directions=2"):
        built(width=5, bidirectional=True)
