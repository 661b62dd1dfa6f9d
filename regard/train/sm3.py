"""SM3: adaptive steps with the memory of a few vectors (Anil et al. 2019, arXiv:1901.11150).

Adagrad and Adam keep a number for every weight. SM3 keeps one for every set of a cover of the
weights. Here the sets are the slices along each axis: m + n of them for a matrix [m,n], and every
entry by itself for a vector, where SM3 is Adagrad. With g the gradient, μ(r) the number of set r
and S_r its weights:

    SM3-I     μ(r) += max of g²(j) over j in S_r,    ν(i) = min of μ(r) over the sets r of i
    SM3-II    ν(i) = min of μ(r) over the sets r of i, + g²(i),    μ(r) = max of ν(j) over j in S_r
    both      u = g / √ν, and 0 where ν is 0
              m = β m + (1 - β) u,    w -= lr m

Both bound Adagrad's sum of squares from above; SM3-II is the tighter bound. The momentum m is as
large as the weights; β = 0 does not keep it.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn, optim


class SM3Optimizer(optim.Optimizer):
    """SM3-I or SM3-II with the slices along each axis as the cover; dense gradients only.

    >>> matrix = nn.Parameter(torch.zeros(4, 3))
    >>> optimiser = SM3Optimizer([matrix], lr=0.5, momentum=0.0)
    >>> {name: list(each.shape) for name, each in optimiser.state[matrix].items()}
    {'axis_0': [4], 'axis_1': [3]}
    >>> matrix.grad = torch.full((4, 3), -2.0)
    >>> optimiser.step()
    >>> matrix[0].tolist()
    [0.5, 0.5, 0.5]
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | list[dict[str, object]],
        lr: float,
        *,
        momentum: float = 0.9,
        variant: int = 2,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "variant": variant,
            "weight_decay": weight_decay,
        }
        super().__init__(parameters, defaults)
        for group in self.param_groups:
            for each in group["params"]:
                for axis, size in enumerate(each.shape or (1,)):
                    self.state[each][f"axis_{axis}"] = each.new_zeros(size, requires_grad=False)
                if group["momentum"]:
                    self.state[each]["momentum"] = torch.zeros_like(each)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                gradient = weight.grad
                if group["weight_decay"]:
                    gradient = gradient + group["weight_decay"] * weight
                state, beta = self.state[weight], group["momentum"]
                bound = _bound(state, gradient, group["variant"])
                update = torch.where(bound > 0, gradient * bound.rsqrt(), 0.0)
                if beta:
                    update = state["momentum"].mul_(beta).add_(update, alpha=1 - beta)
                weight.add_(update, alpha=-group["lr"])


def _bound(state: dict[str, Tensor], gradient: Tensor, variant: int) -> Tensor:
    """ν, the bound of the sum of squares of every weight; it brings μ up to date."""
    squares = gradient.square().reshape(gradient.shape or (1,))
    axes = [state[f"axis_{axis}"] for axis in range(squares.dim())]
    if variant == 1:
        for axis, kept in enumerate(axes):
            kept.add_(_largest(squares, axis))
        return _least(axes).view_as(gradient)
    bound = _least(axes) + squares
    for axis, kept in enumerate(axes):
        kept.copy_(_largest(bound, axis))
    return bound.view_as(gradient)


def _largest(tensor: Tensor, axis: int) -> Tensor:
    """The maximum of each slice along an axis."""
    others = [each for each in range(tensor.dim()) if each != axis]
    return tensor.amax(others) if others else tensor


def _least(axes: list[Tensor]) -> Tensor:
    """The minimum over the slices that an entry is in, for every entry."""
    least = axes[0].view(-1, *(1 for _ in axes[1:]))
    for axis, each in enumerate(axes[1:], start=1):
        least = torch.minimum(least, each.view(-1, *(1 for _ in axes[axis + 1 :])))
    return least
