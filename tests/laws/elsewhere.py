"""A device that is not the CPU, on any machine: tensors that claim to be there, and are checked.

The numbers of an `Elsewhere` tensor are in main memory, so whatever a model computes is computed,
and whatever it decides by a value is decided. But an operation on tensors here and there is refused
as a GPU would refuse it, but for the mixtures that torch allows: single numbers, indices, copies.

>>> import torch
>>> with Device():
...     there = Elsewhere(torch.ones(2))
...     (there + torch.arange(2, device=there.device)).cpu()
tensor([1., 2.])
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

AWAY = torch.device("meta")
"""What the tensors say their device is: one that every build of torch knows."""

MAY_MIX = {
    "aten::copy_",
    "aten::_to_copy",
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_pack_padded_sequence",
}
"""Operations that take tensors of the CPU beside those of a GPU."""


class Elsewhere(Tensor):
    """A tensor on another device."""

    __torch_function__: ClassVar[Callable[..., Any]] = torch._C._disabled_torch_function_impl
    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Elsewhere":
        """The tensor, with its numbers."""
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=AWAY
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})

    def tolist(self) -> list[Any]:
        """The numbers, as a GPU would send them."""
        return self.held.tolist()

    def new_tensor(self, data: Any, **kwargs: Any) -> "Elsewhere":
        """Numbers of a list, elsewhere; torch fills a tensor of its own before it asks anybody."""
        return Elsewhere(self.held.new_tensor(data, **kwargs))

    def __repr__(self) -> str:
        return f"Elsewhere({self.held})"


class Device(TorchDispatchMode):
    """Inside, tensors can be made elsewhere: `torch.zeros(2, device=x.device)`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The operation on the numbers; its results are where its arguments are, or where asked for."""
    name = func._schema.name
    given = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
    away = [each for each in given if isinstance(each, Elsewhere)]
    here = [each for each in given if not isinstance(each, Elsewhere) and each.dim() > 0]
    if name == "aten::_fused_sdp_choice":
        return 0  # by plain products: other kernels belong to one device
    if name == "aten::_pack_padded_sequence" and isinstance(args[1], Elsewhere):
        raise RuntimeError("lengths of packed sequences must be on the CPU")
    if away and here and name not in MAY_MIX:
        raise RuntimeError(f"{name}: tensors on the CPU and elsewhere")
    wanted = kwargs.get("device")
    there = bool(away) if wanted is None else torch.device(wanted) == AWAY
    inside = {**kwargs, "device": torch.device("cpu")} if wanted is not None else kwargs
    own = {id(each.held): each for each in away}
    args, inside = tree_map(lambda x: x.held if isinstance(x, Elsewhere) else x, (args, inside))
    result = func(*args, **inside)

    def placed(x: Any) -> Any:
        if not isinstance(x, Tensor) or not there:
            return x
        changed = own.get(id(x))  # what was changed in place is still itself
        return Elsewhere(x) if changed is None else changed

    if name == "aten::_pack_padded_sequence":
        return placed(result[0]), result[1]  # the sizes of its batches stay on the CPU
    if name == "aten::transpose_":
        with no_dispatch():  # the shape that is shown has to change too
            func(away[0], *args[1:])
    return tree_map(placed, result)


def moved(model: nn.Module) -> nn.Module:
    """The model with all weights and buffers elsewhere."""
    for module in model.modules():
        for kept in (module._parameters, module._buffers):
            for name, each in kept.items():
                if each is not None:
                    kept[name] = Elsewhere(each.detach())
        if isinstance(module, nn.RNNBase):
            module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]
    return model


def sent(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The batch elsewhere."""
    return {name: Elsewhere(each) for name, each in batch.items()}
