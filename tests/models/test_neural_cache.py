"""The neural cache against a literal loop over Grave et al. 2017, and how θ and λ are learnt."""

from math import exp, log

import pytest
import torch
from torch import Tensor, nn

from regard.attention import record
from regard.core.errors import UserError
from regard.models import MODELS
from regard.models.language.gpt import GPT
from regard.models.language.hred import HRED
from regard.models.language.neural_cache import NeuralCache
from regard.models.language.pointer_lm import PointerLM
from regard.models.language.rnn_lm import RNNLM, RecurrentState

B, T, V, D = 2, 9, 5, 6
PLAIN = ["window_lm", "rnn_lm", "attention_rnn_lm", "lstmn", "clockwork_rnn", "hred", "gpt"]
"""Models whose prediction is that of an output layer alone."""


def settings(size: int = 4, theta: float = 0.8, mix: float = 0.3) -> NeuralCache.Config:
    return NeuralCache.Config(source="runs/lm", size=size, theta=theta, mix=mix)


def built(size: int, theta: float = 0.8, mix: float = 0.3, cell: str = "lstm") -> NeuralCache:
    frozen = RNNLM(RNNLM.Config(cell=cell, width=D, layers=1, dropout=0.5), V)
    for parameter in frozen.parameters():
        nn.init.normal_(parameter, std=0.7)
    return NeuralCache(settings(size, theta, mix), V, source=frozen).double().eval()


@torch.no_grad()
def literal(model: NeuralCache, tokens: Tensor) -> list[list[list[float]]]:
    """p of every word at every position, in probabilities."""
    states, _ = model.frozen.read(tokens, RecurrentState())
    words = model.frozen.predict(states).logits().softmax(2).tolist()
    c, result = model.config, []
    for b in range(B):
        rows = []
        for t in range(T):
            cached = [0.0] * V
            for i in range(max(0, t - c.size), t):
                cached[int(tokens[b, i + 1])] += exp(c.theta * float(states[b, t] @ states[b, i]))
            if t == 0:
                rows.append(words[b][t])
            else:
                total = sum(cached)
                rows.append(
                    [
                        (1 - c.mix) * p + c.mix * q / total
                        for p, q in zip(words[b][t], cached, strict=True)
                    ]
                )
        result.append(rows)
    return result


@pytest.mark.parametrize("size", [1, 4, 20])
def test_it_is_the_equation(size: int) -> None:
    model, tokens = built(size), torch.randint(V, (B, T))
    want = torch.tensor(literal(model, tokens), dtype=torch.double)
    torch.testing.assert_close(model({"tokens": tokens}).logits().exp(), want)


def test_it_remembers_what_followed_and_not_what_was_read() -> None:
    """A state that comes again calls up the word after it."""
    model = built(20, theta=50.0, mix=0.9, cell="elman")
    tokens = torch.tensor([[1, 2, 3, 1]])
    with torch.no_grad():
        for name, parameter in model.frozen.named_parameters():
            if "hh" in name:
                parameter.zero_()  # now the last word alone makes the state
            if "ih" in name:
                parameter.mul_(20)  # and all states are of one length, corners of a cube
    prediction = model({"tokens": tokens})
    assert prediction.key_tokens.tolist() == [[2, 3, 1]]
    assert prediction.pointer[0, 3].argmax() == 0
    assert prediction.logits()[0, 3].argmax() == 2


def test_the_first_word_of_a_text_is_left_to_the_model() -> None:
    model, tokens = built(4), torch.randint(V, (B, 1))
    prediction = model({"tokens": tokens})
    assert torch.equal(prediction.share, torch.ones(B, 1).double())
    want = model.frozen({"tokens": tokens}).logits().log_softmax(2)
    torch.testing.assert_close(prediction.logits(), want)


def learnt(model: NeuralCache, text: Tensor) -> tuple[float, float]:
    """θ and λ after some updates on a text."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(150):
        optimiser.zero_grad()
        model({"tokens": text[:, :-1]}).nll(text[:, 1:]).backward()
        optimiser.step()
    return model.log_theta.exp().item(), model.mix_logit.sigmoid().item()


def test_a_text_that_repeats_itself_wants_a_cache_and_a_random_one_none() -> None:
    bars = torch.randint(V, (B, 5)).repeat(1, 9)
    theta, mix = learnt(built(30), bars)
    assert mix > 0.8
    assert theta > 0.8
    model = built(30)
    with torch.no_grad():
        for parameter in model.frozen.parameters():
            parameter.zero_()  # all words alike, which is all there is to know of a random text
    assert learnt(model, torch.randint(V, (B, 200)))[1] < 0.05


def test_what_is_learnt_is_the_best_of_a_grid() -> None:
    text = torch.randint(3, (B, 60)).repeat(1, 2)
    model = built(50)
    theta, mix = learnt(model, text)
    with torch.no_grad():
        reached = model({"tokens": text[:, :-1]}).nll(text[:, 1:]).item()
        for other in (theta / 1.5, theta, theta * 1.5):
            for share in (mix / 1.5, mix, 1 - (1 - mix) / 1.5):
                model.log_theta.fill_(log(other))
                model.mix_logit.fill_(log(share / (1 - share)))
                assert model({"tokens": text[:, :-1]}).nll(text[:, 1:]).item() > reached - 0.05


def test_the_model_under_it_neither_learns_nor_drops() -> None:
    model = built(6).train()
    tokens = torch.randint(V, (B, T))
    first, again = (model({"tokens": tokens}) for _ in range(2))
    assert torch.equal(first.logits(), again.logits())
    learns = {name for name, each in model.named_parameters() if each.requires_grad}
    assert learns == {"log_theta", "mix_logit"}
    first.nll(tokens).backward()
    assert all(each.grad is None for each in model.frozen.parameters())


@pytest.mark.parametrize("name", PLAIN)
def test_any_model_with_a_plain_output_layer_can_have_a_cache(name: str) -> None:
    config = MODELS[name].Config(width=20)
    frozen = MODELS[name](config, V).double().eval()
    model = NeuralCache(settings(6), V, source=frozen).eval()
    tokens = torch.randint(V, (B, T))
    with record(model, "attend") as tape:
        prediction = model({"tokens": tokens})
    assert tape.weights("attend").shape == (B, 1, T, T - 1)
    torch.testing.assert_close(prediction.logits().exp().sum(2), torch.ones(B, T).double())


def test_a_cache_over_turns_carries_what_the_model_under_it_carries() -> None:
    frozen = HRED(HRED.Config(width=8, context=6), V).double().eval()
    model = NeuralCache(settings(4), V, source=frozen).eval()
    tokens = torch.randint(V, (B, T))
    whole = model({"tokens": tokens}).logits()
    first = model({"tokens": tokens[:, :4]})
    carry = first.carry
    assert {"frozen.context", "frozen.decoder", "states", "tokens"} <= set(carry)
    both = torch.cat((first.logits(), model({"tokens": tokens[:, 4:]}, carry).logits()), dim=1)
    torch.testing.assert_close(both, whole)


def test_what_cannot_have_a_cache_is_refused(as_users_run_it: None) -> None:
    pointer = PointerLM(PointerLM.Config(width=8), V)
    with pytest.raises(UserError, match="PointerLM returns PointerMixture"):
        NeuralCache(settings(), V, source=pointer)
    model = NeuralCache(settings(), V, source=GPT(GPT.Config(width=8, heads=2), V))
    state = model.start({"tokens": torch.tensor([[1]])})
    with pytest.raises(UserError, match="GPT has no carry"):
        model.step(torch.tensor([1]), state)
