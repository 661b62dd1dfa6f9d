"""Highway layers: each number is carried along or transformed, as a gate has it (Srivastava 2015).

    y = g · relu(W x + b) + (1 - g) · x,    g = σ(V x + c)

>>> Highway(6, layers=2)(torch.randn(3, 6)).shape
torch.Size([3, 6])
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import positive

_CARRY_AT_FIRST = -2.0
"""What the bias of the gate begins with: most is carried (Srivastava et al. 2015, section 2.2)."""


class Highway(nn.Module):
    """Some of them, one after another."""

    def __init__(self, width: int, layers: int = 1) -> None:
        super().__init__()
        sizes = (positive("width", width), width)
        self.transform = nn.ModuleList(nn.Linear(*sizes) for _ in range(layers))
        self.gate = nn.ModuleList(nn.Linear(*sizes) for _ in range(layers))
        for gate in self.gate:
            assert isinstance(gate, nn.Linear)
            nn.init.constant_(gate.bias, _CARRY_AT_FIRST)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """What is carried and what is transformed."""
        for transform, gate in zip(self.transform, self.gate, strict=True):
            # x + g (t - x) is the equation with one product less.
            x = torch.lerp(x, transform(x).relu(), gate(x).sigmoid())
        return x
