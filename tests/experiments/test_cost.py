"""What is counted is what the table of the lecture says, at every length and width."""

import pytest
import torch

from regard.core.errors import UserError
from regard.experiments.cost import Cost, costs, counted, crossing, kept_bytes, layers, lengths_of


@pytest.mark.parametrize("width", [8, 24])
@pytest.mark.parametrize("length", [1, 2, 17, 64])
def test_counted_multiplications_are_those_of_the_formula(length: int, width: int) -> None:
    for layer in layers(width, heads=2, kernel=5):
        assert counted(layer, length) == layer.multiplications(length, width), layer.name


def test_attention_crosses_recurrence_where_there_are_as_many_positions_as_width() -> None:
    found = costs(16, [4, 8, 12, 24, 48], repeats=1)
    where = crossing(found, "self-attention", "recurrence", "multiplications")
    assert where == pytest.approx(16, rel=1e-6)
    slid = crossing(found, "self-attention", "convolution", "multiplications")
    assert slid == pytest.approx(24, rel=1e-6)  # 2 n² d = 3 n d²


def test_steps_and_paths() -> None:
    attention, recurrence, convolution = layers(8, kernel=3)
    assert [attention.steps(9), recurrence.steps(9), convolution.steps(9)] == [1, 9, 1]
    assert [attention.path(9), recurrence.path(9), convolution.path(9)] == [1, 9, 4]


def test_what_does_not_cross_has_no_crossing() -> None:
    def cost(layer: str, length: int, count: int) -> Cost:
        return Cost(layer, "", length, count, count, 1, 1, 1, 1, 1.0)

    found = [cost("a", n, n) for n in (1, 2, 4)] + [cost("b", n, 9 * n) for n in (1, 2, 4)]
    assert crossing(found, "a", "b", "multiplications") is None


def test_what_is_kept_grows_with_the_length_and_holds_no_parameters() -> None:
    linear = torch.nn.Linear(4, 4)
    assert kept_bytes(linear, torch.randn(1, 8, 4)) == 8 * 4 * 4  # its input, for the weight
    for layer in layers(8):
        short, long = (kept_bytes(layer.whole, torch.randn(1, n, 8)) for n in (16, 64))
        assert short < long, layer.name


@pytest.mark.parametrize("text", ["", "a..b", "9..3", "0..4", "4,x", "-2,3"])
def test_lengths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        lengths_of(text)


@pytest.mark.parametrize("kernel", [0, 1, 4])
def test_a_kernel_that_would_change_the_length_is_refused(kernel: int) -> None:
    with pytest.raises(UserError, match="kernel"):
        layers(8, kernel=kernel)
