"""One vector out of several layers: γ Σ softmax(s)_j h_j (Peters et al. 2018, eq. 1).

With `norm` each layer is first brought to mean zero and variance one, over all real positions and
numbers together: padding has no part in either (section 3.2, "it also helped to apply layer
normalization").

>>> mix = ScalarMix(3)
>>> layers = torch.randn(3, 2, 4, 5)
>>> torch.allclose(mix(layers, torch.tensor([4, 2])), layers.mean(0), atol=1e-6)
True
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import positive
from regard.core.padding import real_positions

_SMALL = 1e-12
"""Keeps the variance of nothing from dividing by zero, as in ELMo's code."""


class ScalarMix(nn.Module):
    """Weights of layers and a scale, learnt by whoever uses the layers."""

    def __init__(self, layers: int, *, norm: bool = False) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(positive("layers", layers)))
        self.gamma = nn.Parameter(torch.ones(()))
        self.norm = norm

    @property
    def weights(self) -> Float[Tensor, "L"]:
        """How much each layer counts; together one."""
        return self.scores.softmax(0)

    def forward(
        self, layers: Float[Tensor, "L B T D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B T D"]:
        """The mix."""
        if self.norm:
            layers = normed(layers, lengths)
        mixed: Tensor = self.gamma * torch.einsum("l,lbtd->btd", self.weights, layers)
        return mixed


def normed(layers: Float[Tensor, "L B T D"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "L B T D"]:
    """Each layer less its mean, over its deviation, both over real positions; padding is zero."""
    real = real_positions(lengths, layers.shape[2])[..., None].to(layers.dtype)  # [B,T,1]
    count = (real.sum() * layers.shape[3]).clamp_min(1)
    held = layers * real
    mean = held.sum((1, 2, 3), keepdim=True) / count
    variance = (((layers - mean) * real).square().sum((1, 2, 3), keepdim=True)) / count
    return (layers - mean) * real * (variance + _SMALL).rsqrt()
