"""Sparsemax and 1.5-entmax against the `entmax` package, values and gradients."""

import entmax
import pytest
import torch

from regard.attention import padding, weigh_named

THEIRS = {"sparsemax": entmax.sparsemax, "entmax15": entmax.entmax15}


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 30.0, 1e4])
def test_equal_to_the_entmax_package(name: str, spread: float) -> None:
    scores = (torch.randn(4, 3, 5, 40, dtype=torch.double) * spread).requires_grad_()
    slope = torch.randn_like(scores)
    ours = weigh_named(name, 1)(scores)
    theirs = THEIRS[name](scores, dim=-1)
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-7)
    (got,) = torch.autograd.grad((ours * slope).sum(), scores)
    (want,) = torch.autograd.grad((theirs * slope).sum(), scores)
    torch.testing.assert_close(got, want, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("name", THEIRS)
def test_a_masked_row_equals_the_package_on_the_keys_that_are_left(name: str) -> None:
    scores = torch.randn(2, 1, 3, 9, dtype=torch.double) * 3
    ours = weigh_named(name, 1)(scores, padding(torch.tensor([4, 9])).table(3, 9))
    torch.testing.assert_close(ours[0, ..., :4], THEIRS[name](scores[0, ..., :4], dim=-1))
    torch.testing.assert_close(ours[1], THEIRS[name](scores[1], dim=-1))


@pytest.mark.parametrize("name", THEIRS)
def test_ties_share_and_far_scores_weigh_exactly_nothing(name: str) -> None:
    scores = torch.tensor([3.0, 3.0, -50.0, -1e30]).view(1, 1, 1, 4)
    weights = weigh_named(name, 1)(scores).flatten().tolist()
    assert weights[:2] == pytest.approx([0.5, 0.5], abs=1e-6)
    assert weights[2:] == [0.0, 0.0]
