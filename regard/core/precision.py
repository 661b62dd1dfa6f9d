"""Steps that need more digits than half precision has.

Under autocast, queries and scores may be bfloat16 or float16. That is enough for a score; it is not
enough for positions (bfloat16 has no whole number between 256 and 258) or for sums that run over
many keys. Such steps are computed in float32.

>>> in_float32(torch.ones(1, dtype=torch.bfloat16)).dtype, in_float32(torch.ones(1).double()).dtype
(torch.float32, torch.float64)
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn


def float32_or_wider(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision; float32 and float64 stay."""
    return torch.promote_types(dtype, torch.float32)


def in_float32(x: Tensor) -> Tensor:
    """The tensor in float32; one of float64 stays as it is."""
    return x.to(float32_or_wider(x.dtype))


def autocast_is_on(device: str) -> bool:
    """Is there an autocast for this type of device, and is it on?

    >>> autocast_is_on("cpu"), autocast_is_on("meta")
    (False, False)
    """
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def without_autocast(x: Tensor) -> AbstractContextManager[None]:
    """A context in which products on the device of `x` keep the dtype of their factors."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if autocast_is_on(device) else nullcontext()


def linear_in_float32(layer: nn.Linear, x: Tensor) -> Tensor:
    """W x + b in float32, also under autocast."""
    with without_autocast(x):
        return in_float32(layer(x.to(layer.weight.dtype)))
