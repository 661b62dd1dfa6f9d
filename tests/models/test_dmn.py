"""DMN and DMN+: literal loops over the papers' equations."""

import pytest
import torch
from torch import Tensor

from regard.models.memory.dmn import DMN
from tests.laws.test_readers import COUNTS, SLOTS, V, stories


def gru_step(cell: torch.nn.Module, x: Tensor, h: Tensor, suffix: str) -> Tensor:
    """One step of a GRU as torch defines it."""
    weights = [getattr(cell, f"{name}{suffix}") for name in ("weight_ih", "weight_hh")]
    biases = [getattr(cell, f"{name}{suffix}") for name in ("bias_ih", "bias_hh")]
    r_x, z_x, n_x = (weights[0] @ x + biases[0]).chunk(3)
    r_h, z_h, n_h = (weights[1] @ h + biases[1]).chunk(3)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return (1 - z) * torch.tanh(n_x + r * n_h) + z * h


def facts_by_hand(model: DMN, words: list[list[int]]) -> list[Tensor]:
    width, table = model.config.width, model.words.weight
    zero = torch.zeros(width, dtype=torch.float64)
    if model.config.facts == "words":
        state, ends = zero, []
        for sentence in words:
            for word in filter(None, sentence):
                state = gru_step(model.reader, table[word], state, "_l0")
            ends.append(state)
        return ends
    sums = []
    for sentence in words:
        real = [word for word in sentence if word]
        total = zero.clone()
        for j, word in enumerate(real, start=1):
            for k in range(1, width + 1):
                place = (1 - j / len(real)) - (k / width) * (1 - 2 * j / len(real))
                total[k - 1] += 2 * place * table[word][k - 1]
        sums.append(total)
    ahead, behind, state = [], [], zero
    for each in sums:
        state = gru_step(model.fusion.forth[0], each, state, "_l0")
        ahead.append(state)
    state = zero
    for each in reversed(sums):
        state = gru_step(model.fusion.back[0], each, state, "_l0")
        behind.insert(0, state)
    return [a + b for a, b in zip(ahead, behind, strict=True)]


def by_hand(model: DMN, row: int) -> Tensor:
    given, config = stories(), model.config
    facts = facts_by_hand(model, given["facts"][row, : COUNTS[row]].tolist())
    q = torch.zeros(config.width, dtype=torch.float64)
    for word in filter(None, given["question"][row].tolist()):
        q = gru_step(model.question, model.words.weight[word], q, "_l0")
    m = q
    score = model.episodes.score
    for t in range(config.episodes):
        scores = [
            score.output(
                score.hidden(torch.cat([f * q, f * m, (f - q).abs(), (f - m).abs()])).tanh()
            )
            for f in facts
        ]
        stacked = torch.cat(scores)
        gates = stacked.softmax(0) if config.gates == "softmax" else stacked.sigmoid()
        h = torch.zeros_like(q)
        for f, g in zip(facts, gates, strict=True):
            if config.read == "soft":
                h = h + g * f
                continue
            parts = 2 if config.read == "attention_gru" else 3
            x = model.gated.inputs(f).chunk(parts)
            u = model.gated.states(h).chunk(parts)
            new = torch.tanh(x[1] + torch.sigmoid(x[0] + u[0]) * u[1])
            if parts == 3:
                z = torch.sigmoid(x[2] + u[2])
                new = z * h + (1 - z) * new
            h = g * new + (1 - g) * h
        if config.update == "gru":
            m = gru_step(model.memory_cell, h, m, "")
        else:
            m = model.update[t](torch.cat([m, h, q])).relu()
    return model.output(torch.cat([q, m]))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"read": "soft"},
        {"facts": "words", "read": "gated_gru", "gates": "sigmoid", "update": "gru"},
    ],
    ids=["DMN+", "soft", "DMN"],
)
def test_the_equations_of_the_papers(options: dict[str, str]) -> None:
    torch.manual_seed(5)
    model = DMN(DMN.Config(width=4, episodes=2, **options), V, SLOTS).double().eval()
    for each in model.parameters():
        torch.nn.init.uniform_(each, -0.5, 0.5)
    with torch.no_grad():
        model.words.weight[0] = 0
        logits = model(stories()).logits
        for row in (0, 1, 3):
            torch.testing.assert_close(logits[row], by_hand(model, row))


def test_the_gradient_is_that_of_differences() -> None:
    torch.manual_seed(6)
    model = DMN(DMN.Config(width=3, episodes=2, dropout=0.0), V, SLOTS).double()
    given, names = stories(), [name for name, _ in model.named_parameters()]

    def loss(*weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        output = torch.func.functional_call(model, named, (given,))
        return output.nll(given["classes"])

    weights = tuple(each.detach().requires_grad_() for each in model.parameters())
    assert torch.autograd.gradcheck(loss, weights, fast_mode=True)
