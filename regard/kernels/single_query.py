"""Attention of single queries written out, for decoders that take one step at a time.

For many rows with few keys each, plain products take less time than a fused kernel, which begins
anew with each row. What is forbidden is hidden by a bias of -∞; no row may be without any key.

>>> import torch
>>> query, key = torch.randn(2, 3, 1, 4), torch.randn(2, 3, 5, 4)
>>> read, weights = read_single(query, key, key, scale=0.5)
>>> read.shape, weights.shape
(torch.Size([2, 3, 4]), torch.Size([2, 3, 5]))
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def hiding(allowed: Bool[Tensor, "B 1 1 K"], dtype: torch.dtype) -> Float[Tensor, "B 1 1 K"]:
    """What is added to scores: nothing where a key may be looked at, -∞ where not."""
    return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, -torch.inf)


def read_single(
    query: Float[Tensor, "B H 1 E"],
    key: Float[Tensor, "B H K E"],
    value: Float[Tensor, "B H K E"],
    *,
    scale: float,
    bias: Float[Tensor, "B 1 1 K"] | None = None,
) -> tuple[Float[Tensor, "B H E"], Float[Tensor, "B H K"]]:
    """What the one query of each row takes home, and where it looked."""
    scores = (query * scale * key).sum(3)  # [B,H,K]
    weights = (scores if bias is None else scores + bias.squeeze(2)).softmax(2)
    return (weights.unsqueeze(3) * value).sum(2), weights


def read_together(
    query: Float[Tensor, "M Q E"],
    key: Float[Tensor, "M E K"],
    value: Float[Tensor, "M K E"],
    *,
    scale: float,
    bias: Float[Tensor, "#M 1 #K"],
    biased: bool,
) -> tuple[Float[Tensor, "M Q E"], Float[Tensor, "M Q K"]]:
    """The same for the queries of several beams, with all heads one under another."""
    scores = torch.baddbmm(bias, query, key, beta=int(biased), alpha=scale)  # [M,Q,K]
    weights = scores.softmax(2)
    return torch.bmm(weights, value), weights
