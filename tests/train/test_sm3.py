"""SM3 against the loops of the paper, its bounds, and the bytes that optimisers keep."""

import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.train.optimise import OPTIMISERS, build_optimiser, state_bytes
from regard.train.sm3 import SM3Optimizer


def literal(weight, gradients, variant: int, beta: float, lr: float):
    """Algorithms 1 and 2 of the paper, entry by entry, with momentum."""
    shape = weight.shape
    entries = list(itertools.product(*(range(size) for size in shape)))
    cover = [(axis, place) for axis in range(len(shape)) for place in range(shape[axis])]
    inside = {(axis, place): [i for i in entries if i[axis] == place] for axis, place in cover}
    mu, mean, weight = dict.fromkeys(cover, 0.0), dict.fromkeys(entries, 0.0), weight.clone()
    for gradient in gradients:
        g = {i: float(gradient[i]) for i in entries}
        if variant == 1:
            mu = {r: mu[r] + max(g[j] ** 2 for j in inside[r]) for r in cover}
            nu = {i: min(mu[r] for r in enumerate(i)) for i in entries}
        else:
            nu = {i: min(mu[r] for r in enumerate(i)) + g[i] ** 2 for i in entries}
            mu = {r: max(nu[j] for j in inside[r]) for r in cover}
        for i in entries:
            mean[i] = beta * mean[i] + (1 - beta) * (g[i] / nu[i] ** 0.5 if nu[i] else 0.0)
            weight[i] -= lr * mean[i]
    return weight


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 4)])
@pytest.mark.parametrize("variant", [1, 2])
@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_steps_are_those_of_the_paper(shape: tuple[int, ...], variant: int, beta: float) -> None:
    torch.manual_seed(3)
    start = torch.randn(shape, dtype=torch.float64)
    gradients = [torch.randn(shape, dtype=torch.float64) for _ in range(6)]
    gradients[0][0] = 0.0  # 0 / 0 is 0
    weight = nn.Parameter(start.clone())
    optimiser = SM3Optimizer([weight], lr=0.1, momentum=beta, variant=variant)
    for each in gradients:
        weight.grad = each.clone()
        optimiser.step()
        assert torch.equal(weight.grad, each)
    expected = literal(start, gradients, variant, beta, 0.1)
    torch.testing.assert_close(weight.detach(), expected, atol=1e-12, rtol=1e-12)


@pytest.mark.filterwarnings("ignore")  # of the other package, at its import
@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_steps_are_those_of_another_implementation(beta: float) -> None:
    other = pytest.importorskip("pytorch_optimizer")
    torch.manual_seed(4)
    start = torch.randn(5, 4, dtype=torch.float64)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    pair = (
        SM3Optimizer([ours], 0.1, momentum=beta),
        other.SM3([theirs], lr=0.1, momentum=beta, beta=0.0, eps=1e-30),
    )
    for _ in range(6):
        ours.grad = torch.randn_like(start)
        theirs.grad = ours.grad.clone()
        for optimiser in pair:
            optimiser.step()
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


def test_a_vector_and_a_number_take_the_steps_of_adagrad() -> None:
    for start in (torch.randn(4, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)):
        ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
        pair = (
            SM3Optimizer([ours], lr=0.1, momentum=0.0),
            torch.optim.Adagrad([theirs], lr=0.1, eps=0.0),
        )
        for _ in range(4):
            ours.grad = torch.randn_like(start)
            theirs.grad = ours.grad.clone()
            for optimiser in pair:
                optimiser.step()
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


def test_sm3_2_is_the_tighter_bound_of_the_sum_of_squares() -> None:
    torch.manual_seed(5)
    matrices = [nn.Parameter(torch.zeros(6, 5)) for _ in range(2)]
    pair = [SM3Optimizer([w], 0.1, variant=v) for v, w in enumerate(matrices, start=1)]
    total = torch.zeros(6, 5)
    for _ in range(8):
        gradient = torch.randn(6, 5)
        total += gradient.square()
        for weight, optimiser in zip(matrices, pair, strict=True):
            weight.grad = gradient.clone()
            optimiser.step()
    first, second = (
        torch.minimum(o.state[w]["axis_0"][:, None], o.state[w]["axis_1"])
        for o, w in zip(pair, matrices, strict=True)
    )
    assert (total <= second + 1e-5).all()
    assert (second <= first + 1e-5).all()
    assert (second < first - 0.1).any()


def test_weight_decay_is_added_to_the_gradient() -> None:
    plain, decayed = (nn.Parameter(torch.ones(3, 2)) for _ in range(2))
    plain.grad, decayed.grad = torch.full((3, 2), 0.75), torch.full((3, 2), 0.5)
    SM3Optimizer([plain], 0.1).step()
    SM3Optimizer([decayed], 0.1, weight_decay=0.25).step()
    torch.testing.assert_close(plain, decayed)


ROWS: list[tuple[str, dict[str, float]]] = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9}),
    ("adam", {}),
    ("adamw", {}),
    ("adagrad", {}),
    ("adafactor", {}),
    ("sm3", {}),
    ("sm3", {"momentum": 0.0}),
]


def test_the_table_of_state_bytes_is_what_is_kept() -> None:
    lines = []
    for name, settings in ROWS:
        matrix = nn.Linear(512, 2048, bias=False)
        rule = OPTIMISERS[name].model_validate({"name": name, "lr": 0.01, **settings})
        optimiser = build_optimiser(rule, matrix)
        matrix.weight.grad = torch.ones_like(matrix.weight)
        optimiser.step()
        shown = "".join(f", {key} = {value}" for key, value in settings.items())
        kept = state_bytes(optimiser) / matrix.weight.numel()
        lines.append(f"| `{name}{shown}` | {kept:.3f} |")
    page = Path(__file__).parents[2] / "docs/train.md"
    assert "\n".join(lines) in page.read_text()
