"""The counted multiplications are those of the table, at every length and width."""

import pytest
import torch

from regard.core.errors import UserError
from regard.experiments.cost import (
    Cost,
    count_multiplications,
    crossing_length,
    layer_kinds,
    measure_costs,
    parse_lengths,
    saved_bytes,
)


@pytest.mark.parametrize("width", [8, 24])
@pytest.mark.parametrize("length", [1, 2, 17, 64])
def test_counted_multiplications_are_those_of_the_formula(length: int, width: int) -> None:
    for layer in layer_kinds(width, heads=2, kernel=5):
        assert count_multiplications(layer, length) == layer.multiplications(length, width), (
            layer.name
        )


def test_attention_crosses_recurrence_where_there_are_as_many_positions_as_width() -> None:
    found = measure_costs(16, [4, 8, 12, 24, 48], repeats=1)
    where = crossing_length(found, "self-attention", "recurrence", "multiplications")
    assert where == pytest.approx(16, rel=1e-6)
    slid = crossing_length(found, "self-attention", "convolution", "multiplications")
    assert slid == pytest.approx(24, rel=1e-6)  # 2 n² d = 3 n d²


def test_steps_and_paths() -> None:
    attention, recurrence, convolution = layer_kinds(8, kernel=3)
    assert [attention.steps(9), recurrence.steps(9), convolution.steps(9)] == [1, 9, 1]
    assert [attention.path(9), recurrence.path(9), convolution.path(9)] == [1, 9, 4]


def test_what_does_not_cross_has_no_crossing() -> None:
    def cost(layer: str, length: int, count: int) -> Cost:
        return Cost(layer, "", length, count, count, 1, 1, 1, 1, 1.0)

    found = [cost("a", n, n) for n in (1, 2, 4)] + [cost("b", n, 9 * n) for n in (1, 2, 4)]
    assert crossing_length(found, "a", "b", "multiplications") is None


def test_saved_bytes_grow_with_the_length_and_exclude_parameters() -> None:
    linear = torch.nn.Linear(4, 4)
    assert saved_bytes(linear, torch.randn(1, 8, 4)) == 8 * 4 * 4  # its input, for the weight
    for layer in layer_kinds(8):
        short, long = (saved_bytes(layer.whole, torch.randn(1, n, 8)) for n in (16, 64))
        assert short < long, layer.name


@pytest.mark.parametrize("text", ["", "a..b", "9..3", "0..4", "4,x", "-2,3"])
def test_wrong_lengths_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_lengths(text)


@pytest.mark.parametrize("kernel", [0, 1, 4])
def test_a_kernel_that_would_change_the_length_is_refused(kernel: int) -> None:
    with pytest.raises(UserError, match="kernel"):
        layer_kinds(8, kernel=kernel)
