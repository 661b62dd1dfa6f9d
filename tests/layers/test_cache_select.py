"""A step after rows were selected equals the whole sequence, for every score and every weighing."""

import pytest
import torch
from torch import nn

from regard.attention import SCORES, WEIGHS, causal
from regard.layers import Cache, SelfAttention

WIDTH, HEADS = 8, 2
ORDERS = ([0, 0, 1], [2, 0, 1, 1], [3, 0], [1, 1, 0], [0, 2])
"""The rows that go on after each step: some leave, some become two, others change places."""
CHOICES = [
    *(("score", name) for name in SCORES),
    *(("weigh", name) for name in WEIGHS),
]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(("slot", "name"), CHOICES)
def test_a_step_after_select_equals_the_whole(slot: str, name: str, gradients: bool) -> None:
    layer = SelfAttention(WIDTH, HEADS, **{slot: name}).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7)
    cache, history = Cache(room=2), torch.zeros(2, 0, WIDTH)
    with torch.set_grad_enabled(gradients):
        for order in ORDERS:
            new = torch.randn(len(history), 1, WIDTH)
            history = torch.cat((history, new), 1)
            stepped, cache = layer.step(new, cache, causal())
            whole = layer(history, causal())
            torch.testing.assert_close(stepped, whole[:, -1:], atol=1e-5, rtol=1e-5)
            rows = torch.tensor(order)
            cache, history = cache.select(rows), history[rows]


@pytest.mark.parametrize(
    ("slot", "name"),
    [("score", "coverage"), ("score", "location_aware"), ("weigh", "mixture_window")],
)
def test_where_it_looked_before_makes_a_difference(slot: str, name: str) -> None:
    """Without it the law above could not fail."""
    layer = SelfAttention(WIDTH, HEADS, **{slot: name}).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7)
    x = torch.randn(2, 5, WIDTH)
    _, cache = layer.step(x[:, :4], Cache(), causal())
    kept, _ = layer.step(x[:, 4:], cache, causal())
    forgotten, _ = layer.step(x[:, 4:], Cache(length=4, store=cache.store), causal())
    assert (kept - forgotten).abs().amax() > 1e-3
