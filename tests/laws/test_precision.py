"""Laws of precision: what runs under the trainer's bfloat16 autocast is what float32 gives.

A bfloat16 number has eight bits, so rounding one costs up to 2⁻⁹ of it. Inputs are rounded to
bfloat16 first; the reference is computed in float32 from these same inputs. What is left is the
rounding of a few results, at most ROUNDING of the largest, whatever the number of keys.

Where this processor has no bfloat16 products, scores are compared without autocast, on rounded
inputs alone. Weighings and the conditional random field need none.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor

from regard.attention import SCORES, WEIGHS, Attend, Past, Sample, padding, score_named, weigh_named
from regard.core.device import precision_works
from regard.core.padding import IGNORE
from regard.layers.crf import CRF
from regard.outputs import next_token as output
from regard.outputs.masked_lm import MaskedWords
from regard.outputs.next_token import NextTokens, SoftmaxOutput
from regard.outputs.pointer import ExtendedSoftmax, PointerMixture
from regard.outputs.tags import IndependentTags
from regard.outputs.word_pairs import NegativeSampling

B, H, Q, E = 2, 2, 5, 16
KEYS = (32, 1024)
ROUNDING = 2**-6
"""Of the largest number of a result: eight times what rounding it once to bfloat16 can cost."""
SUMS = 2**-8
"""How far the sum of a row of weights may be from one: their roundings, added up."""
HALF = (torch.bfloat16, torch.float16)


def autocast() -> AbstractContextManager[None]:
    if precision_works("bfloat16", torch.device("cpu")):
        return torch.autocast("cpu", dtype=torch.bfloat16)
    return nullcontext()


def rounded(*shape: int) -> Tensor:
    """Random numbers that bfloat16 can hold, in float32."""
    return torch.randn(*shape).bfloat16().float()


def close(got: Tensor, want: Tensor, tolerance: float = ROUNDING) -> None:
    """Within the tolerance of the largest number."""
    most = want.detach().abs().max().item()
    torch.testing.assert_close(got.detach().float(), want.detach(), atol=tolerance * most, rtol=0)


def looked(keys: int, scale: float = 1.0) -> Past:
    """The past of a decoder that has looked at every key for some time."""
    weights = torch.randn(B, H, 1, keys).softmax(-1)
    return Past(first=3, weights=weights, total=weights * scale, state=torch.rand(B, H, 1, 10))


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("name", SCORES)
def test_every_score_and_its_gradient(name: str, keys: int) -> None:
    score = score_named(name, E, E, H)
    if name == "location":
        score = SCORES[name](E, longest=keys)  # type: ignore[call-arg]
    rows = 1 if score.sequential else Q
    query, key, past = rounded(B, H, rows, E), rounded(B, H, keys, E), looked(keys, 9.0)
    query.requires_grad_()
    slope = rounded(B, H, rows, keys)

    def both() -> tuple[Tensor, Tensor]:
        scores = score(query, score.prepare(key), past)
        if name == "even":
            return scores, scores
        return scores, torch.autograd.grad((scores.float() * slope).sum(), query)[0]

    want, want_slope = both()
    with autocast():
        got, got_slope = both()
    close(got, want)
    close(got_slope, want_slope, 2 * ROUNDING)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("name", WEIGHS)
def test_every_weighing_and_its_gradient(name: str, keys: int, dtype: torch.dtype) -> None:
    """The same keys weigh nothing, the others what they should, and rows sum to one."""
    weigh = weigh_named(name, E)
    rows = 1 if weigh.sequential else Q
    query, past, slope = rounded(B, H, rows, E), looked(keys), rounded(B, H, rows, keys)
    if name == "local_m":
        past = Past(first=keys - 9)
    for real in (None, torch.tensor([keys, keys - 5])):
        allowed = None if real is None else padding(real).table(rows, keys)
        scores = rounded(B, H, rows, keys).requires_grad_()
        want = weigh(scores, allowed, query, past)
        low = scores.detach().to(dtype).requires_grad_()
        with autocast():
            got = weigh(low, allowed, query.to(dtype), past)
        assert torch.equal(got == 0, want.to(got.dtype) == 0), "other keys"
        close(got, want)
        if weigh.normalised:
            assert ((got.float().sum(-1) - 1).abs() <= SUMS).all()
        if want.requires_grad and name != "mixture_window":
            (want * slope).sum().backward()
            (got.float() * slope).sum().backward()
            assert scores.grad is not None
            assert low.grad is not None
            close(low.grad, scores.grad, 2 * ROUNDING)


@pytest.mark.parametrize("name", ["local_m", "local_p", "mixture_window", "shift_sharpen"])
@pytest.mark.parametrize("keys", [300, 2048])
def test_windows_stand_where_float32_has_them(name: str, keys: int) -> None:
    weigh, query = weigh_named(name, E), 4 * rounded(B, H, 64, E)
    scores = rounded(B, H, 64, keys)
    step = 1 if weigh.sequential else 64
    past = Past(first=keys - 64, state=torch.full((B, H, 1, 10), float(keys - 70)))
    want = weigh(scores[:, :, :step], None, query[:, :, :step], past)
    with autocast():
        got = weigh(scores[:, :, :step].bfloat16(), None, query[:, :, :step].bfloat16(), past)
    assert torch.equal(got == 0, want.bfloat16() == 0)
    close(got, want)


@pytest.mark.parametrize("keys", KEYS)
def test_coverage_is_added_up_in_float32(keys: int) -> None:
    """Weights of a thousandth, a thousand times: in bfloat16 the sum stops at a quarter."""
    attend = Attend(score_named("even", E))
    past = Past()
    for _ in range(keys):
        weights = torch.full((B, H, 1, keys), 1 / keys, dtype=torch.bfloat16)
        past = attend.after(rounded(B, H, 1, E), weights, past)
    assert past.total is not None
    torch.testing.assert_close(past.total, torch.ones(B, H, 1, keys), atol=1e-4, rtol=0)


@pytest.mark.parametrize("keys", KEYS)
def test_the_chance_of_a_drawn_key(keys: int) -> None:
    sample = Sample(Attend(score_named("dot", E)))
    memory = sample.remember(rounded(B, H, keys, E), rounded(B, H, keys, E))
    query = rounded(B, H, Q, E)
    want = sample.best(query, memory)
    with autocast():
        got = sample.best(query, memory)
    chosen = got.choice == want.choice
    close(got.log_probability[chosen], want.log_probability[chosen], 2 * ROUNDING)
    close(got.entropy, want.entropy, 2 * ROUNDING)


D, T = 24, 40
WORDS = (32, 1024)


def outputs(words: int) -> dict[str, Callable[[], NextTokens]]:
    """Every kind of prediction, of states as they come under autocast."""
    states, weight = rounded(B, T, D), rounded(words, D) / 4
    bias, held = rounded(words), torch.randint(words + 2, (B, 7))
    shares = rounded(B, T, 8).softmax(2)
    low = torch.bfloat16 if precision_works("bfloat16", torch.device("cpu")) else torch.float32

    def given(x: Tensor) -> Tensor:
        return x.to(low) if torch.is_autocast_enabled("cpu") else x

    def vocabulary() -> SoftmaxOutput:
        return SoftmaxOutput(given(states), weight, bias)

    def mixture() -> PointerMixture:
        share, pointed = given(shares[..., 0]), given(shares[..., 1:])
        return PointerMixture(ExtendedSoftmax(vocabulary(), 2), share, pointed, held)

    return {
        "vocabulary": vocabulary,
        "extended": lambda: ExtendedSoftmax(vocabulary(), 2),
        "hidden words": lambda: MaskedWords(given(states), torch.tanh, weight, bias),
        "mixture": mixture,
    }


@pytest.mark.parametrize("piece", [1, output.PIECE])
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("name", outputs(3))
def test_every_output(name: str, words: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that is summed over positions loses none of its digits: a thousandth of it at most."""
    monkeypatch.setattr(output, "PIECE", piece)
    made = outputs(words)[name]
    targets = torch.randint(words, (B, T))
    targets[1, 30:] = IGNORE
    for smoothing in (0.0, 0.1):
        want = made().nll(targets, smoothing=smoothing)
        with autocast():
            got = made().nll(targets, smoothing=smoothing)
        assert got.dtype == torch.float32
        close(got, want, 1e-3)
    want = made().log_probability(targets)
    with autocast():
        got = made().log_probability(targets)
    assert got.dtype == torch.float32
    close(got, want)


@pytest.mark.parametrize("words", WORDS)
def test_noise_contrast_counts_every_pair(words: int) -> None:
    scores = rounded(B, T, words)
    true = (torch.rand(B, T, words) < 0.3).float()
    want, got = (
        NegativeSampling(scores.to(dtype), true.to(dtype), (1 - true).to(dtype))
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert got.items == want.items == int(true.sum())
    assert got.loss({}).item() == pytest.approx(want.loss({}).item(), rel=1e-5)


@pytest.mark.parametrize("words", [32, 1024])
def test_a_conditional_random_field(words: int) -> None:
    """Marginals sum to one over a sentence of a thousand words, as log Z and its gradient are."""
    field, lengths = CRF(5, init_range=1.0), torch.tensor([words, words - 7])
    scores = rounded(2, words, 5).requires_grad_()
    tags = torch.randint(5, (2, words))
    low = scores.detach().bfloat16().requires_grad_()
    want = field(scores, lengths)
    want.nll(tags).backward()
    slopes = [each.grad for each in field.parameters()]
    field.zero_grad(set_to_none=True)
    with autocast():
        got = field(low, lengths)
        got.nll(tags).backward()
        assert torch.equal(got.best(), want.best())
        likely = got.probabilities()
    torch.testing.assert_close(got.log_partition(), want.log_partition(), rtol=1e-5, atol=0)
    torch.testing.assert_close(got.score(tags), want.score(tags), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(likely, want.probabilities(), rtol=0, atol=1e-4)
    for each, slope in zip(field.parameters(), slopes, strict=True):
        torch.testing.assert_close(each.grad, slope, rtol=1e-4, atol=1e-3)
    assert low.grad is not None
    assert scores.grad is not None
    close(low.grad, scores.grad)


def test_tags_of_words_apart() -> None:
    scores, lengths = rounded(2, 40, 1024), torch.tensor([40, 33])
    tags = torch.randint(1024, (2, 40))
    want = IndependentTags(scores, lengths)
    with autocast():
        got = IndependentTags(scores.bfloat16(), lengths)
        loss = got.nll(tags)
    close(loss, want.nll(tags), 1e-3)
    close(got.probabilities(), want.probabilities())


def test_the_tolerance_sees_a_window_that_is_two_keys_off() -> None:
    want = torch.zeros(40).index_fill(0, torch.arange(20, 30), 0.1)
    with pytest.raises(AssertionError):
        close(want.roll(2), want)
