"""Every score and every weighing against a literal loop over its paper's equation."""

from collections.abc import Callable
from math import cos, exp, log, sin, sqrt, tanh

import pytest
import torch
from torch import Tensor

from regard.attention import (
    SCORES,
    WEIGHS,
    Bilinear,
    Past,
    ProjectedKeys,
    Score,
    Weigh,
    padding,
    score_named,
    skew,
    weigh_named,
)

B, H, Q, K, E = 2, 2, 3, 5, 4
Numbers = list[float]


def dot(a: Numbers, b: Numbers) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def times(matrix: Tensor, vector: Numbers) -> Numbers:
    return [dot(row, vector) for row in matrix.tolist()]


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def softplus(x: float) -> float:
    return log(1 + exp(x))


def softmax(e: Numbers) -> Numbers:
    total = sum(exp(x) for x in e)
    return [exp(x) / total for x in e]


def hidden(s: Score, q: Numbers, k: Numbers, more: Numbers | None = None) -> float:
    more = more or [0.0] * E
    inside = zip(times(s.ask.weight, q), times(s.answer.weight, k), more, strict=True)
    return dot(s.vector.tolist(), [tanh(a + b + c) for a, b, c in inside])


def located(s: Score, before: Numbers, j: int) -> Numbers:
    kernels = s.convolve.weight[:, 0].tolist()
    reach = len(kernels[0]) // 2
    features = [
        sum(
            kernel[o + reach] * before[j + o]
            for o in range(-reach, reach + 1)
            if 0 <= j + o < len(before)
        )
        for kernel in kernels
    ]
    return times(s.place.weight, features)


def xl_term(s: Score, h: int, distance: int, q: Numbers) -> float:
    width = H * E
    wave = [
        f(distance / 10000 ** (2 * (i // 2) / width))
        for i, f in enumerate([sin, cos] * (width // 2))
    ]
    turned = times(s.turn.weight, wave)[h * E : (h + 1) * E]
    return dot([a + b for a, b in zip(q, s.v[h, 0].tolist(), strict=True)], turned)


def plus(a: Numbers, b: Numbers) -> Numbers:
    return [x + y for x, y in zip(a, b, strict=True)]


# e(score, head, i, j, q, k, previous weights, total of weights)
EQUATIONS: dict[str, Callable[..., float]] = {
    "even": lambda s, h, i, j, q, k, a, c: 0.0,
    "dot": lambda s, h, i, j, q, k, a, c: dot(q, k),
    "scaled_dot": lambda s, h, i, j, q, k, a, c: dot(q, k) / sqrt(E),
    "bilinear": lambda s, h, i, j, q, k, a, c: dot(times(s.turn.weight, q), k) / s.width**0.5,
    "additive": lambda s, h, i, j, q, k, a, c: hidden(s, q, k),
    "cosine": lambda s, h, i, j, q, k, a, c: (
        softplus(times(s.beta.weight, q)[0] + s.beta.bias.item())
        * dot(q, k)
        / sqrt(dot(q, q) * dot(k, k))
    ),
    "location": lambda s, h, i, j, q, k, a, c: times(s.point.weight, q)[j],
    "location_aware": lambda s, h, i, j, q, k, a, c: hidden(s, q, k, located(s, a, j)),
    "coverage": lambda s, h, i, j, q, k, a, c: hidden(
        s, q, k, [c[j] * w for w in s.cover.tolist()]
    ),
    "relative_clipped": lambda s, h, i, j, q, k, a, c: (
        dot(q, plus(k, s.table[max(-s.clip, min(s.clip, j - i)) + s.clip].tolist())) / sqrt(E)
    ),
    "relative_skewed": lambda s, h, i, j, q, k, a, c: (
        (dot(q, k) + (dot(q, s.table[h, i - j].tolist()) if j <= i else 0.0)) / sqrt(E)
    ),
    "relative_xl": lambda s, h, i, j, q, k, a, c: (
        (dot(plus(q, s.u[h, 0].tolist()), k) + (xl_term(s, h, i - j, q) if j <= i else 0.0))
        / sqrt(E)
    ),
}


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("first", [0, 2])
def test_score_equals_its_equation(name: str, first: int) -> None:
    score = score_named(name, E, E, H).double()
    for parameter in score.parameters():  # some start at zero, where a loop could hide a fault
        torch.nn.init.normal_(parameter)
    query, key = (torch.randn(B, H, n, E, dtype=torch.double) for n in (Q, K))
    query = query[:, :, :1] if score.sequential else query
    weights = torch.rand(B, H, 1, K, dtype=torch.double)
    past = Past(first=first, weights=weights, total=3 * weights)
    got = score(query, score.prepare(key), past)
    for b in range(B):
        for h in range(H):
            a = weights[b, h, 0].tolist()
            for i, q in enumerate(query[b, h].tolist()):
                for j, k in enumerate(key[b, h].tolist()):
                    want = EQUATIONS[name](score, h, first + i, j, q, k, a, [3 * w for w in a])
                    assert got[b, h, i, j].item() == pytest.approx(want, abs=1e-10)


def test_concat_is_the_same_function_as_the_two_matrix_form() -> None:
    additive = score_named("additive", E, E).double()
    query, key = (torch.randn(B, H, n, E, dtype=torch.double) for n in (Q, K))
    joined = torch.cat((additive.ask.weight, additive.answer.weight), dim=1)  # W' = [W U]
    pairs = torch.cat(
        (
            query.unsqueeze(3).expand(B, H, Q, K, E),
            key.unsqueeze(2).expand(B, H, Q, K, E),
        ),
        dim=4,
    )
    concat = (pairs @ joined.T).tanh() @ additive.vector
    torch.testing.assert_close(additive(query, additive.prepare(key)), concat)


def emitted(layer: torch.nn.Linear, q: Numbers) -> Numbers:
    bias = [0.0] * layer.out_features if layer.bias is None else layer.bias.tolist()
    return plus(times(layer.weight, q), bias)


def by_bisection(e: Numbers, alpha: float) -> Numbers:
    """α-entmax by its definition: max((α-1) e - τ, 0)^(1/(α-1)), τ such that it sums to one."""
    scaled = [(alpha - 1) * x for x in e]
    low, high = max(scaled) - 1, max(scaled)
    for _ in range(200):
        tau = (low + high) / 2
        p = [max(x - tau, 0) ** (1 / (alpha - 1)) for x in scaled]
        low, high = (tau, high) if sum(p) > 1 else (low, tau)
    return p


def local_p(w: Weigh, e: Numbers, q: Numbers) -> Numbers:
    turned = [tanh(x) for x in times(w.turn.weight, q)]
    centre = len(e) * sigmoid(times(w.point.weight, turned)[0])
    near = [j for j in range(len(e)) if abs(j - centre) <= w.reach]
    soft = dict(zip(near, softmax([e[j] for j in near]), strict=True))
    spread = w.reach / 2
    return [soft.get(j, 0.0) * exp(-((j - centre) ** 2) / (2 * spread**2)) for j in range(len(e))]


def mixture(w: Weigh, e: Numbers, q: Numbers, kappa: Numbers) -> Numbers:
    heights_and_sharpness = [exp(x) for x in emitted(w.shape, q)]
    heights = heights_and_sharpness[: w.mixtures]
    sharpness = heights_and_sharpness[w.mixtures :]
    kappa = plus(kappa, [exp(x) for x in emitted(w.move, q)])
    bells = list(zip(heights, sharpness, kappa, strict=True))
    return [sum(a * exp(-b * (c - u) ** 2) for a, b, c in bells) for u in range(1, len(e) + 1)]


def turing(w: Weigh, e: Numbers, q: Numbers, before: Numbers) -> Numbers:
    gate = sigmoid(emitted(w.gate, q)[0])
    shifts = softmax(emitted(w.shift, q))
    gamma = 1 + softplus(emitted(w.sharpness, q)[0])
    mixed = [gate * c + (1 - gate) * b for c, b in zip(softmax(e), before, strict=True)]
    n = len(e)
    turned = [
        sum(
            mixed[j] * shifts[s + w.reach]
            for s in range(-w.reach, w.reach + 1)
            for j in [(i - s) % n]
        )
        for i in range(n)
    ]
    total = sum(x**gamma for x in turned)
    return [x**gamma / total for x in turned]


def top(e: Numbers, k: int) -> Numbers:
    kept = sorted(range(len(e)), key=lambda j: -e[j])[:k]
    total = sum(exp(e[j]) for j in kept)
    return [exp(x) / total if j in kept else 0.0 for j, x in enumerate(e)]


def best(e: Numbers) -> Numbers:
    return [1.0 if j == e.index(max(e)) else 0.0 for j in range(len(e))]


def local_m(e: Numbers, reach: int, i: int) -> Numbers:
    centre = min(i, len(e) - 1)
    near = [j for j in range(len(e)) if abs(j - centre) <= reach]
    soft = dict(zip(near, softmax([e[j] for j in near]), strict=True))
    return [soft.get(j, 0.0) for j in range(len(e))]


# α(weighing, scores of the allowed keys, i, q, previous weights, state)
WEIGHTS: dict[str, Callable[..., Numbers]] = {
    "softmax": lambda w, e, i, q, a, s: softmax(e),
    "sparsemax": lambda w, e, i, q, a, s: by_bisection(e, 2.0),
    "entmax15": lambda w, e, i, q, a, s: by_bisection(e, 1.5),
    "topk": lambda w, e, i, q, a, s: top(e, w.k),
    "sigmoid": lambda w, e, i, q, a, s: [sigmoid(x) for x in e],
    "smoothed": lambda w, e, i, q, a, s: [sigmoid(x) / sum(map(sigmoid, e)) for x in e],
    "local_m": lambda w, e, i, q, a, s: local_m(e, w.reach, i),
    "local_p": lambda w, e, i, q, a, s: local_p(w, e, q),
    "mixture_window": lambda w, e, i, q, a, s: mixture(w, e, q, s),
    "shift_sharpen": lambda w, e, i, q, a, s: turing(w, e, q, a),
    "argmax": lambda w, e, i, q, a, s: best(e),
    "straight_through": lambda w, e, i, q, a, s: best(e),
}


@pytest.mark.parametrize("name", WEIGHS)
@pytest.mark.parametrize("first", [0, 4])
def test_weighing_equals_its_equation(name: str, first: int) -> None:
    weigh = weigh_named(name, E).double()
    for small, value in (("reach", 1), ("k", 2)):  # so that something is left out of five keys
        if hasattr(weigh, small):
            assert name == "shift_sharpen" or setattr(weigh, small, value) is None
    scores, query = (torch.randn(B, H, 1, n, dtype=torch.double) for n in (K, E))
    before = torch.rand(B, H, 1, K, dtype=torch.double)
    before = before / before.sum(-1, keepdim=True)
    state = torch.rand(B, H, 1, getattr(weigh, "mixtures", 1), dtype=torch.double)
    got = weigh(scores, None, query, Past(first=first, weights=before, state=state))
    for b in range(B):
        for h in range(H):
            row = (t[b, h, 0].tolist() for t in (scores, query, before, state))
            e, q, a, s = row
            want = WEIGHTS[name](weigh, e, first, q, a, s)
            assert got[b, h, 0].tolist() == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("name", sorted(set(WEIGHS) - {"shift_sharpen", "mixture_window"}))
def test_a_weighing_over_allowed_keys_is_the_weighing_of_those_keys_alone(name: str) -> None:
    weigh = weigh_named(name, E).double()
    scores, query = (torch.randn(1, H, Q, n, dtype=torch.double) for n in (K, E))
    masked = weigh(scores, padding(torch.tensor([3])).table(Q, K), query)
    alone = weigh(scores[..., :3], None, query)
    torch.testing.assert_close(masked[..., :3], alone)


def test_the_tables_are_covered() -> None:
    assert set(EQUATIONS) == set(SCORES)
    assert set(WEIGHTS) == set(WEIGHS)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 4), (3, 3), (4, 2), (3, 7)])
def test_the_skew_reads_each_offset_where_it_belongs(queries: int, keys: int) -> None:
    columns = torch.randn(2, 3, queries, keys + queries - 1)
    turned = skew(columns)
    for i in range(queries):
        for j in range(keys):
            assert torch.equal(turned[..., i, j], columns[..., i, j - i + queries - 1])


def test_relative_scores_need_no_tensor_of_pairs_times_width() -> None:
    """The naive form builds a vector of width E for each pair; ours peaks at a few [Q,R] tables."""
    length, width = 256, 64
    score = score_named("relative_skewed", width, width, 1)
    query, key = torch.randn(1, 1, length, width), torch.randn(1, 1, length, width)
    naive = length * length * width * 4
    with torch.profiler.profile(profile_memory=True) as run:
        score(query, key, Past())
    biggest = max(event.self_cpu_memory_usage for event in run.events())
    assert biggest < naive / 16


def test_keys_of_another_width_are_projected_before_a_score_of_one_width() -> None:
    query, key = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 10)
    for name in SCORES:
        score = score_named(name, 6, 10, heads=3)
        assert score(query, score.prepare(key)).shape == (2, 3, 4, 5)
    dot = score_named("dot", 6, 10)
    assert isinstance(dot, ProjectedKeys)
    bilinear = Bilinear(6, 10)
    bilinear.turn.weight.data = dot.project.weight.data.T * 6**0.5  # which it holds times the root
    expected = bilinear(query, bilinear.prepare(key))
    assert torch.allclose(dot(query, dot.prepare(key)), expected, atol=1e-5)
