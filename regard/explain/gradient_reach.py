"""How far gradients reach: how much one prediction depends on each position of the input.

The norm of the gradient of a log-probability with respect to the embedding of each position, which
Bengio, Simard and Frasconi (1994) studied in plain RNNs. The task names the prediction: the next
token of a language model, the last token of a translation. To show the effect of attention, it is
measured again while all attention weights are zero: what is left passes through the recurrence.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import intervene
from regard.attention.tape import Look, Site
from regard.core.axes import Axis
from regard.core.errors import UserError
from regard.core.inputs import Input, InputLimits
from regard.tasks.abilities import ReachesBack

_LIMITS = InputLimits(characters=20_000)
"""Without attention the weights of all pairs of positions are in memory."""

WITH, WITHOUT, ALONE = "with attention", "without attention", "model without attention"


@dataclass(frozen=True)
class GradientReach:
    """The norm of the gradient at each position."""

    axis: Axis
    """The positions of the input."""
    norms: dict[str, tuple[float, ...]]
    """One for each position, with attention and without."""


def gradient_reach(task: ReachesBack, model: nn.Module, given: Input) -> GradientReach:
    """How far the gradient of the last prediction for an input reaches."""
    given.check(_LIMITS)
    last = task.last_prediction(model, given)
    whole = gradient_norms(model, last.inputs, last.log_probability)
    if not any(isinstance(module, Site) for module in model.modules()):
        return GradientReach(last.axis, {ALONE: whole})
    with intervene(model, {"*": zero_weights}):
        rest = gradient_norms(model, last.inputs, last.log_probability)
    return GradientReach(last.axis, {WITH: whole, WITHOUT: rest})


def zero_weights(weights: Tensor, look: Look) -> Tensor:
    """An edit: every weight is zero, and no gradient passes."""
    return torch.zeros_like(weights)


def gradient_norms(
    model: nn.Module, inputs: Tensor, log_probability: Callable[[], Float[Tensor, ""]]
) -> tuple[float, ...]:
    """The norm of the gradient at each position of integer tokens [1,T] or vectors [1,T,...]."""
    vectors = _floating_leaf(inputs) if inputs.is_floating_point() else _embedded(model, inputs)
    with torch.enable_grad(), vectors as leaves:
        value = log_probability()
        if not leaves:
            raise UserError(f"no embedding of {type(model).__name__} is called with this input")
        (gradient,) = torch.autograd.grad(value, [leaves[0]], materialize_grads=True)
    return tuple(gradient[0].float().flatten(1).norm(dim=-1).tolist())


@contextmanager
def _floating_leaf(inputs: Tensor) -> Iterator[list[Tensor]]:
    """The inputs themselves, with a gradient."""
    before = inputs.requires_grad
    try:
        yield [inputs.requires_grad_()]
    finally:
        inputs.requires_grad_(before)


@contextmanager
def _embedded(model: nn.Module, tokens: Tensor) -> Iterator[list[Tensor]]:
    """The vectors of these tokens from the embedding of the model, in order, with a gradient."""
    leaves: list[Tensor] = []

    def keep(module: nn.Module, given: tuple[Tensor, ...], vectors: Tensor) -> Tensor | None:
        forwards, backwards = (torch.equal(given[0], each) for each in (tokens, tokens.flip(1)))
        if leaves or not (forwards or backwards):
            return None
        backwards = backwards and not forwards
        leaf = vectors.detach().flip(1) if backwards else vectors.detach()
        leaves.append(leaf.requires_grad_())
        return leaf.flip(1) if backwards else leaf

    hooks = [
        module.register_forward_hook(keep)
        for module in model.modules()
        if isinstance(module, nn.Embedding)
    ]
    try:
        yield leaves
    finally:
        for hook in hooks:
            hook.remove()
