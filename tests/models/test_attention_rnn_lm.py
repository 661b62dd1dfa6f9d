"""An RNN that looks back: the equations, every score, and where it may look."""

import pytest
import torch
from torch import Tensor

from regard.attention import SCORES, Past, record, uniform
from regard.attention.tape import intervene
from regard.core.errors import UserError
from regard.models.language.attention_rnn_lm import AttentionRNNLM
from regard.models.language.rnn_lm import RecurrentState

B, T, V, D, MEMORY = 2, 9, 7, 6, 3


def built(score: str, memory: int = MEMORY) -> AttentionRNNLM:
    config = AttentionRNNLM.Config(width=D, layers=1, score=score, memory=memory)
    model = AttentionRNNLM(config, V).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return model


def literal(model: AttentionRNNLM, tokens: Tensor) -> Tensor:
    """The additive score of Daniluk et al. 2017, position by position."""
    score = model.attend.score
    states, _ = model.rnn.read(tokens, RecurrentState())
    rows = []
    for b in range(len(tokens)):
        for t in range(tokens.shape[1]):
            h = states[b]
            earlier = range(max(0, t - model.config.memory), t)
            e = [
                score.vector @ torch.tanh(score.ask.weight @ h[t] + score.answer.weight @ h[i])
                for i in earlier
            ]
            alpha = torch.stack(e).softmax(0) if e else []
            r = sum(
                (a * h[i] for a, i in zip(alpha, earlier, strict=True)), torch.zeros(D).double()
            )
            star = h[t] + model.join.weight @ r
            rows.append(model.rnn.output.weight @ star + model.rnn.bias)
    return torch.stack(rows).view(*tokens.shape, V)


@pytest.mark.parametrize("memory", [1, MEMORY, 20])
def test_it_is_the_equation(memory: int) -> None:
    model, tokens = built("additive", memory), torch.randint(V, (B, T))
    torch.testing.assert_close(model({"tokens": tokens}).logits(), literal(model, tokens))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("memory", [1, MEMORY, 20])
def test_a_text_may_be_cut_anywhere_whatever_the_score(score: str, memory: int) -> None:
    model, tokens = built(score, memory), torch.randint(V, (B, T))
    whole = model({"tokens": tokens}).logits()
    for sizes in ([1] * T, [4, 1, 4], [2, 7]):
        carry, parts = None, []
        for part in tokens.split(sizes, dim=1):
            prediction = model({"tokens": part}, carry)
            carry = prediction.carry
            parts.append(prediction.logits())
        torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-10, rtol=0)


def test_a_sequential_score_equals_one_attention_with_a_mask() -> None:
    """The rows of `coverage`, each with a memory of its own, and all of them over one memory."""
    model, tokens = built("coverage"), torch.randint(V, (B, T))
    assert model.by_row
    states, _ = model.rnn.read(tokens, RecurrentState())
    got, _ = model._row_by_row(states, states, Past())
    memory = model.attend.remember(states[:, None], states[:, None])
    want, _ = model.attend.step(states[:, None], memory, model.mask)
    torch.testing.assert_close(got, want.squeeze(1))


@pytest.mark.parametrize("score", ["dot", "additive", "relative_xl"])
def test_it_looks_at_the_last_states_before_it_and_at_no_other(score: str) -> None:
    model, tokens = built(score), torch.randint(V, (B, T))
    carry = model({"tokens": torch.randint(V, (B, 2))}).carry
    with record(model) as tape:
        model({"tokens": tokens}, carry)
    weights = tape.weights("attend")
    assert weights.shape == (B, 1, T, 2 + T)
    for t in range(T):
        looked = weights[:, 0, t] > 0
        assert looked[:, max(0, t + 2 - MEMORY) : t + 2].all()
        assert looked.sum(1).tolist() == [min(t + 2, MEMORY)] * B


def test_attention_can_be_edited() -> None:
    model, even, tokens = built("bilinear"), built("even"), torch.randint(V, (B, T))
    even.load_state_dict(model.state_dict(), strict=False)
    with intervene(model, {"attend": uniform}):
        edited = model({"tokens": tokens}).logits()
    torch.testing.assert_close(edited, even({"tokens": tokens}).logits())
    assert not torch.allclose(edited, model({"tokens": tokens}).logits(), atol=1e-3)


def test_gradients_reach_states_of_this_window_and_stop_at_the_one_before() -> None:
    model, tokens = built("dot"), torch.randint(V, (B, T))
    carry = model({"tokens": tokens}).carry
    model({"tokens": tokens}, carry).logits().sum().backward()
    assert model.rnn.embed.weight.grad is not None
    assert model.rnn.embed.weight.grad.any()
    assert carry["states"].grad_fn is None


def test_an_unknown_score_is_named(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="unknown score 'aditive': did you mean 'additive'"):
        built("aditive")
