"""A linear layer that multiplies with the faster of two libraries.

On a CPU torch multiplies float32 matrices with BLAS, and uses oneDNN for convolutions. For large
products oneDNN takes a tenth to a quarter less time for W x and for the gradient of x
(docs/decisions/0015-one-dnn.md). The gradient of W stays with BLAS: oneDNN would have to transpose
both of its factors first.

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

from regard.kernels.switch import enabled

LARGE_PRODUCT = 2**26
"""With at least this many multiplications oneDNN is faster; below, its start costs too much ..."""

_LARGE_WEIGHT = 2**20
"""... except that with a weight of this many elements two rows are enough."""


class Linear(nn.Linear):
    """W x + b, as torch.nn.Linear computes it."""

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        """The product."""
        if not uses_onednn(x, self.weight):
            return F.linear(x, self.weight, self.bias)
        product: Tensor = _OneDNNLinear.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias
        )
        return product


class _OneDNNLinear(torch.autograd.Function):
    """W x + b; saves the same tensors as torch's own."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The product."""
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    def backward(
        ctx: FunctionCtx, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Gradients of the input, the weight and the bias, where they are needed."""
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        needed = ctx.needs_input_grad  # type: ignore[attr-defined]
        rows = gradient.flatten(0, -2)  # [R,N]
        twice = torch.is_grad_enabled()  # will this gradient be differentiated in turn?
        of_input = of_weight = of_bias = None
        if needed[0]:
            of_input = gradient @ weight if twice else _multiply(gradient, weight.t(), None)
        if needed[1]:
            of_weight = rows.t() @ x.flatten(0, -2)  # [N,D]
        if needed[2]:
            of_bias = rows.sum(0)
        return of_input, of_weight, of_bias


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b with oneDNN, without a gradient."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(
        x.contiguous(), weight, bias, "none", [], ""
    )
    return product


def is_linear(module: object) -> TypeGuard[nn.Linear]:
    """Is the module W x + b and nothing else? A subclass is not."""
    return type(module) in (nn.Linear, Linear)


def uses_onednn(x: Tensor, weight: Tensor) -> bool:
    """Is this product large enough, and of a kind that oneDNN computes as well as BLAS?"""
    rows = x.numel() // weight.shape[1]
    return (
        rows > 1
        and (weight.numel() >= _LARGE_WEIGHT or rows * weight.numel() >= LARGE_PRODUCT)
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.dim() > 1
        and x.shape[-1] == weight.shape[1]
        and not _is_intercepted(x, weight)
        and has_onednn()
        and enabled("onednn")
    )


def _is_intercepted(x: Tensor, weight: Tensor) -> bool:
    """Is something active that needs torch's own product: to trace, count, split or cast it?"""
    return (
        type(x) is not Tensor
        or type(weight) not in (Tensor, nn.Parameter)
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def has_onednn() -> bool:
    """Does this torch have oneDNN, and is it not switched off in torch?"""
    present = torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)
    return present and hasattr(torch.ops.mkldnn, "_linear_pointwise")
