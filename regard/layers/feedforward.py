"""The position-wise feed-forward layer, plain and gated.

>>> import torch
>>> FeedForward(8, 32)(torch.randn(2, 3, 8)).shape
torch.Size([2, 3, 8])
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import choose, positive
from regard.kernels.dropout import Dropout
from regard.kernels.linear import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
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
