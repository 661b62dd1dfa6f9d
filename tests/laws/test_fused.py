"""The fused kernel equals the slots written out, forward and backward, whatever the mask."""

import pytest
import torch
from torch import Tensor

from regard.attention import (
    SCORES,
    Attend,
    Gather,
    Mask,
    Past,
    Softmax,
    blocks,
    causal,
    intervene,
    padding,
    score_named,
    segment,
    window,
)

B, T, E = 2, 6, 8
PRODUCTS = ["dot", "scaled_dot", "bilinear", "cosine"]
MASKS: dict[str, Mask | None] = {
    "none": None,
    "causal": causal(),
    "padding": padding(torch.tensor([3, 0])),
    "causal padding": causal() & padding(torch.tensor([3, T])),
    "window": window(left=2, right=0),
    "blocks": blocks(2, before=1) & causal(),
    "segment": segment(torch.tensor([[0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1]])),
}


def explicit(
    attend: Attend, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None
) -> Tensor:
    """The same attention through an edit that changes nothing, which no fused kernel can take."""
    with intervene(attend, {"*": lambda weights, look: weights}):
        return attend(query, attend.remember(key, value), mask)


def test_exactly_the_products_are_fused() -> None:
    fused = [
        name for name in SCORES if score_named(name, E).product(torch.ones(1, 1, 1, E)) is not None
    ]
    assert fused == PRODUCTS
    assert Attend(score_named("dot", E), read=Gather())._fusable(torch.ones(1, 1, 1, E)) is None


@pytest.mark.parametrize("score", PRODUCTS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_fused_equals_explicit(score: str, mask: str, key_heads: int) -> None:
    attend = Attend(score_named(score, E), Softmax(temperature=0.7)).double()
    query = torch.randn(B, 4, T, E, requires_grad=True, dtype=torch.double)
    key, value = (
        torch.randn(B, key_heads, T, E, requires_grad=True, dtype=torch.double) for _ in range(2)
    )
    slope = torch.randn(B, 4, T, E, dtype=torch.double)
    out = attend(query, attend.remember(key, value), MASKS[mask])
    expected = explicit(attend, query, key, value, MASKS[mask])
    torch.testing.assert_close(out, expected)
    inputs = (query, key, value, *attend.parameters())
    got = torch.autograd.grad((out * slope).sum(), inputs)
    want = torch.autograd.grad((expected * slope).sum(), inputs)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("first", [0, 1, 4, 5])
def test_cached_rows_equal_the_rows_of_the_whole(first: int) -> None:
    attend = Attend(score_named("scaled_dot", E))
    query, key, value = (torch.randn(B, 3, T, E) for _ in range(3))
    for name, mask in MASKS.items():
        whole = attend(query, attend.remember(key, value), mask)
        rows = attend(query[:, :, first:], attend.remember(key, value), mask, Past(first=first))
        torch.testing.assert_close(rows, whole[:, :, first:], atol=1e-6, rtol=1e-5, msg=name)


def test_values_may_have_a_width_of_their_own() -> None:
    attend = Attend(score_named("scaled_dot", E))
    query, key, value = torch.randn(B, 3, T, E), torch.randn(B, 3, T, E), torch.randn(B, 3, T, 5)
    out = attend(query, attend.remember(key, value), causal())
    torch.testing.assert_close(
        out, explicit(attend, query, key, value, causal()), atol=1e-6, rtol=1e-5
    )


def test_dropout_falls_on_the_weights_in_training_alone() -> None:
    attend = Attend(score_named("scaled_dot", E), dropout=0.5)
    query, key = torch.randn(B, 3, T, E), torch.randn(B, 3, T, E)
    memory = attend.remember(key, torch.ones(B, 3, T, 1))
    attend.train()
    dropped = attend(query, memory)
    assert dropped.std() > 0.1
    assert abs(dropped.mean().item() - 1) < 0.3
    attend.eval()
    torch.testing.assert_close(attend(query, memory), torch.ones(B, 3, T, 1))
