"""The position-wise feed-forward layer, plain and gated.

>>> import torch
>>> FeedForward(8, 32)(torch.randn(2, 3, 8)).shape
torch.Size([2, 3, 8])
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import choose, positive
from regard.kernels.dropout import Dropout
from regard.kernels.linear import Linear


def _quick_gelu(x: Tensor) -> Tensor:
    """x σ(1.702 x) (Hendrycks and Gimpel 2016, section 2)."""
    return x * torch.sigmoid(1.702 * x)


def _clipped_gelu(x: Tensor) -> Tensor:
    """GELU, at most 10, for weights that are to be quantised (Wu et al. 2020)."""
    return F.gelu(x).clip(-10.0, 10.0)


def _squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)² (So et al. 2021)."""
    return F.relu(x).square()


def _laplace(x: Tensor) -> Tensor:
    """½ (1 + erf((x - μ) / (σ √2))) (Ma et al. 2022, equation 16)."""
    return 0.5 * (1.0 + torch.erf((x - 0.707107) / (0.282095 * math.sqrt(2.0))))


def _root_softplus(x: Tensor) -> Tensor:
    """√(log(1 + eˣ))."""
    return F.softplus(x).sqrt()


def _linear(x: Tensor) -> Tensor:
    """x: no activation."""
    return x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "quick_gelu": _quick_gelu,
    "clipped_gelu": _clipped_gelu,
    "squared_relu": _squared_relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "laplace": _laplace,
    "root_softplus": _root_softplus,
    "linear": _linear,
}
"""Activations by the name a recipe calls them."""


class FeedForward(nn.Module):
    """W₂ f(W₁ x + b₁) + b₂ at each position (Vaswani et al. 2017, eq. 2)."""

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation = choose("activation", activation, ACTIVATIONS)
        self.widen = Linear(positive("width", width), positive("hidden", hidden), bias=bias)
        self.narrow = Linear(hidden, width, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """Position by position."""
        narrowed: Tensor = self.narrow(self.dropout(self.activation(self.widen(x))))
        return narrowed


class GatedFeedForward(nn.Module):
    """W₂ (f(W₁ x) ⊙ V x) at each position (Shazeer 2020); GEGLU, SwiGLU, ... by the activation."""

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        activation: str = "silu",
        dropout: float = 0.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.activation = choose("activation", activation, ACTIVATIONS)
        self.widen = Linear(positive("width", width), 2 * positive("hidden", hidden), bias=bias)
        self.narrow = Linear(hidden, width, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """Position by position; gate and value come from one product."""
        gate, value = self.widen(x).chunk(2, dim=-1)
        narrowed: Tensor = self.narrow(self.dropout(self.activation(gate) * value))
        return narrowed
