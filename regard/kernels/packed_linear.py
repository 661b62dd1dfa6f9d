"""A linear layer with its weights copied into the layout that a few rows need.

One step of a decoder multiplies a few rows with all weights. A single row takes half the time if
each thread computes its own share of the outputs; torch would use one thread. Wide weights are read
in place, at the speed of memory; narrow ones are faster transposed; and two rows or more are faster
with a weight that oneDNN has packed into blocks. So a weight is copied, if at all, once, into the
form that its first steps need. The copy serves as long as weight and bias keep their values: after
an optimiser's step, or when other weights are loaded, it is made again.

>>> import torch
>>> linear = nn.Linear(4, 6)
>>> x = torch.randn(3, 4)
>>> with torch.no_grad():
...     packed = pack_linear(linear, linear.weight, linear.bias)
...     bool(torch.allclose(packed(x), linear(x), atol=1e-6))
True
"""

from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.kernels.linear import has_onednn
from regard.kernels.switch import enabled

FEW_ROWS = 48
"""Up to this many rows the packed forms are faster."""

_LARGE_WEIGHT = 2**18
"""A weight of this many elements is worth packing."""

_PART = 2**16
"""A thread is worth using for this many elements of a weight."""

WIDE_INPUT = 512
"""With this many inputs a weight is as fast read in place."""


class PackedLinear:
    """W x + b for rows, with W as it is, split into a part for each thread, or packed."""

    __slots__ = ("_packed", "_split", "_versions", "bias", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias, self._versions = weight, bias, _versions(weight, bias)
        on_cpu = weight.device.type == "cpu"
        large = weight.numel() >= _LARGE_WEIGHT and weight.dtype == torch.float32
        # None is "not yet", False is "never".
        self._split: TransposedParts | RowParts | bool | None = None if on_cpu else False
        self._packed: Tensor | bool | None = None if on_cpu and large and has_onednn() else False

    def fits(self, weight: Tensor, bias: Tensor | None) -> bool:
        """Are these the same weight and bias, with the same values?"""
        same = self.weight is weight and self.bias is bias
        return same and self._versions == _versions(weight, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """The product, in the form that is fastest for this many rows; a new tensor."""
        few = x.shape[0] <= FEW_ROWS
        if not few or not enabled("packed_linear"):
            return F.linear(x, self.weight, self.bias)
        if self._packed is not False and x.shape[0] > 1:
            if self._packed is None:
                self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)
            product: Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self._packed, self.bias, "none", [], ""
            )
            return product
        if self._split is False:
            return F.linear(x, self.weight, self.bias)
        if self._split is None:
            self._split = _split_for_threads(self.weight.detach(), self.bias)
        assert not isinstance(self._split, bool)
        return self._split(x)


def _split_for_threads(weight: Tensor, bias: Tensor | None) -> "TransposedParts | RowParts":
    """The weight in a part for each thread."""
    parts = max(1, min(torch.get_num_threads(), weight.numel() // _PART))
    if parts > 1 and weight.shape[1] >= WIDE_INPUT and weight.is_contiguous():
        return RowParts(weight, bias, parts)
    return TransposedParts(weight, bias, parts)


class RowParts:
    """A weight read in place, its outputs in equal parts; the few that remain are a part alone.

    >>> weight = torch.arange(15.0).view(5, 3)
    >>> RowParts(weight, None, parts=2)(torch.ones(1, 3))
    tensor([[ 3., 12., 21., 30., 39.]])
    """

    __slots__ = ("_bias", "_rest", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None, parts: int) -> None:
        even = len(weight) - len(weight) % parts
        self._weight = weight[:even].unflatten(0, (parts, even // parts))  # [P,N/P,D]
        self._bias = None if bias is None else bias.detach()[:even].view(parts, even // parts, 1)
        self._rest = None
        if even < len(weight):
            self._rest = weight[even:], None if bias is None else bias.detach()[even:]

    def __call__(self, x: Tensor) -> Tensor:
        """W x + b of a few rows."""
        columns = x.t().expand(len(self._weight), *x.t().shape)  # [P,D,B]
        if self._bias is None:
            products = torch.bmm(self._weight, columns)  # [P,N/P,B]
        else:
            products = torch.baddbmm(self._bias, self._weight, columns)
        joined = products.flatten(0, 1).t()  # [B,N]
        if self._rest is None:
            return joined.contiguous()
        return torch.cat((joined, F.linear(x, *self._rest)), 1)


class TransposedParts:
    """A weight in transposed parts, each with its own outputs.

    >>> weight = torch.arange(12.0).view(4, 3)
    >>> TransposedParts(weight, None, parts=2)(torch.ones(1, 3))
    tensor([[ 3., 12., 21., 30.]])
    """

    __slots__ = ("_bias", "_outputs", "_parts", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None, parts: int) -> None:
        outputs, width = weight.shape
        missing = -outputs % parts
        if missing:
            weight = F.pad(weight, (0, 0, 0, missing))
            bias = None if bias is None else F.pad(bias.detach(), (0, missing))
        self._weight = weight.view(parts, -1, width).transpose(1, 2)  # [P,D,N/P]
        if 2 * outputs >= width:  # with fewer outputs the rows are read one after another anyway
            self._weight = self._weight.contiguous()
        self._bias = None if bias is None else bias.detach().view(parts, 1, -1)
        self._parts, self._outputs = parts, outputs

    def __call__(self, x: Tensor) -> Tensor:
        """W x + b of a few rows."""
        rows = x.expand(self._parts, *x.shape)  # [P,B,D]
        if self._bias is None:
            products = torch.bmm(rows, self._weight)  # [P,B,N/P]
        else:
            products = torch.baddbmm(self._bias, rows, self._weight)
        return products.transpose(0, 1).reshape(x.shape[0], -1).narrow(1, 0, self._outputs)


def pack_linear(owner: nn.Module, weight: Tensor, bias: Tensor | None) -> PackedLinear:
    """W x + b with the weight of a module; the packed copy lives as long as the module."""
    packed = _PACKED.get(owner)
    if packed is None or not packed.fits(weight, bias):
        packed = _PACKED[owner] = PackedLinear(weight, bias)
    return packed


def version_of(tensor: Tensor) -> tuple[int, int]:
    """A value that changes when the tensor is replaced or changed in place."""
    return tensor.data_ptr(), -1 if tensor.is_inference() else tensor._version


def _versions(
    weight: Tensor, bias: Tensor | None
) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """The versions of a weight and of its bias."""
    return version_of(weight), None if bias is None else version_of(bias)


_PACKED: WeakKeyDictionary[nn.Module, PackedLinear] = WeakKeyDictionary()
"""By the module that has the weight; gone when the module is."""
