"""What the laws over the tables do not reach: reads, samples, pasts, tiles and corners."""

import pytest
import torch

from regard.attention import (
    START,
    Additive,
    Attend,
    Copy,
    Cosine,
    Dot,
    Gather,
    Hops,
    Location,
    MixtureWindow,
    Past,
    RelativeSkewed,
    Sample,
    ScaledDot,
    Softmax,
    TopK,
    padding,
)
from regard.attention.place import sharpen
from regard.kernels.additive import additive_scores

B, H, Q, K, E = 2, 3, 4, 5, 6


def test_gather_takes_the_heaviest_value_whole_and_nothing_from_an_empty_row() -> None:
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.0, 0.0, 0.0]]).view(1, 1, 2, 3)
    value = torch.arange(6.0).view(1, 1, 3, 2)
    assert Gather()(weights, value)[0, 0].tolist() == [[2.0, 3.0], [0.0, 0.0]]


def test_copying_adds_up_the_weights_of_repeated_tokens() -> None:
    attend = Attend(Dot(E), read=Copy(vocabulary=12))
    tokens = torch.tensor([[3, 11, 3, 0, 3], [1, 2, 1, 2, 2]])
    memory = attend.remember(torch.randn(B, 1, K, E), tokens.view(B, 1, K, 1))
    query = torch.randn(B, 1, Q, E)
    copied, weights = attend(query, memory), attend.weights(query, memory)
    expected = torch.zeros(B, 1, Q, 12)
    for b in range(B):
        for k in range(K):
            expected[b, 0, :, tokens[b, k]] += weights[b, 0, :, k]
    torch.testing.assert_close(copied, expected)
    torch.testing.assert_close(copied.sum(-1), torch.ones(B, 1, Q))


def test_hops_ask_again_with_what_was_found() -> None:
    first, second = Attend(Dot(E)), Attend(Dot(E))
    query = torch.randn(B, H, Q, E)
    one, two = (
        a.remember(torch.randn(B, H, K, E), torch.randn(B, H, K, E)) for a in (first, second)
    )
    mask = padding(torch.tensor([K, 2]))
    found = query + first(query, one, mask)
    expected = found + second(found, two, mask)
    torch.testing.assert_close(Hops([first, second])(query, [one, two], mask), expected)


def test_samples_follow_the_weights_and_know_their_probability() -> None:
    sample = Sample(Attend(Dot(E)))
    query = torch.randn(1, 1, 1, E).expand(1, 1, 4000, E)
    value = torch.randn(1, 1, K, 2)
    memory, mask = sample.remember(torch.randn(1, 1, K, E) * 0.5, value), padding(torch.tensor([4]))
    drawn = sample(query, memory, mask, generator=torch.Generator().manual_seed(0))
    weights = sample.attend.weights(query[:, :, :1], memory, mask).flatten()
    share = torch.bincount(drawn.choice.flatten(), minlength=K) / 4000
    torch.testing.assert_close(share, weights, atol=0.03, rtol=0)  # three standard deviations
    assert share[4] == 0
    torch.testing.assert_close(drawn.log_probability.exp(), weights[drawn.choice])
    torch.testing.assert_close(drawn.read, value[0, 0][drawn.choice])
    entropy = -(weights[:4] * weights[:4].log()).sum()
    torch.testing.assert_close(drawn.entropy, entropy.expand(1, 1, 4000))
    best = sample.best(query[:, :, :1], memory, mask)
    assert best.choice.item() == weights.argmax().item()


def test_sampling_heads_may_share_keys_and_values() -> None:
    sample = Sample(Attend(Dot(E)))
    query, value = torch.randn(B, 4, Q, E), torch.randn(B, 2, K, 3)
    drawn = sample.best(query, sample.remember(torch.randn(B, 2, K, E), value))
    for head in range(4):
        for b in range(B):
            chosen = value[b, head // 2][drawn.choice[b, head]]
            torch.testing.assert_close(drawn.read[b, head], chosen)


def test_reinforce_on_samples_points_where_the_exact_gradient_points() -> None:
    """E[r ∇log α] over all choices is ∇E[r]: checked by enumeration, not by chance."""
    sample = Sample(Attend(Dot(E))).double()
    query = torch.randn(1, 1, 1, E, dtype=torch.double, requires_grad=True)
    key = torch.randn(1, 1, K, E, dtype=torch.double)
    memory, reward = sample.remember(key, key), torch.randn(K, dtype=torch.double)
    weights = sample.attend.weights(query, memory).flatten()
    (exact,) = torch.autograd.grad((weights * reward).sum(), query, retain_graph=True)
    estimate = torch.zeros_like(query)
    for choice in range(K):
        drawn = sample._read_choice(
            query, weights.view(1, 1, 1, K), torch.tensor([[[choice]]]), memory, START
        )
        (slope,) = torch.autograd.grad(drawn.log_probability.sum(), query, retain_graph=True)
        estimate += weights[choice].detach() * reward[choice] * slope
    torch.testing.assert_close(estimate, exact)


def test_sampling_from_an_empty_row_is_certain_to_read_nothing() -> None:
    sample = Sample(Attend(Dot(E)))
    query = torch.randn(2, H, Q, E, requires_grad=True)
    memory = sample.remember(torch.randn(2, H, K, E), torch.randn(2, H, K, E))
    drawn = sample(query, memory, padding(torch.tensor([K, 0])))
    assert (drawn.read[1] == 0).all()
    assert (drawn.log_probability[1] == 0).all()
    assert (drawn.entropy[1] == 0).all()
    (drawn.log_probability.sum() + drawn.entropy.sum()).backward()
    assert query.grad is not None
    assert query.grad.isfinite().all()


@pytest.mark.parametrize("limit", [1, 7, 100, 10**6])
def test_tiles_of_any_size_give_the_same_scores_and_gradients(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.kernels.additive.CACHE_ELEMENTS", limit)
    inputs = [
        torch.randn(*shape, dtype=torch.double, requires_grad=True)
        for shape in ((B, H, Q, E), (B, H, K, E), (E,))
    ]
    asked, answered, vector = inputs
    slope = torch.randn(B, H, Q, K, dtype=torch.double)
    tiled = additive_scores(asked, answered, vector)
    broadcast = (asked.unsqueeze(3) + answered.unsqueeze(2)).tanh() @ vector
    torch.testing.assert_close(tiled, broadcast)
    got = torch.autograd.grad((tiled * slope).sum(), inputs)
    want = torch.autograd.grad((broadcast * slope).sum(), inputs)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)


def test_keys_are_prepared_once_per_source() -> None:
    attend = Attend(Additive(E, 9, hidden=7))
    memory = attend.remember(torch.randn(B, H, K, 9), torch.randn(B, H, K, 2))
    assert memory.key.shape == (B, H, K, 7)
    assert attend(torch.randn(B, H, Q, E), memory).shape == (B, H, Q, 2)


def test_a_past_can_be_reordered_like_a_beam() -> None:
    attend = Attend(Dot(E), MixtureWindow(E, mixtures=2))
    memory = attend.remember(torch.randn(3, H, K, E), torch.randn(3, H, K, E))
    query, order = torch.randn(3, H, 1, E), torch.tensor([2, 0, 0])
    _, past = attend.step(query, memory)
    straight, _ = attend.step(query, memory, past=past)
    turned, _ = attend.step(query[order], memory.select(order), past=past.select(order))
    torch.testing.assert_close(turned, straight[order])


def test_the_window_of_graves_only_moves_forward() -> None:
    weigh = MixtureWindow(E, mixtures=3)
    query = torch.randn(B, H, Q, E)
    kappa = weigh.advance(query, START)
    assert (kappa.diff(dim=2) > 0).all()
    again = weigh.advance(query, Past(state=kappa[:, :, -1:]))
    assert (again[:, :, :1] > kappa[:, :, -1:]).all()


def test_sharpening_survives_powers_that_underflow() -> None:
    weights = torch.full((1, 1, 1, 128), 1 / 128)
    weights[..., 5] = 2 / 128
    sharp = sharpen(weights, torch.tensor(200.0))
    assert sharp.isfinite().all()
    assert sharp[..., 5].item() == pytest.approx(1.0)


def test_far_keys_share_the_farthest_learned_distance() -> None:
    score = RelativeSkewed(E, longest=2).double()
    query, key = torch.randn(1, 1, 1, E, dtype=torch.double), torch.zeros(1, 1, 6, E).double()
    scores = score(query, key, Past(first=5)).flatten()
    assert len({round(x, 12) for x in scores[:5].tolist()}) == 1
    assert scores[5] != scores[4]


def test_temperature_and_beta_sharpen() -> None:
    query, key = torch.randn(1, 1, 1, E), torch.randn(1, 1, K, E)

    def peak(attend: Attend) -> float:
        return attend.weights(query, attend.remember(key, key)).max().item()

    assert (
        peak(Attend(Dot(E), Softmax(0.1)))
        > peak(Attend(Dot(E)))
        > peak(Attend(Dot(E), Softmax(9.0)))
    )
    assert peak(Attend(Cosine(E, beta=50.0))) > peak(Attend(Cosine(E, beta=1.0)))


def test_top_k_of_more_keys_than_there_are_is_softmax() -> None:
    scores = torch.randn(B, H, Q, K)
    torch.testing.assert_close(TopK(99)(scores), Softmax()(scores))


def test_a_location_score_is_the_same_function_at_every_length() -> None:
    score = Location(E, longest=9)
    query = torch.randn(B, H, Q, E)
    long = score(query, torch.randn(B, H, 9, E))
    torch.testing.assert_close(score(query, torch.randn(B, H, 4, E)), long[..., :4])


def test_scaled_dot_is_fused_with_the_scale_it_says() -> None:
    attend = Attend(ScaledDot(E), Softmax(2.0))
    query, key = torch.randn(B, H, Q, E), torch.randn(B, H, K, E)
    expected = ((query @ key.transpose(2, 3)) / (E**0.5 * 2)).softmax(-1) @ key
    torch.testing.assert_close(attend(query, attend.remember(key, key)), expected)
