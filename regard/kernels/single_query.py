"""Attention of single queries in plain products, for decoders that take one step at a time.

For many rows with few keys each, plain products take less time than a fused kernel, which starts
again for each row. Forbidden keys get a bias of -∞; no row may be without any allowed key. Callers
report the weights to `record`, and go through `Attend` where an edit is active.

>>> import torch
>>> query, key = torch.randn(2, 3, 1, 4), torch.randn(2, 3, 5, 4)
>>> read, weights = attend_single_query(query, key, key, scale=0.5)
>>> read.shape, weights.shape
(torch.Size([2, 3, 4]), torch.Size([2, 3, 5]))
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def mask_bias(allowed: Bool[Tensor, "B 1 1 K"], dtype: torch.dtype) -> Float[Tensor, "B 1 1 K"]:
    """What is added to scores: 0 for an allowed key, -∞ for a forbidden one."""
    return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, -torch.inf)


def attend_single_query(
    query: Float[Tensor, "B H 1 E"],
    key: Float[Tensor, "B H K E"],
    value: Float[Tensor, "B H K E"],
    *,
    scale: float,
    bias: Float[Tensor, "B 1 1 K"] | None = None,
) -> tuple[Float[Tensor, "B H E"], Float[Tensor, "B H K"]]:
    """The weighted sum for the one query of each row, and its attention weights."""
    scores = (query * scale * key).sum(3)  # [B,H,K]
    weights = (scores if bias is None else scores + bias.squeeze(2)).softmax(2)
    return (weights.unsqueeze(3) * value).sum(2), weights


def attend_beams(
    query: Float[Tensor, "M Q E"],
    key: Float[Tensor, "M E K"],
    value: Float[Tensor, "M K E"],
    *,
    scale: float,
    bias: Float[Tensor, "#M 1 #K"],
    biased: bool,
) -> tuple[Float[Tensor, "M Q E"], Float[Tensor, "M Q K"]]:
    """The same for the queries of several beams; batch and heads are one axis, M."""
    scores = torch.baddbmm(bias, query, key, beta=int(biased), alpha=scale)  # [M,Q,K]
    weights = scores.softmax(2)
    return torch.bmm(weights, value), weights
