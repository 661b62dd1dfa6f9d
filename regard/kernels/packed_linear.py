"""A linear layer as a plain function, with its weights laid out as a few rows take them fastest.

What one step of a decoder multiplies are a few rows with all the weights there are. One row takes
half the time if each thread has outputs of its own: otherwise such a product is the work of a
single one. Wide weights are read as they lie, at the speed of memory; narrow ones take less time
column by column, and a handful of rows less of a weight that was packed into blocks. So a weight is
copied, if at all, once into the form that its first steps ask for. A copy is used as long as the
weight and the bias are what they were: an optimiser's step or other weights that are loaded make a
new one.

>>> import torch
>>> linear = nn.Linear(4, 6)
>>> x = torch.randn(3, 4)
>>> with torch.no_grad():
...     bool(torch.allclose(product(linear)(x), linear(x), atol=1e-6))
True
"""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.kernels.linear import has_one_dnn, is_linear
from regard.layers.embedding import TokenEmbedding
from regard.layers.feedforward import FeedForward

_Product = Callable[[Tensor], Tensor]
"""What a module computes of rows `[B,D]`; what it gives is nobody else's."""

FEW = 48
"""Up to so many rows a packed weight is the faster one."""

_LARGE = 2**18
"""Weights of so many elements are worth packing."""

_PART = 2**16
"""A thread is worth waking for so many elements of a weight."""

WIDE = 512
"""Sums of so many products are as fast along the weight as it lies."""


def product(module: nn.Module) -> _Product:
    """What a module without hooks computes; one that is not known here is called as it is."""
    if is_linear(module):
        return _laid(module, module.weight, module.bias)
    if type(module) is nn.LayerNorm:
        shape, eps = list(module.normalized_shape), module.eps
        scale, shift = module.weight, module.bias
        return lambda x: torch.layer_norm(x, shape, scale, shift, eps)
    if type(module) is FeedForward:
        widen, narrow = product(module.widen), product(module.narrow)
        plain: _Product = module.activation
        # The sums before it are nobody else's, so they may be changed where they are.
        activation = torch.relu_ if plain is F.relu else plain
        return lambda x: narrow(activation(widen(x)))
    return module


class Laid:
    """W x + b for rows, with W as it is, cut into a part for each thread, or packed."""

    __slots__ = ("_cut", "_packed", "_stamps", "bias", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias, self._stamps = weight, bias, stamps(weight, bias)
        here = weight.device.type == "cpu"
        large = weight.numel() >= _LARGE and weight.dtype == torch.float32
        # None is "not yet", False is "never".
        self._cut: Cut | Shared | bool | None = None if here else False
        self._packed: Tensor | bool | None = None if here and large and has_one_dnn() else False

    def fits(self, weight: Tensor, bias: Tensor | None) -> bool:
        """Are these the same weight and bias, with the same values?"""
        same = self.weight is weight and self.bias is bias
        return same and self._stamps == stamps(weight, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """The product, by the form that suits so many rows."""
        few = x.shape[0] <= FEW
        if self._packed is not False and few and x.shape[0] > 1:
            if self._packed is None:
                self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)
            done: Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self._packed, self.bias, "none", [], ""
            )
            return done
        if self._cut is False or not few:
            return F.linear(x, self.weight, self.bias)
        if self._cut is None:
            self._cut = cut(self.weight.detach(), self.bias)
        assert not isinstance(self._cut, bool)
        return self._cut(x)


def cut(weight: Tensor, bias: Tensor | None) -> "Cut | Shared":
    """The weight in a part for each thread."""
    parts = max(1, min(torch.get_num_threads(), weight.numel() // _PART))
    if parts > 1 and weight.shape[1] >= WIDE and weight.is_contiguous():
        return Shared(weight, bias, parts)
    return Cut(weight, bias, parts)


class Shared:
    """A weight as it lies, whose outputs are shared out; the few that are left over stand alone.

    >>> weight = torch.arange(15.0).view(5, 3)
    >>> Shared(weight, None, parts=2)(torch.ones(1, 3))
    tensor([[ 3., 12., 21., 30., 39.]])
    """

    __slots__ = ("_bias", "_over", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None, parts: int) -> None:
        even = len(weight) - len(weight) % parts
        self._weight = weight[:even].unflatten(0, (parts, even // parts))  # [P,N/P,D]
        self._bias = None if bias is None else bias.detach()[:even].view(parts, even // parts, 1)
        self._over = None
        if even < len(weight):
            self._over = weight[even:], None if bias is None else bias.detach()[even:]

    def __call__(self, x: Tensor) -> Tensor:
        """W x + b of a few rows."""
        columns = x.t().expand(len(self._weight), *x.t().shape)  # [P,D,B]
        if self._bias is None:
            found = torch.bmm(self._weight, columns)  # [P,N/P,B]
        else:
            found = torch.baddbmm(self._bias, self._weight, columns)
        shared = found.flatten(0, 1).t()  # [B,N]
        if self._over is None:
            return shared.contiguous()
        return torch.cat((shared, F.linear(x, *self._over)), 1)


class Cut:
    """A weight in parts that lie column by column, each with outputs of its own.

    >>> weight = torch.arange(12.0).view(4, 3)
    >>> Cut(weight, None, parts=2)(torch.ones(1, 3))
    tensor([[ 3., 12., 21., 30.]])
    """

    __slots__ = ("_bias", "_parts", "_weight", "_words")

    def __init__(self, weight: Tensor, bias: Tensor | None, parts: int) -> None:
        words, width = weight.shape
        missing = -words % parts
        if missing:
            weight = F.pad(weight, (0, 0, 0, missing))
            bias = None if bias is None else F.pad(bias.detach(), (0, missing))
        self._weight = weight.view(parts, -1, width).transpose(1, 2)  # [P,D,N/P]
        if 2 * words >= width:  # else the rows of so long a sum are read one after another anyway
            self._weight = self._weight.contiguous()
        self._bias = None if bias is None else bias.detach().view(parts, 1, -1)
        self._parts, self._words = parts, words

    def __call__(self, x: Tensor) -> Tensor:
        """W x + b of a few rows."""
        rows = x.expand(self._parts, *x.shape)  # [P,B,D]
        if self._bias is None:
            found = torch.bmm(rows, self._weight)  # [P,B,N/P]
        else:
            found = torch.baddbmm(self._bias, rows, self._weight)
        return found.transpose(0, 1).reshape(x.shape[0], -1).narrow(1, 0, self._words)


def _laid(owner: nn.Module, weight: Tensor, bias: Tensor | None) -> Laid:
    """The product with the weight of a module, which keeps it."""
    found = _LAID.get(owner)
    if found is None or not found.fits(weight, bias):
        found = _LAID[owner] = Laid(weight, bias)
    return found


def scores(embed: TokenEmbedding, output: nn.Module | None, bias: Tensor | None = None) -> _Product:
    """How well each token fits a state: by an output layer, or by the table of the embedding."""
    if output is None:
        return _laid(embed.table, embed.table.weight, bias)
    fits = product(output)
    return fits if bias is None else lambda x: fits(x) + bias


def stamp(weight: Tensor) -> tuple[int, int]:
    """What changes when the tensor does."""
    return weight.data_ptr(), -1 if weight.is_inference() else weight._version


def stamps(weight: Tensor, bias: Tensor | None) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """The stamps of a weight and of its bias, which a form of it may have copied."""
    return stamp(weight), None if bias is None else stamp(bias)


_LAID: WeakKeyDictionary[nn.Module, Laid] = WeakKeyDictionary()
"""By the module whose weight it is; gone when the module is."""
