"""Show, Attend and Tell, and Show and Tell, against literal loops over the papers' equations."""

import pytest
import torch
from torch import Tensor

from regard.core.padding import IGNORE
from regard.layers.reinforce import SampledAttention
from regard.models.vision.hard_attend_tell import HardAttendTell
from regard.models.vision.show_and_tell import ShowAndTell
from regard.models.vision.show_attend_tell import ShowAttendTell, doubly_stochastic

B, N, T, V, C = 2, 4, 3, 9, 5
TARGETS = torch.tensor([[4, 5, 3], [6, 3, IGNORE]])


def given() -> dict[str, Tensor]:
    torch.manual_seed(2)
    tokens = torch.tensor([[2, 4, 5], [2, 6, 0]])
    return {
        "patches": torch.randn(B, N, C, dtype=torch.float64),
        "tokens": tokens,
        "targets": TARGETS,
    }


def lstm(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """One step of one row, gate by gate."""
    enter, again, bias, again_bias = weights
    i, f, g, o = (enter @ x + bias + again @ h + again_bias).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def test_soft_attention_is_equations_1_to_7() -> None:
    config = ShowAttendTell.Config(width=6, hidden=7, project=3)
    model = ShowAttendTell(config, vocabulary=V, features=C).double().eval()
    batch = given()
    expected = []
    score = model.attend.score
    for row in range(B):
        places = batch["patches"][row] @ model.project.weight.T + model.project.bias
        h, c = (model.begin.weight @ places.mean(0) + model.begin.bias).tanh().chunk(2)
        for token in batch["tokens"][row]:
            word = model.words.embed.weight[token]
            memory = model.attend.remember(places[None, None], places[None, None])
            e = score(h[None, None, None], memory.key)[0, 0, 0]
            alpha = e.exp() / e.exp().sum()
            beta = (model.gate.weight @ h + model.gate.bias).sigmoid()
            z = beta * sum(alpha[place] * places[place] for place in range(N))
            joined = torch.cat((model.decoder.cells.weight_ih_l0, model.decoder.feed.weight), 1)
            cells = model.decoder.cells
            rest = [cells.weight_hh_l0, cells.bias_ih_l0, cells.bias_hh_l0]
            h, c = lstm(torch.cat((word, z)), h, c, [joined, *rest])
            out = (
                word
                + model.from_state.weight @ h
                + model.from_state.bias
                + model.from_context.weight @ z
            )
            expected.append(model.words.output.weight @ out + model.words.bias)
    found = model(batch).logits().flatten(0, 1)
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-10, rtol=1e-10)


def test_the_image_is_read_once_before_the_first_word() -> None:
    model = ShowAndTell(ShowAndTell.Config(width=6, hidden=7), vocabulary=V, features=C).double()
    batch, expected = given(), []
    weights = model.cells.all_weights[0]
    for row in range(B):
        h = c = torch.zeros(7, dtype=torch.float64)
        image = model.image.weight @ batch["patches"][row].mean(0) + model.image.bias
        h, c = lstm(image, h, c, weights)
        for token in batch["tokens"][row]:
            h, c = lstm(model.words.embed.weight[token], h, c, weights)
            out = model.join.weight @ h + model.join.bias
            expected.append(model.words.output.weight @ out + model.words.bias)
    found = model.eval()(batch).logits().flatten(0, 1)
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-10, rtol=1e-10)


def test_doubly_stochastic_attention_by_a_literal_loop() -> None:
    weights = torch.rand(B, T, N, dtype=torch.float64).softmax(2)
    total = 0.0
    for row in range(B):
        for place in range(N):
            over_time = sum(
                float(weights[row, step, place]) for step in range(T) if TARGETS[row, step] >= 0
            )
            total += (1 - over_time) ** 2
    assert doubly_stochastic(weights, TARGETS).item() == pytest.approx(total, abs=1e-12)


def test_the_whole_loss_passes_gradcheck() -> None:
    config = ShowAttendTell.Config(width=3, hidden=4, project=3, doubly=0.7)
    model = ShowAttendTell(config, vocabulary=V, features=C).double().train()
    batch = given()
    patches = batch["patches"].requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: model({**batch, "patches": x}).loss(batch), (patches,), atol=1e-6
    )


def test_the_gradient_of_samples_is_that_of_the_expected_log_likelihood() -> None:
    torch.manual_seed(4)
    config = HardAttendTell.Config(
        width=3, hidden=4, project=3, baseline="learned", entropy=0.0, expectation=0.0, gate=False
    )
    model = HardAttendTell(config, vocabulary=V, features=C).double().train()
    batch = {
        name: each[:1, :1] if name != "patches" else each[:1] for name, each in given().items()
    }
    soft = model.soft
    state = soft.start(batch)
    entered = soft.decoder.enter(soft.words(batch["tokens"]))[0]
    alpha = soft.attend.weights(state.hidden.top[:, None, None], state.source.memories[0])[0, 0, 0]
    value = state.source.memories[0].value[0, 0]
    logs = []
    for place in range(N):
        hidden = soft.decoder.step(entered, value[place][None], state.hidden)
        words = soft.words(batch["tokens"])
        readout = soft.readout(hidden.top[:, None], words, value[place][None, None])
        logs.append(soft.words.predict(readout).log_probability(batch["targets"])[0, 0])
    expected_loss = -(alpha * torch.stack(logs)).sum()
    key = next(soft.attend.score.parameters())
    (exact,) = torch.autograd.grad(expected_loss, key, retain_graph=True)
    states, none = state.hidden.top[:, None], torch.zeros(1, 1, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for place in range(N):  # the expectation over samples, place by place
        sample = SampledAttention(states, alpha[place].log()[None, None], none)
        loss = model.surrogate(logs[place][None, None], sample, batch["targets"])
        total = total + alpha[place].detach() * loss
    (found,) = torch.autograd.grad(total, key)
    assert exact.abs().max() > 1e-6
    torch.testing.assert_close(found, exact, atol=1e-10, rtol=1e-8)
