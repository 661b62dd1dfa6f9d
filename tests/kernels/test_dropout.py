"""Our dropout is torch's in all but its random numbers."""

import pytest
import torch
from torch import nn

from regard.core.errors import UserError
from regard.kernels.dropout import Dropout, dropout_mask

MANY = (64, 1024)
SHAPES = [(5,), (3, 7), (63, 65), MANY, (5, 13, 101)]
"""Small ones, which torch does, large ones, and some that no four fit into."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_elements_are_dropped_or_scaled(
    shape: tuple[int, ...], p: float, dtype: torch.dtype
) -> None:
    x = torch.rand(shape, dtype=dtype) + 0.5
    out = Dropout(p)(x)
    assert out.dtype == dtype
    assert out.shape == x.shape
    kept = out != 0
    close = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 2e-4, "atol": 0.0}
    torch.testing.assert_close(out[kept], x[kept] / (1 - p), **close)


@pytest.mark.parametrize("p", [0.05, 0.1, 0.3, 0.5, 0.75])
def test_the_share_is_right_in_every_lane_and_the_mean_is_kept(p: float) -> None:
    torch.manual_seed(1)
    stays = dropout_mask(torch.empty(250_000, 4), p)  # a draw of 64 bits has four lanes
    shares = (stays == 0).double().mean(0)
    spread = (p * (1 - p) / len(stays)) ** 0.5
    assert ((shares - p).abs() < 4.5 * spread).all(), shares
    assert stays.double().mean().item() == pytest.approx(1.0, abs=4.5 * spread / (1 - p) / 2)


def test_lanes_and_draws_do_not_know_of_each_other() -> None:
    torch.manual_seed(2)
    dropped = (dropout_mask(torch.empty(250_000, 4), 0.5) == 0).double() * 2 - 1
    together = dropped.T @ dropped / len(dropped) - torch.eye(4)
    assert together.abs().max() < 4.5 / len(dropped) ** 0.5
    following = (dropped[1:] * dropped[:-1]).mean(0)
    assert following.abs().max() < 4.5 / len(dropped) ** 0.5


@pytest.mark.parametrize("shape", [(3, 7), MANY])
def test_a_seed_tells_what_is_dropped(shape: tuple[int, ...]) -> None:
    x, drop = torch.ones(shape), Dropout(0.4)
    outs = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        outs.append(drop(x))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    assert not torch.equal(outs[2], drop(x)), "the next draw is another one"


def test_the_random_state_tells_it_too() -> None:
    drop, x = Dropout(0.4), torch.ones(MANY)
    drop(x)
    state = torch.get_rng_state()
    first = drop(x)
    torch.set_rng_state(state)
    assert torch.equal(first, drop(x))


@pytest.mark.parametrize("shape", [(3, 7), MANY])
def test_gradients_pass_where_something_was_left(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    out = Dropout(0.3)(x)
    (slope,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(slope * x, out)


@pytest.mark.parametrize("shape", [(3, 7), MANY])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_added_is_the_sum(shape: tuple[int, ...], training: bool, p: float) -> None:
    drop = Dropout(p).train(training)
    x, branch = torch.randn(shape), torch.randn(shape)
    torch.manual_seed(3)
    got = drop.add(x, branch)
    torch.manual_seed(3)
    torch.testing.assert_close(got, x + drop(branch))


@pytest.mark.parametrize(("training", "p"), [(False, 0.5), (True, 0.0)])
def test_nothing_is_touched_when_nothing_is_dropped(training: bool, p: float) -> None:
    x = torch.randn(MANY)
    assert Dropout(p).train(training)(x) is x


def test_it_is_compiled_as_it_is(as_users_run_it: None) -> None:
    drop, x = Dropout(0.3), torch.randn(MANY)
    compiled = torch.compile(drop, backend="eager", fullgraph=True)
    torch.manual_seed(4)
    want = drop(x)
    torch.manual_seed(4)
    torch.testing.assert_close(compiled(x), want)


def test_it_says_what_it_is_as_torchs_does() -> None:
    assert repr(Dropout(0.3)) == f"Dropout({nn.Dropout(0.3).extra_repr().split(',')[0]})"


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_shares_that_cannot_be_are_refused(p: float, as_users_run_it: None) -> None:
    with pytest.raises(UserError, match=r"dropout=.* must be at least 0 and below 1"):
        Dropout(p)
