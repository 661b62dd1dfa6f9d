"""A mixture of an output layer and a pointer, in log space and safe where there is nothing."""

from math import exp, log

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.outputs.next_token import SoftmaxOutput
from regard.outputs.pointer import ExtendedSoftmax, PointerMixture

B, T, K, V, D = 2, 3, 4, 7, 5
HELD = torch.tensor([[1, 2, 1, 6], [0, 0, 3, 5]])


def parts(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The share of the output layer and of each key, from one softmax."""
    weights = scores.softmax(2)
    return weights[..., 0], weights[..., 1:]


def vocabulary() -> SoftmaxOutput:
    states, weight = torch.randn(B, T, D).double(), torch.randn(V, D).double()
    return SoftmaxOutput(states, weight, torch.randn(V).double())


def test_every_word_has_its_part_of_both() -> None:
    words, (share, pointed) = vocabulary(), parts(torch.randn(B, T, K + 1).double())
    mixture = PointerMixture(words, share, pointed, HELD)
    inner = words.logits().softmax(2)
    logits = mixture.logits()
    for b in range(B):
        for t in range(T):
            for w in range(V):
                p = share[b, t].item() * inner[b, t, w].item()
                p += sum(pointed[b, t, k].item() for k in range(K) if HELD[b, k] == w)
                assert logits[b, t, w].item() == pytest.approx(log(p), abs=1e-12)
                targets = torch.full((B, T), w)
                assert mixture.log_probability(targets)[b, t].item() == pytest.approx(log(p))
    torch.testing.assert_close(logits.exp().sum(2), torch.ones(B, T).double())


def test_a_word_that_no_key_holds_gets_nothing_from_the_pointer() -> None:
    words = vocabulary()
    share, pointed = torch.full((B, T), 1e-3).double(), torch.full((B, T, K), 0.999 / K).double()
    targets = torch.full((B, T), 4)
    got = PointerMixture(words, share, pointed, HELD).log_probability(targets)
    assert torch.equal(got, share.log() + words.log_probability(targets))


@pytest.mark.parametrize("target", [1, 4])
@pytest.mark.parametrize("sure", [-300.0, 300.0])
def test_weights_that_underflow_leave_finite_gradients(target: int, sure: float) -> None:
    scores = torch.zeros(1, 1, K + 1)
    scores[..., 0] = sure  # the output layer has all of it, or less than any float can say
    scores.requires_grad_()
    weight = torch.randn(V, D, requires_grad=True)
    share, pointed = parts(scores)
    assert (share == 0).all() if sure < 0 else (pointed == 0).all()
    mixture = PointerMixture(SoftmaxOutput(torch.randn(1, 1, D), weight), share, pointed, HELD[:1])
    loss = mixture.nll(torch.tensor([[target]]))
    loss.backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()
    if target == 4 and sure < 0:  # neither side can produce the word
        assert mixture.log_probability(torch.tensor([[target]])).item() == -torch.inf
        assert loss.item() == pytest.approx(-log(torch.finfo(torch.float32).tiny))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_target_that_neither_side_can_produce_leaves_the_others_their_gradient(
    smoothing: float,
) -> None:
    words, targets = vocabulary(), torch.tensor([[1, V + 1, 6], [V, V + 1, 3]])
    scores = torch.randn(B, T, K + 1).double().requires_grad_()
    states = words.states.requires_grad_()
    extended = ExtendedSoftmax(SoftmaxOutput(states, words.weight, words.bias), 2)
    mixture = PointerMixture(extended, *parts(scores), BEYOND)
    other = torch.where(targets == V + 1, -100, targets)
    other[0, 1] = V + 1  # the first row holds that word, the second does not
    losses = [mixture.nll(each, smoothing=smoothing) for each in (targets, other)]
    got, want = (torch.autograd.grad(each, (scores, states), retain_graph=True) for each in losses)
    smallest = -log(torch.finfo(torch.double).tiny)
    assert (losses[0] - losses[1]).item() > 0.5 * smallest
    assert losses[0].isfinite()
    for one, another in zip(got, want, strict=True):
        assert one.isfinite().all()
        if not smoothing:
            torch.testing.assert_close(one, another)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_gradient_is_exact(smoothing: float) -> None:
    words, targets = vocabulary(), torch.tensor([[1, 4, 6], [0, -100, 3]])

    def loss(scores: Tensor, states: Tensor) -> Tensor:
        said = SoftmaxOutput(states, words.weight, words.bias)
        return PointerMixture(said, *parts(scores), HELD).nll(targets, smoothing=smoothing)

    scores = torch.randn(B, T, K + 1).double().requires_grad_()
    assert torch.autograd.gradcheck(loss, (scores, words.states.requires_grad_()))


def test_smoothing_pulls_towards_every_word_of_the_mixture() -> None:
    mixture = PointerMixture(vocabulary(), *parts(torch.randn(B, T, K + 1).double()), HELD)
    targets = torch.tensor([[1, 4, 6], [0, 2, 3]])
    each = mixture.logits()
    right = each.gather(2, targets.unsqueeze(2)).sum().item()
    want = -(0.9 * right + 0.1 / V * each.sum().item())
    assert mixture.nll(targets, smoothing=0.1).item() == pytest.approx(want)
    others = each.sum().item() - each[:, :, 5].sum().item()
    want = -(0.9 * right + 0.1 / (V - 1) * others)
    assert mixture.nll(targets, smoothing=0.1, excluded=5).item() == pytest.approx(want)


def test_mixtures_may_be_mixed_again() -> None:
    inner = PointerMixture(vocabulary(), *parts(torch.randn(B, T, K + 1).double()), HELD)
    share = torch.full((B, T), 0.75).double()
    outer = PointerMixture(inner, share, torch.full((B, T, K), 0.25 / K).double(), HELD)
    torch.testing.assert_close(outer.logits().exp().sum(2), torch.ones(B, T).double())
    got = outer.log_probability(torch.full((B, T), 4)) - inner.log_probability(
        torch.full((B, T), 4)
    )
    torch.testing.assert_close(got.exp(), share)


def test_a_word_outside_the_vocabulary_is_refused(as_users_run_it: None) -> None:
    mixture = PointerMixture(vocabulary(), *parts(torch.randn(B, T, K + 1).double()), HELD + V)
    with pytest.raises(UserError, match="outside a vocabulary of 7"):
        mixture.logits()


@pytest.mark.parametrize("piece", [0, 2**24])
def test_the_output_layer_agrees_with_torch(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.outputs.next_token.PIECE", piece)
    words, targets = vocabulary(), torch.tensor([[1, 4, 6], [0, -100, 3]])
    flat = words.logits().flatten(0, 1)
    want = nn.functional.cross_entropy(flat, targets.flatten(), reduction="none").view(B, T)
    torch.testing.assert_close(words.log_probability(targets), -want)
    assert exp(words.log_probability(targets)[1, 1].item()) == 1.0


BEYOND = torch.tensor([[1, V, 1, V + 1], [0, 0, 3, V]])
"""Two words beyond the vocabulary in the first row, one in the second."""


def test_words_beyond_the_vocabulary_can_only_be_pointed_at() -> None:
    words, (share, pointed) = vocabulary(), parts(torch.randn(B, T, K + 1).double())
    mixture = PointerMixture(ExtendedSoftmax(words, 2), share, pointed, BEYOND)
    logits = mixture.logits()
    assert logits.shape == (B, T, V + 2)
    torch.testing.assert_close(logits.exp().sum(2), torch.ones(B, T).double())
    torch.testing.assert_close(logits[0, :, V:].exp(), pointed[0][:, [1, 3]])
    assert (logits[1, :, V + 1] == -torch.inf).all(), "another row's word"
    for w in range(V + 2):
        each = mixture.log_probability(torch.full((B, T), w))
        torch.testing.assert_close(each, logits[..., w])


def test_an_output_layer_never_says_what_is_beyond_its_vocabulary() -> None:
    words = vocabulary()
    extended = ExtendedSoftmax(words, 3)
    within, beyond = torch.randint(V, (B, T)), torch.full((B, T), V + 2)
    torch.testing.assert_close(extended.log_probability(within), words.log_probability(within))
    assert (extended.log_probability(beyond) == -torch.inf).all()
    for smoothing in (0.0, 0.1):
        want = words.nll(within, smoothing=smoothing)
        torch.testing.assert_close(extended.nll(within, smoothing=smoothing), want)
        assert extended.nll(beyond, smoothing=smoothing) == torch.inf


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_smoothing_leaves_out_what_nobody_can_say(smoothing: float) -> None:
    """And the gradient is exact there too."""
    words, targets = vocabulary(), torch.tensor([[1, V + 1, 6], [V, -100, 3]])

    def loss(scores: Tensor, states: Tensor) -> Tensor:
        said = ExtendedSoftmax(SoftmaxOutput(states, words.weight, words.bias), 2)
        return PointerMixture(said, *parts(scores), BEYOND).nll(targets, smoothing=smoothing)

    scores = torch.randn(B, T, K + 1).double().requires_grad_()
    states = words.states.requires_grad_()
    assert loss(scores, states).isfinite()
    assert torch.autograd.gradcheck(loss, (scores, states))
    logits = PointerMixture(ExtendedSoftmax(words, 2), *parts(scores), BEYOND).logits()
    want = 0.0
    for b in range(B):
        for t in range(T):
            if targets[b, t] >= 0:
                finite = [each.item() for each in logits[b, t] if each.isfinite()]
                want -= (1 - smoothing) * logits[b, t, targets[b, t]].item()
                want -= smoothing * sum(finite) / len(finite)
    assert loss(scores, states).item() == pytest.approx(want)
