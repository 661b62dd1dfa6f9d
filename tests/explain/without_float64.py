"""A stand-in for a device without float64, such as MPS, on a machine that has none."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class WithoutFloat64(TorchFunctionMode):
    """Tensors count as on that device until `.cpu()`; one that becomes float64 there is refused."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is Tensor.cpu:
            result = result.clone()  # else it would be the same tensor
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        moved = func is Tensor.cpu or all(hasattr(each, "on_the_cpu") for each in given)
        for each in tree_leaves(result):
            if not isinstance(each, Tensor):
                continue
            if moved:
                each.on_the_cpu = True  # type: ignore[attr-defined]
            elif each.dtype == torch.float64:
                raise RuntimeError(f"{func.__name__}: this device has no float64; move to the CPU")
        return result
