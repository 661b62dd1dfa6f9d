"""The pointer-sentinel mixture against a literal loop over Merity et al. 2017."""

from math import exp, log

import pytest
import torch
from torch import Tensor

from regard.attention import record
from regard.models.language.pointer_lm import PointerLM
from regard.models.language.rnn_lm import RecurrentState

B, T, V, D = 2, 9, 5, 6


def built(memory: int) -> PointerLM:
    model = PointerLM(PointerLM.Config(width=D, layers=1, memory=memory), V).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return model


@torch.no_grad()
def literal(model: PointerLM, tokens: Tensor) -> list[list[list[float]]]:
    """p of every word at every position, in probabilities."""
    states, _ = model.rnn.read(tokens, RecurrentState())
    words = model.rnn.predict(states).logits().softmax(2).tolist()
    result = []
    for b in range(B):
        rows = []
        for t in range(T):
            query = torch.tanh(model.query.weight @ states[b, t] + model.query.bias)
            window = range(max(0, t - model.config.memory + 1), t + 1)
            z = {i: exp(float(query @ states[b, i])) for i in window}
            sentinel = exp(float(query @ model.sentinel))
            total = sentinel + sum(z.values())
            p = [sentinel / total * words[b][t][w] for w in range(V)]
            for i in window:
                p[int(tokens[b, i])] += z[i] / total
            rows.append(p)
        result.append(rows)
    return result


@pytest.mark.parametrize("memory", [1, 4, 20])
def test_it_is_the_equation(memory: int) -> None:
    model, tokens = built(memory), torch.randint(V, (B, T))
    want = torch.tensor(literal(model, tokens), dtype=torch.double)
    prediction = model({"tokens": tokens})
    torch.testing.assert_close(prediction.logits().exp(), want)
    targets = torch.randint(V, (B, T))
    torch.testing.assert_close(
        prediction.log_probability(targets).exp(), want.gather(2, targets[..., None]).squeeze(2)
    )


def test_the_sentinel_and_the_pointer_share_one_softmax() -> None:
    model, tokens = built(4), torch.randint(V, (B, T))
    prediction = model({"tokens": tokens})
    total = prediction.share + prediction.pointer.sum(2)
    torch.testing.assert_close(total, torch.ones(B, T).double())
    assert ((prediction.share > 0.01) & (prediction.share < 0.99)).any()


def test_the_record_shows_the_sentinel_first_and_then_the_words() -> None:
    model, tokens = built(4), torch.randint(V, (B, T))
    carry = model({"tokens": tokens}).carry
    with record(model) as tape:
        prediction = model({"tokens": tokens}, carry)
    call = tape["attend"][0]
    assert call.axes == ("position", "sentinel")
    assert torch.equal(call.weights[:, 0, :, 0], prediction.share)
    assert torch.equal(call.weights[:, 0, :, 1:], prediction.pointer)
    assert prediction.key_tokens.shape == (B, 4 + T)
    assert (prediction.pointer > 0).sum(2).tolist() == [[4] * T] * B


def test_it_learns_to_copy_what_no_output_layer_could_know() -> None:
    """Each line repeats one random word: the word is new, but it stands right there."""
    model = PointerLM(PointerLM.Config(width=16, layers=1, memory=3), 40).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        line = torch.randint(40, (16, 1)).expand(16, 6)
        optimiser.zero_grad()
        loss = model({"tokens": line[:, :-1]}).nll(line[:, 1:]) / (16 * 5)
        loss.backward()
        optimiser.step()
    prediction = model({"tokens": line[:, :-1]})
    assert loss.item() < 0.05 * log(40)
    assert prediction.pointer.sum(2).mean() > 0.8
