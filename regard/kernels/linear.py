"""A linear layer that multiplies by the faster of two libraries.

On a processor torch multiplies float32 matrices by BLAS, and has oneDNN beside it for convolutions.
Where there is much to multiply, oneDNN needs a tenth to a quarter less time for W x and for the
gradient of x (docs/decisions/0015-one-dnn.md). The gradient of W stays with BLAS: oneDNN would have
to turn both of its factors round first.

>>> linear = Linear(4, 6)
>>> linear(torch.randn(2, 3, 4)).shape
torch.Size([2, 3, 6])
"""

from typing import TypeGuard

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

MUCH = 2**26
"""Multiplications from which on oneDNN is the faster one; of fewer, its start is too dear ..."""

_LARGE = 2**20
"""... but with a weight of so many elements it is so for two rows."""


class Linear(nn.Linear):
    """W x + b, as torch.nn.Linear has it."""

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        """The product."""
        if not much(x, self.weight):
            return F.linear(x, self.weight, self.bias)
        product: Tensor = ByOneDNN.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias
        )
        return product


class ByOneDNN(torch.autograd.Function):
    """W x + b; what it saves is what torch would."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The product."""
        ctx.save_for_backward(x, weight)
        return _multiplied(x, weight, bias)

    @staticmethod
    def backward(
        ctx: FunctionCtx, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Of the input, the weight and the bias; of those that want one."""
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        wanted = ctx.needs_input_grad  # type: ignore[attr-defined]
        rows = gradient.flatten(0, -2)  # [R,N]
        again = torch.is_grad_enabled()  # is this gradient to have a gradient in turn?
        of_input = of_weight = of_bias = None
        if wanted[0]:
            of_input = gradient @ weight if again else _multiplied(gradient, weight.t(), None)
        if wanted[1]:
            of_weight = rows.t() @ x.flatten(0, -2)  # [N,D]
        if wanted[2]:
            of_bias = rows.sum(0)
        return of_input, of_weight, of_bias


def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b by oneDNN, without a gradient."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(
        x.contiguous(), weight, bias, "none", [], ""
    )
    return product


def is_linear(module: object) -> TypeGuard[nn.Linear]:
    """Is it W x + b and nothing else? A class that adds to it is not."""
    return type(module) in (nn.Linear, Linear)


def much(x: Tensor, weight: Tensor) -> bool:
    """Is there enough to multiply, of a kind that oneDNN does as well as BLAS?"""
    rows = x.numel() // weight.shape[1]
    return (
        rows > 1
        and (weight.numel() >= _LARGE or rows * weight.numel() >= MUCH)
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.dim() > 1
        and x.shape[-1] == weight.shape[1]
        and not _watched(x, weight)
        and has_one_dnn()
    )


def _watched(x: Tensor, weight: Tensor) -> bool:
    """Does anybody expect the usual product of torch: to trace, count, split or cast it?"""
    return (
        type(x) is not Tensor
        or type(weight) not in (Tensor, nn.Parameter)
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def has_one_dnn() -> bool:
    """Is oneDNN there, and not switched off?"""
    there = torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)
    return there and hasattr(torch.ops.mkldnn, "_linear_pointwise")
