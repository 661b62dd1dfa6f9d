"""Linear layers with 8-bit integer weights, for inference on a CPU.

Each output has a scale of its own: W ≈ s · Q with Q from -127 to 127. Each product reads a quarter
of the memory, which is what takes the time when a model generates token by token.

`Int8Linear` rounds its input too, each row by its own minimum and maximum, so that products are of
integers (Jacob et al. 2018). `Int8Weights` only rounds the input to bfloat16: closer to the float32
layer, and slower. The result of a row does not depend on the rows beside it.

With the kernel "int8" off, the same rounded numbers are multiplied in float64.

>>> import torch
>>> linear = nn.Linear(64, 32)
>>> x = torch.randn(3, 64)
>>> with torch.no_grad():
...     bool((Int8Linear.quantise(linear.weight, linear.bias)(x) - linear(x)).abs().max() < 0.05)
True
"""

import warnings
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int8
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.kernels.packed_linear import version_of
from regard.kernels.switch import enabled

LARGEST = 127
"""Weights are from minus this to this."""

_BLOCK = 64
"""The kernel of `Int8Weights` reads inputs in blocks of this many."""

_TINY = 1e-30
"""The least divisor: if everything is zero, any scale is right."""


class QuantisedLinear(nn.Module, ABC):
    """A linear layer with rounded weights; `quantise` makes one from float32 weights."""

    values: Int8[Tensor, "N D"]
    scales: Float[Tensor, "N"]
    bias: Float[Tensor, "N"] | None

    def __init__(self, outputs: int, width: int, *, bias: bool) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(outputs, width, dtype=torch.int8))
        self.register_buffer("scales", torch.ones(outputs))
        self.register_buffer("bias", torch.zeros(outputs) if bias else None)

    @classmethod
    def quantise(
        cls, weight: Float[Tensor, "N D"], bias: Float[Tensor, "N"] | None
    ) -> "QuantisedLinear":
        """The layer with these weights, rounded."""
        if weight.device.type != "cpu":
            raise UserError(f"int8 weights work on the cpu, and the model is on {weight.device}")
        layer = cls(*weight.shape, bias=bias is not None)
        with torch.no_grad():
            scales = weight.abs().amax(1).div(LARGEST).clamp_min(_TINY)
            layer.scales.copy_(scales)
            layer.values.copy_((weight / scales[:, None]).round())
            if layer.bias is not None and bias is not None:
                layer.bias.copy_(bias)
        return layer

    @property
    def weight(self) -> Float[Tensor, "N D"]:
        """The rounded weights in float32."""
        return self.values * self.scales[:, None]

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        """W x + b."""
        multiply = self.multiply_rows if enabled("int8") else self.multiply_without_kernel
        if x.dim() == 2:
            return multiply(x)
        rows = x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2)
        return multiply(rows).view(*x.shape[:-1], len(self.scales))

    @abstractmethod
    def multiply_rows(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """W x + b with the kernel."""

    @abstractmethod
    def round_input(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """The input as the kernel rounds it, in float32."""

    def multiply_without_kernel(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """W x + b of the same rounded numbers; in float64, so that rows do not depend on others."""
        bias = None if self.bias is None else self.bias.double()
        return F.linear(self.round_input(x).double(), self.weight.double(), bias).float()


class Int8Linear(QuantisedLinear):
    """Products of integers."""

    def __init__(self, outputs: int, width: int, *, bias: bool) -> None:
        super().__init__(outputs, width, bias=bias)
        if enabled("int8"):
            require_operators(
                "quantized", "linear_dynamic", "linear_with_input_q_dq_qweight_dq_output_fp32"
            )
        self._packed: object = None
        self._sums = torch.zeros(outputs)
        self._packed_version = (0, 0)
        self._levels = input_levels()

    def multiply_rows(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """One call for a single row; several rows are rounded one by one, then multiplied."""
        if self._packed_version != version_of(self.values):
            self._pack()
        if x.shape[0] == 1:
            one: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, self._levels < 255)
            return one if self.bias is None else one.add_(self.bias)
        integers, zero, step = self._quantise_rows(x)
        product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        sums: Tensor = product(integers, 1.0, 0, self._packed)  # [R,N]
        sums.addcmul_(zero, self._sums, value=-1.0).mul_(step)
        return sums if self.bias is None else sums.add_(self.bias)

    def round_input(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """Each row rounded to the levels between its minimum and its maximum."""
        integers, zero, step = self._quantise_rows(x)
        return integers.sub_(zero).mul_(step)

    def _quantise_rows(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Integers `[R,D]` from 0 to the number of levels, and zero point and step of each row."""
        least, most = torch.aminmax(x, dim=1, keepdim=True)  # [R,1]
        least = least.clamp_max_(0.0)
        step = most.clamp_min_(0.0).sub_(least).div_(self._levels).clamp_min_(_TINY)
        zero = (least / step).round_().neg_()
        return (x / step).round_().add_(zero), zero, step

    def _pack(self) -> None:
        """Lay the weights out for the kernel, and sum them for the zero point of each row."""
        zeros = torch.zeros_like(self.scales, dtype=torch.long)
        with warnings.catch_warnings(), torch.no_grad():
            # torch plans to replace its quantised tensors; their kernel has no successor yet that
            # is as fast here, and the tensor is gone after this line.
            warnings.filterwarnings("ignore", message=".*quantized tensor.*", category=UserWarning)
            per_channel = torch._make_per_channel_quantized_tensor(
                self.values, self.scales.double(), zeros, 0
            )
            self._packed = torch.ops.quantized.linear_prepack(per_channel, None)
        self._sums = self.values.sum(1) * self.scales
        self._packed_version = version_of(self.values)


class Int8Weights(QuantisedLinear):
    """Rounded weights, and inputs in bfloat16."""

    def __init__(self, outputs: int, width: int, *, bias: bool) -> None:
        super().__init__(outputs, width, bias=bias)
        if enabled("int8"):
            require_operators("aten", "_weight_int8pack_mm")
        # The kernel reads whole blocks, beyond the end of a shorter row.
        self._missing = -width % _BLOCK

    def multiply_rows(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """Sums are kept in float32 inside, and scaled in float32 afterwards."""
        ones, values, rows = self.scales.new_ones(len(self.scales)), self.values, x
        if self._missing:
            values, rows = (F.pad(each, (0, self._missing)) for each in (values, x))
        sums: Tensor = torch.ops.aten._weight_int8pack_mm(rows.bfloat16(), values, ones.bfloat16())
        product = sums.float().mul_(self.scales)
        return product if self.bias is None else product.add_(self.bias)

    def round_input(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """The input in bfloat16 precision."""
        return x.bfloat16().float()


def input_levels() -> int:
    """Steps between the minimum and the maximum of a row.

    Without instructions for products of bytes (VNNI), sums of two products must fit 16 bits, so
    that an input has seven bits.
    """
    probe = getattr(torch.cpu, "_is_vnni_supported", None)
    return 255 if probe is not None and probe() else 127


def require_operators(group: str, *names: str) -> None:
    """Raise if this torch lacks the operators that compute the layers."""
    missing = [name for name in names if not hasattr(getattr(torch.ops, group), name)]
    engine = torch.backends.quantized.engine
    if not missing and (group == "aten" or engine in ("x86", "fbgemm")):
        return
    why = f"torch.ops.{group}.{missing[0]} is missing" if missing else f"its engine is {engine!r}"
    raise UserError(
        f"int8 weights do not work with this torch ({torch.__version__}: {why}); "
        "use weights='float32'"
    )
