"""The neural cache against a literal loop over Grave et al. 2017, and its tuning."""

from math import exp

import pytest
import torch
from torch import Tensor, nn

from regard.attention import record
from regard.core.errors import UserError
from regard.layers.output import IGNORED
from regard.models import MODELS
from regard.models.gpt import GPT
from regard.models.hred import HRED
from regard.models.neural_cache import NeuralCache, tuned
from regard.models.pointer_lm import PointerLM
from regard.models.rnn_lm import RNNLM, RecurrentState

B, T, V, D = 2, 9, 5, 6


def built(size: int, theta: float = 0.8, mix: float = 0.3) -> NeuralCache:
    frozen = RNNLM.Config(width=D, layers=1, dropout=0.5)
    config = NeuralCache.Config(frozen=frozen, size=size, theta=theta, mix=mix)
    model = NeuralCache(config, V).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


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
    torch.testing.assert_close(model(tokens)[0].logits().exp(), want)


def test_it_remembers_what_followed_and_not_what_was_read() -> None:
    """A state that comes again calls up the word after it."""
    model, tokens = built(20, theta=50.0, mix=0.9), torch.tensor([[1, 2, 3, 1]])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "hh" in name:
                parameter.zero_()  # now the last word alone makes the state, but for the cell
    prediction = model(tokens)[0]
    assert prediction.held.tolist() == [[2, 3, 1]]
    assert prediction.pointed[0, 3].argmax() == 0
    assert prediction.logits()[0, 3].argmax() == 2


def test_the_first_word_of_a_text_is_left_to_the_model() -> None:
    model, tokens = built(4), torch.randint(V, (B, 1))
    prediction = model(tokens)[0]
    assert torch.equal(prediction.share, torch.ones(B, 1).double())
    want = model.frozen(tokens)[0].logits().log_softmax(2)
    torch.testing.assert_close(prediction.logits(), want)


def windows(lengths: list[int]) -> list[dict[str, Tensor]]:
    """Windows of one text that follow one another, some of whose targets are not asked for."""
    text = torch.randint(V, (B, sum(lengths) + 1))
    parts = zip(text[:, :-1].split(lengths, 1), text[:, 1:].split(lengths, 1), strict=True)
    pairs = [{"tokens": tokens, "targets": targets.clone()} for tokens, targets in parts]
    pairs[-1]["targets"][0, -2:] = IGNORED
    return pairs


def test_the_grid_holds_the_loss_of_each_cache_as_evaluation_finds_it() -> None:
    model, text = built(6), windows([5, 1, 8])
    thetas, mixes = [0.1, 0.8, 3.0], [0.0, 0.2, 0.7]
    found = tuned(model, text, thetas, mixes)
    count = 2 * 14 - 2
    for row, theta in enumerate(thetas):
        for column, mix in enumerate(mixes):
            config = model.config.model_copy(update={"theta": theta, "mix": mix})
            other, carry, total = NeuralCache(config, V, frozen=model.frozen), None, 0.0
            for each in text:
                prediction, carry = other(each["tokens"], carry)
                total += prediction.surprise(each["targets"]).item()
            assert found.losses[row, column].item() == pytest.approx(total / count, abs=1e-10)
    assert found.loss == found.losses.min()
    best = (thetas.index(found.config.theta), mixes.index(found.config.mix))
    assert found.losses[best] == found.loss
    assert found.config.frozen == model.config.frozen


def test_a_text_that_repeats_itself_wants_a_cache_and_a_random_one_none() -> None:
    model = built(30)
    bars = torch.randint(V, (B, 5)).repeat(1, 9)
    again = [{"tokens": bars[:, :-1], "targets": bars[:, 1:]}]
    assert tuned(model, again, [1.0, 5.0], [0.0, 0.5, 0.9]).config.mix == 0.9
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # all words alike, which is all there is to know of a random text
    chance = windows([200])
    assert tuned(model, chance, [1.0], [0.0, 0.5, 0.9]).config.mix == 0.0


@pytest.mark.parametrize("name", [n for n in MODELS if n not in ("pointer_lm", "neural_cache")])
def test_any_model_with_a_plain_output_layer_can_have_a_cache(name: str) -> None:
    config = MODELS[name].Config(width=20)
    frozen = MODELS[name](config, V).double().eval()
    model = NeuralCache(NeuralCache.Config(size=6), V, frozen=frozen).eval()
    tokens = torch.randint(V, (B, T))
    with record(model, "attend") as tape:
        prediction, _ = model(tokens)
    assert tape.weights("attend").shape == (B, 1, T, T - 1)
    torch.testing.assert_close(prediction.logits().exp().sum(2), torch.ones(B, T).double())


def test_a_cache_over_turns_carries_what_the_model_under_it_carries() -> None:
    frozen = HRED(HRED.Config(width=8, context=6), V).double().eval()
    model = NeuralCache(NeuralCache.Config(size=4, mix=0.4), V, frozen=frozen).eval()
    tokens = torch.randint(V, (B, T))
    whole = model(tokens)[0].logits()
    first, carry = model(tokens[:, :4])
    assert {"frozen.context", "frozen.decoder", "states", "tokens"} <= set(carry)
    both = torch.cat((first.logits(), model(tokens[:, 4:], carry)[0].logits()), dim=1)
    torch.testing.assert_close(both, whole)


def test_what_cannot_have_a_cache_is_refused(as_users_run_it: None) -> None:
    pointer = PointerLM(PointerLM.Config(width=8), V)
    with pytest.raises(UserError, match="PointerLM predicts by PointerMixture"):
        NeuralCache(NeuralCache.Config(), V, frozen=pointer)
    model = NeuralCache(NeuralCache.Config(), V, frozen=GPT(GPT.Config(width=8, heads=2), V))
    state = model.start({"tokens": torch.tensor([[1]])})
    with pytest.raises(UserError, match="GPT hands nothing on"):
        model.step(torch.tensor([1]), state)


@pytest.mark.parametrize(
    ("thetas", "mixes", "complaint"),
    [
        ([], [0.1], "at least one theta"),
        ([1.0], [], "at least one theta and one mix"),
        ([0.0], [0.1], r"theta=0\.0 must be a finite number above zero"),
        ([1.0], [1.0], r"mix=1\.0 must be at least 0 and below 1"),
        ([1.0], [0.1], "the windows hold no word"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    thetas: list[float], mixes: list[float], complaint: str, as_users_run_it: None
) -> None:
    with pytest.raises(UserError, match=complaint):
        tuned(built(4), [], thetas, mixes)
