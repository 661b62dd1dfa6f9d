"""Our linear layer gives what torch's gives, whichever library multiplies."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard.kernels.linear import LARGE_PRODUCT, Linear, has_onednn, is_linear, uses_onednn

ROWS, WIDTH, OUTPUTS = 256, 512, 520


def twins(bias: bool) -> tuple[Linear, nn.Linear]:
    ours, theirs = Linear(WIDTH, OUTPUTS, bias=bias), nn.Linear(WIDTH, OUTPUTS, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def test_large_products_use_onednn() -> None:
    assert ROWS * WIDTH * OUTPUTS >= LARGE_PRODUCT
    assert (
        uses_onednn(torch.empty(2, ROWS // 2, WIDTH), torch.empty(OUTPUTS, WIDTH)) == has_onednn()
    )
    assert not uses_onednn(torch.empty(4, WIDTH), torch.empty(OUTPUTS, WIDTH))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (4, ROWS // 4, WIDTH), (3, WIDTH), (WIDTH,)])
def test_the_product_and_its_gradients_are_torchs(shape: tuple[int, ...], bias: bool) -> None:
    ours, theirs = twins(bias)
    mine, other = (torch.randn(shape, generator=seeded()).requires_grad_() for _ in range(2))
    weighed = torch.randn(*shape[:-1], OUTPUTS)
    (ours(mine) * weighed).sum().backward()
    (theirs(other) * weighed).sum().backward()
    close = {"atol": 1e-4, "rtol": 1e-4}  # sums of 512 numbers about as large as one
    torch.testing.assert_close(ours(mine), theirs(other), **close)
    torch.testing.assert_close(mine.grad, other.grad, **close)
    for one, another in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, another.grad, **close)


@pytest.mark.parametrize("learns", ["x", "weight", "bias"])
def test_only_what_learns_has_a_gradient(learns: str) -> None:
    ours, _ = twins(bias=True)
    x = torch.randn(ROWS, WIDTH, requires_grad=learns == "x")
    for name, parameter in ours.named_parameters():
        parameter.requires_grad_(name == learns)
    ours(x).sum().backward()  # a gradient that is one number, expanded
    found = {"x": x.grad, "weight": ours.weight.grad, "bias": ours.bias.grad}
    assert [name for name, gradient in found.items() if gradient is not None] == [learns]
    expected = {
        "x": ours.weight.sum(0).expand(ROWS, -1),
        "weight": x.sum(0).expand(OUTPUTS, -1),
        "bias": torch.full((OUTPUTS,), float(ROWS)),
    }[learns]
    torch.testing.assert_close(found[learns], expected.detach(), atol=1e-4, rtol=1e-4)


def test_a_gradient_has_a_gradient() -> None:
    slopes = []
    for linear in twins(bias=True):
        x = torch.randn(ROWS, WIDTH, generator=seeded()).requires_grad_()
        (slope,) = torch.autograd.grad(linear(x).square().sum(), x, create_graph=True)
        slope.square().sum().backward()
        assert linear.weight.grad is not None
        slopes.append(linear.weight.grad / linear.weight.grad.norm())
    torch.testing.assert_close(*slopes, atol=1e-5, rtol=1e-4)


def test_what_maps_over_tensors_maps_over_it() -> None:
    ours, theirs = twins(bias=True)
    x = torch.randn(2, ROWS, WIDTH)
    _, slope = torch.func.jvp(ours, (x,), (torch.ones_like(x),))
    expected = ours.weight.sum(1).expand_as(slope)
    torch.testing.assert_close(slope, expected.detach(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.vmap(ours)(x), theirs(x), atol=1e-4, rtol=1e-4)


def test_what_counts_operations_counts_them() -> None:
    for linear in twins(bias=False):
        with FlopCounterMode(display=False) as counter:
            linear(torch.randn(ROWS, WIDTH))
        assert counter.get_total_flops() == 2 * ROWS * WIDTH * OUTPUTS


def test_tensors_of_another_kind_see_the_usual_product() -> None:
    seen = []

    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    ours, _ = twins(bias=True)
    ours(torch.randn(ROWS, WIDTH).as_subclass(Watching))
    assert torch.nn.functional.linear in seen


def test_other_numbers_than_float32_are_left_to_torch() -> None:
    ours, _ = twins(bias=True)
    assert ours.double()(torch.randn(ROWS, WIDTH).double()).dtype == torch.float64


def test_what_does_not_fit_is_refused_as_torch_refuses_it() -> None:
    ours, theirs = twins(bias=True)
    for linear in (ours, theirs):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            linear(torch.randn(ROWS, WIDTH + 1))


def test_a_class_that_adds_something_is_not_a_plain_one() -> None:
    class More(Linear):
        pass

    assert is_linear(Linear(2, 3))
    assert is_linear(nn.Linear(2, 3))
    assert not is_linear(More(2, 3))


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)
