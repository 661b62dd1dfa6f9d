"""Every packed form of a linear layer gives the numbers of the layer."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from regard.kernels.packed_linear import FEW_ROWS, WIDE_INPUT, RowParts, TransposedParts
from regard.layers.stepwise import row_function

ROWS = [1, 2, FEW_ROWS, FEW_ROWS + 1]


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4, 6), (300, 700), (700, 301), (1500, 200), (200, 1500)])
def test_every_form_gives_what_the_layer_gives(
    shape: tuple[int, int], bias: bool, rows: int, threads: int
) -> None:
    linear = nn.Linear(*shape, bias=bias)
    x = torch.randn(rows, shape[0])
    with torch.no_grad():
        found = row_function(linear)(x)
        assert torch.allclose(found, linear(x), atol=1e-5)
        found.add_(1.0)  # the result is a new tensor
        assert torch.allclose(row_function(linear)(x), linear(x), atol=1e-5)


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@pytest.mark.parametrize("words", [5, 7, 30])
@pytest.mark.parametrize("form", [TransposedParts, RowParts])
@pytest.mark.parametrize("rows", [1, 3])
def test_outputs_that_do_not_divide_evenly_are_all_there(
    rows: int, form: type[TransposedParts | RowParts], words: int, parts: int
) -> None:
    weight, bias, x = torch.randn(words, 6), torch.randn(words), torch.randn(rows, 6)
    for given in (bias, None):
        expected = x @ weight.t() + (0 if given is None else given)
        assert torch.allclose(form(weight, given, parts)(x), expected, atol=1e-5)


def test_wide_weights_are_not_copied() -> None:
    weight = torch.randn(1001, WIDE_INPUT)
    assert RowParts(weight, None, 2)._weight.data_ptr() == weight.data_ptr()


@pytest.mark.parametrize("rows", [1, 3])
def test_changed_weights_are_packed_again(rows: int) -> None:
    linear, x = nn.Linear(300, 1024), torch.randn(rows, 300)
    close = {"atol": 1e-5, "rtol": 1e-5}
    with torch.no_grad():
        before = row_function(linear)(x)
        linear.weight.mul_(2)
        torch.testing.assert_close(row_function(linear)(x), linear(x), **close)
        linear.load_state_dict(nn.Linear(300, 1024).state_dict())
        torch.testing.assert_close(row_function(linear)(x), linear(x), **close)
    sgd = torch.optim.SGD(linear.parameters(), 0.1)
    linear(x).sum().backward()
    sgd.step()
    with torch.no_grad():
        torch.testing.assert_close(row_function(linear)(x), linear(x), **close)
    assert not torch.allclose(linear(x), before)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("shape", [(4, 6), (300, 1024), (700, 301)])
def test_a_changed_bias_is_used(shape: tuple[int, int], rows: int, threads: int) -> None:
    linear, x = nn.Linear(*shape), torch.randn(rows, shape[0])
    with torch.no_grad():
        row_function(linear)(x)
        linear.bias.add_(1.0)
        torch.testing.assert_close(row_function(linear)(x), linear(x), atol=1e-5, rtol=1e-5)
