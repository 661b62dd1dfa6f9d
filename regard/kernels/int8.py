"""Linear layers whose weights are whole numbers of eight bits, for inference on a processor.

Each output has a scale of its own: W ≈ s · Q with Q from -127 to 127. A quarter of the memory is
read for each product, which is what takes the time when a model writes token by token.

`Int8Linear` rounds its input too, each row by its own least and largest number, so that products
are of whole numbers (Jacob et al. 2018). `Int8Weights` leaves the input as it is but for bfloat16:
nearer to the float32 layer, and slower. A row's result does not depend on the rows beside it.

>>> import torch
>>> linear = nn.Linear(64, 32)
>>> x = torch.randn(3, 64)
>>> with torch.no_grad():
...     bool((Int8Linear.of(linear.weight, linear.bias)(x) - linear(x)).abs().max() < 0.05)
True
"""

import warnings
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int8
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.kernels.packed_linear import stamp

LARGEST = 127
"""Weights go from minus this to this."""

BLOCK = 64
"""Weights that the kernel of `Int8Weights` reads at a time, or a multiple of them."""

_TINY = 1e-30
"""The least that anything is divided by: of what is all zero, any scale will do."""


class Rounded(nn.Module, ABC):
    """A linear layer with rounded weights; `of` makes one of float32 weights."""

    values: Int8[Tensor, "N D"]
    scales: Float[Tensor, "N"]
    bias: Float[Tensor, "N"] | None

    def __init__(self, outputs: int, width: int, *, bias: bool) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(outputs, width, dtype=torch.int8))
        self.register_buffer("scales", torch.ones(outputs))
        self.register_buffer("bias", torch.zeros(outputs) if bias else None)

    @classmethod
    def of(cls, weight: Float[Tensor, "N D"], bias: Float[Tensor, "N"] | None) -> "Rounded":
        """The layer with these weights, rounded."""
        if weight.device.type != "cpu":
            raise UserError(f"int8 weights work on the cpu, and the model is on {weight.device}")
        made = cls(*weight.shape, bias=bias is not None)
        with torch.no_grad():
            scales = weight.abs().amax(1).div(LARGEST).clamp_min(_TINY)
            made.scales.copy_(scales)
            made.values.copy_((weight / scales[:, None]).round())
            if made.bias is not None and bias is not None:
                made.bias.copy_(bias)
        return made

    @property
    def weight(self) -> Float[Tensor, "N D"]:
        """The weights as they are after rounding, in float32."""
        return self.values * self.scales[:, None]

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        """W x + b."""
        if x.dim() == 2:
            return self.of_rows(x)
        rows = x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2)
        return self.of_rows(rows).view(*x.shape[:-1], len(self.scales))

    @abstractmethod
    def of_rows(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """The same of rows one under another."""


class Int8Linear(Rounded):
    """Products of whole numbers."""

    def __init__(self, outputs: int, width: int, *, bias: bool) -> None:
        super().__init__(outputs, width, bias=bias)
        refuse_without(
            "quantized", "linear_dynamic", "linear_with_input_q_dq_qweight_dq_output_fp32"
        )
        self._packed: object = None
        self._sums = torch.zeros(outputs)
        self._stamp = (0, 0)
        self._levels = levels()

    def of_rows(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """One call for a single row; several are rounded each by itself, then multiplied."""
        if self._stamp != stamp(self.values):
            self._pack()
        if x.shape[0] == 1:
            one: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, self._levels < 255)
            return one if self.bias is None else one.add_(self.bias)
        least, most = torch.aminmax(x, dim=1, keepdim=True)  # [R,1]
        least = least.clamp_max_(0.0)
        step = most.clamp_min_(0.0).sub_(least).div_(self._levels).clamp_min_(_TINY)
        zero = (least / step).round_().neg_()
        whole = (x / step).round_().add_(zero)  # [R,D]: from 0 to the number of levels
        product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        sums: Tensor = product(whole, 1.0, 0, self._packed)  # [R,N]
        sums.addcmul_(zero, self._sums, value=-1.0).mul_(step)
        return sums if self.bias is None else sums.add_(self.bias)

    def _pack(self) -> None:
        """Lay the weights out as the kernel has them, and sum them up for the zero of each row."""
        zeros = torch.zeros_like(self.scales, dtype=torch.long)
        with warnings.catch_warnings(), torch.no_grad():
            # torch means to replace its quantised tensors; their kernel has no successor yet that
            # is as fast here, and the tensor is gone after this line.
            warnings.filterwarnings("ignore", message=".*quantized tensor.*", category=UserWarning)
            marked = torch._make_per_channel_quantized_tensor(
                self.values, self.scales.double(), zeros, 0
            )
            self._packed = torch.ops.quantized.linear_prepack(marked, None)
        self._sums = self.values.sum(1) * self.scales
        self._stamp = stamp(self.values)


class Int8Weights(Rounded):
    """Rounded weights, and inputs as they are but for bfloat16."""

    def __init__(self, outputs: int, width: int, *, bias: bool) -> None:
        super().__init__(outputs, width, bias=bias)
        refuse_without("aten", "_weight_int8pack_mm")
        # The kernel reads whole blocks, beyond the end of a row that is none.
        self._missing = -width % BLOCK

    def of_rows(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """Sums are kept in float32 inside, and scaled in float32 afterwards."""
        ones, values, given = self.scales.new_ones(len(self.scales)), self.values, x
        if self._missing:
            values, given = (F.pad(each, (0, self._missing)) for each in (values, x))
        sums: Tensor = torch.ops.aten._weight_int8pack_mm(given.bfloat16(), values, ones.bfloat16())
        read = sums.float().mul_(self.scales)
        return read if self.bias is None else read.add_(self.bias)


def levels() -> int:
    """Steps between the least and the largest number of a row.

    Without instructions for products of bytes (VNNI) their sums in pairs must fit 16 bits, so that
    an input has seven.
    """
    probe = getattr(torch.cpu, "_is_vnni_supported", None)
    return 255 if probe is not None and probe() else 127


def refuse_without(group: str, *names: str) -> None:
    """An error if this torch lacks what the layers are computed by."""
    missing = [name for name in names if not hasattr(getattr(torch.ops, group), name)]
    engine = torch.backends.quantized.engine
    if not missing and (group == "aten" or engine in ("x86", "fbgemm")):
        return
    why = f"torch.ops.{group}.{missing[0]} is missing" if missing else f"its engine is {engine!r}"
    raise UserError(
        f"int8 weights do not work with this torch ({torch.__version__}: {why}); "
        "use weights='float32'"
    )
