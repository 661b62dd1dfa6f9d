"""Bahdanau's translator against a literal loop over the paper's equations."""

import pytest
import torch
from torch import Tensor

from regard.attention import SCORES, WEIGHS, record, uniform
from regard.attention.tape import intervene
from regard.models.translation.bahdanau import Bahdanau
from tests.models.recurrences import LENGTHS, SOURCES, V, climbed, read, stirred, texts

D = 5


def built(**changes: object) -> Bahdanau:
    config = Bahdanau.Config(**{"width": 4, "hidden": D, **changes})
    model = Bahdanau(config, V, SOURCES)
    stirred(model)
    return model


def literal(model: Bahdanau, source: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and weights of one sentence."""
    score = model.attend.score
    annotations, _ = read(model, source)
    first_backward = annotations[0][D:]
    s = torch.tanh(model.begin.weight @ first_backward + model.begin.bias)
    states = [(s, torch.zeros_like(s))]
    rows, looks = [], []
    for token in tokens:
        word, s = model.words.embed.weight[token], states[0][0]
        e = [
            score.vector @ torch.tanh(score.ask.weight @ s + score.answer.weight @ h)
            for h in annotations
        ]
        alpha = torch.stack(e).softmax(0)
        c = sum(a * h for a, h in zip(alpha, annotations, strict=True))
        states = climbed(model.decoder, word, c, states)
        t = model.join.weight @ torch.cat((states[0][0], word, c)) + model.join.bias
        if model.config.readout == "maxout":
            m = torch.stack([torch.maximum(t[i], t[i + len(word)]) for i in range(len(word))])
        else:
            m = torch.tanh(t)
        table = model.words.embed if model.words.output is None else model.words.output
        rows.append(table.weight @ m + model.words.bias)
        looks.append(alpha)
    return torch.stack(rows), torch.stack(looks)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("readout", ["maxout", "tanh"])
@pytest.mark.parametrize("tied", [False, True])
def test_it_is_the_equation(cell: str, readout: str, tied: bool) -> None:
    model, batch = built(cell=cell, readout=readout, tied=tied), texts()
    with record(model) as tape:
        logits = model(batch).logits()
    weights = tape.join("attend")
    assert weights.shape == (len(LENGTHS), 1, batch["tokens"].shape[1], max(LENGTHS))
    torch.testing.assert_close(weights.sum(3), torch.ones_like(weights[..., 0]))
    for row, length in enumerate(LENGTHS):
        want, looks = literal(model, batch["source"][row, :length], batch["tokens"][row])
        torch.testing.assert_close(logits[row], want)
        torch.testing.assert_close(weights[row, 0, :, :length], looks)
        assert (weights[row, 0, :, length:] == 0).all()


def test_the_first_state_is_that_of_the_backward_reading_and_of_nothing_else() -> None:
    """Whatever the forward direction says, s_0 stays."""
    model, batch = built(), texts()
    before = model.start(batch).hidden.top
    with torch.no_grad():
        model.reader.encoder.cells.weight_ih_l0.zero_()
        torch.testing.assert_close(model.start(batch).hidden.top, before)
        model.reader.encoder.cells.weight_ih_l0_reverse.zero_()
    assert (model.start(batch).hidden.top - before).abs().min() > 1e-6


def stepped(model: Bahdanau, batch: dict[str, Tensor]) -> Tensor:
    state, rows = model.start(batch), []
    for tokens in batch["tokens"].unbind(1):
        logits, state = model.step(tokens, state)
        rows.append(logits)
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("score", sorted(set(SCORES) - {"additive"}))
def test_every_score_serves(score: str) -> None:
    """Keys of another width than the queries are projected first."""
    model, batch = built(score=score, hidden=6), texts()  # sinusoids come in pairs
    torch.testing.assert_close(stepped(model, batch), model(batch).logits(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("weigh", WEIGHS)
def test_every_weighing_serves(weigh: str) -> None:
    model, batch = built(weigh=weigh), texts()
    logits = model(batch).logits()
    assert logits.isfinite().all()
    torch.testing.assert_close(stepped(model, batch), logits)


def test_attention_can_be_edited() -> None:
    """Looking everywhere alike is what the score that knows no difference does."""
    model, even, batch = built(), built(score="even"), texts()
    even.load_state_dict(model.state_dict(), strict=False)
    with intervene(model, {"attend": uniform}):
        edited = model(batch).logits()
    torch.testing.assert_close(edited, even(batch).logits())
    assert (edited - model(batch).logits()).abs().max() > 1e-3
