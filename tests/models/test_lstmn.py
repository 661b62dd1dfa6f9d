"""The LSTMN against a literal loop over Cheng et al. 2016, and the LSTM that it contains."""

import pytest
import torch
from torch import Tensor, nn

from regard.attention import record
from regard.models.language.lstmn import LSTMN, TapeLayer

B, T, V, D = 2, 8, 7, 5


def built(tape: int, layers: int = 1, recency: float = 0.0) -> LSTMN:
    config = LSTMN.Config(width=D, layers=layers, tape=tape, recency=recency)
    model = LSTMN(config, V).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def layer_of(layer: TapeLayer, x: Tensor, tape: int) -> Tensor:
    """One row through one layer, step by step, with a tape that holds h and c."""
    score = layer.attend.score
    enter, again = layer.enter.weight.split(D), layer.again.weight.split(D)
    bias = layer.enter.bias.split(D)
    hs: list[Tensor] = []
    cs: list[Tensor] = []
    summary = torch.zeros(D).double()  # h̃ of the step before
    for now in x:
        cell = torch.zeros(D).double()
        if hs:
            query = enter[4] @ now + bias[4] + again[4] @ summary
            a = [score.vector @ torch.tanh(score.answer.weight @ h + query) for h in hs[-tape:]]
            if score.places is not None:
                a = [each + score.places[tape - len(a) + i] for i, each in enumerate(a)]
            s = torch.stack(a).softmax(0)
            summary = sum(w * h for w, h in zip(s, hs[-tape:], strict=True))
            cell = sum(w * c for w, c in zip(s, cs[-tape:], strict=True))
        gate = [enter[g] @ now + bias[g] + again[g] @ summary for g in range(4)]
        cs.append(gate[1].sigmoid() * cell + gate[0].sigmoid() * gate[3].tanh())
        hs.append(gate[2].sigmoid() * cs[-1].tanh())
    return torch.stack(hs)


@pytest.mark.parametrize("tape", [1, 3, 20])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("recency", [0.0, 1.0])
def test_it_is_the_equation(tape: int, layers: int, recency: float) -> None:
    model, tokens = built(tape, layers, recency), torch.randint(V, (B, T))
    logits = model({"tokens": tokens}).logits()
    for row in range(B):
        x = model.words.embed.weight[tokens[row]]
        for layer in model.layers:
            assert isinstance(layer, TapeLayer)
            x = layer_of(layer, x, tape)
        want = x @ model.words.output.weight.T + model.words.bias
        torch.testing.assert_close(logits[row], want)


def test_with_a_tape_of_one_step_it_is_an_lstm() -> None:
    """One state to look at is looked at wholly, so the summary is the state before."""
    model, tokens = built(1), torch.randint(V, (B, T))
    layer, lstm = model.layers[0], nn.LSTM(D, D, batch_first=True).double()
    order = torch.tensor([0, 1, 3, 2])  # torch has the candidate before the output gate

    def gates(rows: Tensor) -> Tensor:
        return rows[: 4 * D].unflatten(0, (4, D))[order].flatten(0, 1)

    with torch.no_grad():
        lstm.weight_ih_l0.copy_(gates(layer.enter.weight))
        lstm.weight_hh_l0.copy_(gates(layer.again.weight))
        lstm.bias_ih_l0.copy_(gates(layer.enter.bias))
        lstm.bias_hh_l0.zero_()
    want, _ = lstm(model.words.embed(tokens))
    torch.testing.assert_close(model({"tokens": tokens}).states, want)


def test_recency_begins_with_the_last_state_before_all() -> None:
    model, tokens = LSTMN(LSTMN.Config(width=D, tape=4, recency=2.0), V), torch.randint(V, (B, T))
    with record(model) as tape:
        model({"tokens": tokens})
    for call in tape["layers.0"]:
        weights = call.weights[:, 0, 0]  # [B,K]
        assert (weights.diff(dim=1) > 0).all()
        assert (weights[:, -1] > 0.6).all()


def test_the_record_shows_the_tape_without_the_present_step() -> None:
    model, tokens = built(3), torch.randint(V, (B, T))
    with record(model) as tape:
        model({"tokens": tokens})
    calls = tape["layers.0"]
    assert [call.rows for call in calls] == [(t,) for t in range(1, T)]
    assert [call.weights.shape[3] for call in calls] == [min(t, 3) for t in range(1, T)]
    assert all(call.kind == "memory" for call in calls)


def test_the_tape_that_is_carried_holds_hidden_and_cell() -> None:
    model, tokens = built(3), torch.randint(V, (B, T))
    prediction = model({"tokens": tokens})
    carry = prediction.carry
    assert carry["tape"].shape == (B, 1, 3, 2 * D)
    torch.testing.assert_close(carry["tape"][:, 0, :, :D], prediction.states[:, -3:])
    assert not torch.allclose(carry["tape"][..., :D], carry["tape"][..., D:])
