"""Laws of attention, held over the whole tables: a new row is tested the day it is added."""

import pytest
import torch
from torch import Tensor

from regard.attention import (
    SCORES,
    START,
    WEIGHS,
    Attend,
    Location,
    Mask,
    RelativeSkewed,
    causal,
    padding,
    record,
    score_named,
    table,
    weigh_named,
    window,
)

B, H, Q, K, E, W = 3, 2, 5, 7, 8, 6
PAIRS = [
    *((score, "softmax") for score in SCORES),
    *(("dot", weigh) for weigh in WEIGHS if weigh != "softmax"),
    ("coverage", "mixture_window"),
    ("location_aware", "shift_sharpen"),
    ("relative_xl", "local_p"),
]
"""Every score with one weighing, every weighing with one score: they meet in Attend alone. And some
pairs that both need the past."""
NO_GRADIENT = {"argmax"}
SMALL = {
    "location": lambda: Location(E, longest=6),
    "relative_skewed": lambda: RelativeSkewed(E, heads=H, longest=3),
}
"""Scores whose default tables are too large to be checked number by number."""


def attention(score: str, weigh: str, dtype: torch.dtype = torch.double) -> Attend:
    return Attend(score_named(score, E, E, H), weigh_named(weigh, E)).to(dtype)


def numbers(*shape: int, dtype: torch.dtype = torch.double) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def masks() -> dict[str, Mask]:
    holes = torch.rand(B, H, Q, K) < 0.6
    holes[0, 0, 1] = False
    return {
        "padding": padding(torch.tensor([4, K, 0])),
        "window": window(left=1, right=1),
        "holes": table(holes),
        "causal and padding": causal() & padding(torch.tensor([3, 1, K])),
    }


@pytest.mark.parametrize(("score", "weigh"), PAIRS)
def test_forbidden_keys_weigh_exactly_nothing_and_rows_sum_to_one(score: str, weigh: str) -> None:
    attend = attention(score, weigh)
    memory = attend.remember(numbers(B, H, K, E), numbers(B, H, K, W))
    for name, mask in masks().items():
        weights = attend.weights(numbers(B, H, Q, E), memory, mask)
        allowed = mask.table(Q, K).expand(B, H, Q, K)
        assert (weights[~allowed] == 0).all(), name
        assert (weights >= 0).all(), name
        if attend.weigh.normalised:
            some = allowed.any(-1).to(weights.dtype)
            torch.testing.assert_close(weights.sum(-1), some, msg=name)


@pytest.mark.parametrize(("score", "weigh"), PAIRS)
def test_an_empty_row_reads_zeros_and_nothing_is_ever_nan(score: str, weigh: str) -> None:
    attend = attention(score, weigh)
    query, key, value = numbers(B, H, Q, E), numbers(B, H, K, E), numbers(B, H, K, W)
    for name, mask in masks().items():
        out = attend(query, attend.remember(key, value), mask)
        empty = ~mask.table(Q, K).expand(B, H, Q, K).any(-1)
        assert (out[empty] == 0).all(), name
        out.square().sum().backward()
        for tensor in (query, key, value, *attend.parameters()):
            assert tensor.grad is None or tensor.grad.isfinite().all(), name
        assert out.isfinite().all(), name


@pytest.mark.parametrize(("score", "weigh"), PAIRS)
def test_the_read_is_the_weighted_sum(score: str, weigh: str) -> None:
    attend = attention(score, weigh)
    query, value = numbers(B, H, Q, E), numbers(B, H, K, W)
    memory = attend.remember(numbers(B, H, K, E), value)
    for mask in (None, *masks().values()):
        expected = attend.weights(query, memory, mask) @ value
        torch.testing.assert_close(attend(query, memory, mask), expected)


@pytest.mark.parametrize(("score", "weigh"), PAIRS)
def test_stepping_equals_the_whole_sequence(score: str, weigh: str) -> None:
    attend = attention(score, weigh)
    query, key, value = numbers(B, H, K, E), numbers(B, H, K, E), numbers(B, H, K, W)
    whole = attend(query, attend.remember(key, value), causal())
    past, rows = START, []
    for t in range(K):  # the keys grow with the steps, as in a decoder that looks at itself
        memory = attend.remember(key[:, :, : t + 1], value[:, :, : t + 1])
        read, past = attend.step(query[:, :, t : t + 1], memory, causal(), past)
        rows.append(read)
    torch.testing.assert_close(torch.cat(rows, dim=2), whole)
    assert past.first == K


@pytest.mark.parametrize(("score", "weigh"), PAIRS)
def test_stepping_over_a_fixed_memory_equals_the_whole(score: str, weigh: str) -> None:
    attend = attention(score, weigh)
    query, mask = numbers(B, H, Q, E), padding(torch.tensor([4, K, 0]))
    memory = attend.remember(numbers(B, H, K, E), numbers(B, H, K, W))
    whole = attend(query, memory, mask)
    first, past = attend.step(query[:, :, :2], memory, mask)
    second, past = attend.step(query[:, :, 2:], memory, mask, past)
    torch.testing.assert_close(torch.cat((first, second), dim=2), whole)


@pytest.mark.parametrize(("score", "weigh"), PAIRS)
def test_batch_mates_and_padding_never_matter(score: str, weigh: str) -> None:
    attend = attention(score, weigh)
    query, key, value = numbers(B, H, Q, E), numbers(B, H, K, E), numbers(B, H, K, W)
    lengths = torch.tensor([4, K, 2])
    together = attend(query, attend.remember(key, value), padding(lengths))
    for row, length in enumerate(lengths.tolist()):
        short = slice(row, row + 1), slice(None), slice(0, length)
        alone = attend(query[row : row + 1], attend.remember(key[short], value[short]))
        torch.testing.assert_close(together[row : row + 1], alone)


@pytest.mark.parametrize(("score", "weigh"), PAIRS)
def test_recording_changes_not_a_bit(score: str, weigh: str) -> None:
    attend = attention(score, weigh, torch.float32)
    query, key, value = (
        numbers(B, H, n, w, dtype=torch.float32) for n, w in ((Q, E), (K, E), (K, W))
    )
    mask = padding(torch.tensor([4, K, 1]))
    plain = attend(query, attend.remember(key, value), mask)
    with record(attend) as tape:
        recorded = attend(query, attend.remember(key, value), mask)
    assert torch.equal(plain, recorded)
    weights = attend.weights(query, attend.remember(key, value), mask)
    torch.testing.assert_close(tape.weights("attend"), weights, atol=1e-6, rtol=1e-5)
    assert not tape.weights("attend").requires_grad


@pytest.mark.parametrize("score", SCORES)
def test_gradients_of_every_score(score: str) -> None:
    built = SMALL[score]() if score in SMALL else score_named(score, E, E, H)
    built = built.double()
    query, key = numbers(2, H, 1 if built.sequential else 3, E), numbers(2, H, 4, E)
    past, weights = START, torch.rand(2, H, 1, 4, dtype=torch.double)
    if built.sequential:
        past = type(past)(first=1, weights=weights, total=weights * 2)
    parameters = [p for p in built.parameters() if p.requires_grad]

    def scores(query: Tensor, key: Tensor, *_: Tensor) -> Tensor:
        return built(query, built.prepare(key), past)

    if score == "even":
        assert not scores(query, key).requires_grad
        return
    assert torch.autograd.gradcheck(scores, (query, key, *parameters))


@pytest.mark.parametrize("weigh", sorted(set(WEIGHS) - NO_GRADIENT - {"straight_through"}))
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_every_weighing(weigh: str, masked: bool) -> None:
    built = weigh_named(weigh, E).double()
    rows = 1 if built.sequential else 3
    scores, query = numbers(2, H, rows, 6), numbers(2, H, rows, E)
    allowed = padding(torch.tensor([4, 0])).table(rows, 6) if masked else None
    past = START
    if built.sequential:
        past = type(past)(weights=torch.rand(2, H, 1, 6, dtype=torch.double))
    parameters = tuple(built.parameters())

    def weights(scores: Tensor, query: Tensor, *_: Tensor) -> Tensor:
        return built(scores, allowed, query, past)

    assert torch.autograd.gradcheck(weights, (scores, query, *parameters))


def test_straight_through_has_the_gradient_of_softmax_and_argmax_has_none() -> None:
    scores, slope = numbers(2, H, 3, 6), torch.randn(2, H, 3, 6, dtype=torch.double)
    allowed = padding(torch.tensor([4, 0])).table(3, 6)
    through = torch.autograd.grad(
        (weigh_named("straight_through", E)(scores, allowed) * slope).sum(), scores
    )
    soft = torch.autograd.grad((weigh_named("softmax", E)(scores, allowed) * slope).sum(), scores)
    torch.testing.assert_close(through, soft)
    assert not weigh_named("argmax", E)(scores, allowed).requires_grad
