"""A linear layer as a plain function, with its weights laid out as a few rows take them fastest.

What one step of a decoder multiplies are a few rows with all the weights there are. One row takes
half the time of a weight that lies column by column, and less again if each thread has columns of
its own: otherwise such a product is the work of a single one. A handful of rows take less of a
weight that was packed into blocks. So a weight is copied once into the form that its first steps
ask for. A copy is used as long as the weight is what it was: an optimiser's step or other weights
that are loaded make a new one.

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

from regard.layers.embedding import TokenEmbedding
from regard.layers.feedforward import FeedForward

Product = Callable[[Tensor], Tensor]
"""What a module computes of rows `[B,D]`; what it gives is nobody else's."""

FEW = 48
"""Up to so many rows a packed weight is the faster one."""

LARGE = 2**18
"""Weights of so many elements are worth packing."""

PART = 2**16
"""A thread is worth waking for so many elements of a weight."""


def product(module: nn.Module) -> Product:
    """What a module without hooks computes; one that is not known here is called as it is."""
    if type(module) is nn.Linear:
        return laid(module, module.weight, module.bias)
    if type(module) is nn.LayerNorm:
        shape, eps = list(module.normalized_shape), module.eps
        scale, shift = module.weight, module.bias
        return lambda x: torch.layer_norm(x, shape, scale, shift, eps)
    if type(module) is FeedForward:
        widen, narrow = product(module.widen), product(module.narrow)
        plain: Product = module.activation
        # The sums before it are nobody else's, so they may be changed where they are.
        activation = torch.relu_ if plain is F.relu else plain
        return lambda x: narrow(activation(widen(x)))
    return module


class Laid:
    """W x + b for rows, with W as it is, cut into a part for each thread, or packed."""

    __slots__ = ("_cut", "_packed", "_stamp", "bias", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias, self._stamp = weight, bias, stamp(weight)
        here = weight.device.type == "cpu"
        large = weight.numel() >= LARGE and weight.dtype == torch.float32
        # None is "not yet", False is "never".
        self._cut: Cut | bool | None = None if here else False
        self._packed: Tensor | bool | None = None if here and large and packs() else False

    def fits(self, weight: Tensor, bias: Tensor | None) -> bool:
        """Is it still of this weight, and the weight as it was?"""
        return self.weight is weight and self.bias is bias and self._stamp == stamp(weight)

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
            self._cut = Cut(self.weight.detach(), self.bias)
        assert isinstance(self._cut, Cut)
        return self._cut(x)


class Cut:
    """A weight in as many parts as there are threads, each with outputs of its own.

    >>> weight = torch.arange(12.0).view(4, 3)
    >>> Cut(weight, None, parts=2)(torch.ones(1, 3))
    tensor([[ 3., 12., 21., 30.]])
    """

    __slots__ = ("_bias", "_parts", "_weight", "_words")

    def __init__(self, weight: Tensor, bias: Tensor | None, parts: int = 0) -> None:
        words, width = weight.shape
        parts = parts or max(1, min(torch.get_num_threads(), weight.numel() // PART))
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


def laid(owner: nn.Module, weight: Tensor, bias: Tensor | None) -> Laid:
    """The product with the weight of a module, which keeps it."""
    found = _LAID.get(owner)
    if found is None or not found.fits(weight, bias):
        found = _LAID[owner] = Laid(weight, bias)
    return found


def scores(embed: TokenEmbedding, output: nn.Module | None, bias: Tensor | None = None) -> Product:
    """How well each token fits a state: by an output layer, or by the table of the embedding."""
    if output is None:
        return laid(embed.table, embed.table.weight, bias)
    fits = product(output)
    return fits if bias is None else lambda x: fits(x) + bias


def stamp(weight: Tensor) -> tuple[int, int]:
    """What changes when the weight does."""
    return weight.data_ptr(), -1 if weight.is_inference() else weight._version


def packs() -> bool:
    """Can weights be packed here?"""
    there = torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)
    return there and hasattr(torch.ops.mkldnn, "_linear_pointwise")


_LAID: WeakKeyDictionary[nn.Module, Laid] = WeakKeyDictionary()
"""By the module whose weight it is; gone when the module is."""
