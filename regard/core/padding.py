"""Padding: which positions of a batch are real, and the target of those that are not."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

IGNORE = -100
"""The target of a position that does not count; torch's cross entropy ignores it too."""


def real_positions(lengths: Int[Tensor, "B"], width: int) -> Bool[Tensor, "B T"]:
    """True at the first `lengths` positions of each row of `width` positions.

    >>> real_positions(torch.tensor([2, 0]), 3).int().tolist()
    [[1, 1, 0], [0, 0, 0]]
    """
    return torch.arange(width, device=lengths.device) < lengths[:, None]
