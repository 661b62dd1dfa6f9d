"""Modules built without drawing weights that are to be replaced: at once, and even of no memory.

>>> with torch.device("meta"), SkipInitialisation():
...     layer = torch.nn.Linear(10**6, 10**6)
>>> layer.weight.shape
torch.Size([1000000, 1000000])
"""

from collections.abc import Callable, Mapping, Sequence

import torch as torch
from torch.overrides import TorchFunctionMode

_DRAWS = (
    "normal_",
    "uniform_",
    "trunc_normal_",
    "xavier_normal_",
    "xavier_uniform_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "orthogonal_",
    "sparse_",
)
"""What fills a tensor by chance: the names are the same in torch.nn.init and on tensors."""


class SkipInitialisation(TorchFunctionMode):
    """Within it, tensors that would be filled by chance are left as they are."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Everything but drawing, as always."""
        given = dict(kwargs or {})
        if getattr(func, "__name__", "") in _DRAWS:
            return args[0] if args else given["tensor"]
        return func(*args, **given)
