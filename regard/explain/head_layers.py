"""Layers of several heads: what each says of the tokens, how it agrees, and whether it is needed.

A prediction is read from some positions of the top layer: what a pooling looks at, the last word of
a language model, the word that is tagged. From there four ways lead down to the tokens:

- raw: where the last layer looks, the mean of its heads;
- rollout: layer times layer, each half its weights and half the residual branch (Abnar and Zuidema
  2020, section 3);
- attention x gradient: R ← R + Ā·R from the first layer to the last, beginning with the identity,
  with Ā = E_h((∇A ∘ A)⁺), the mean over heads (Chefer et al. 2021, eq. 5 and 6). ∇A is the gradient
  of the likeliest class's logit, as in the authors' code (of its log-probability for a tagger);
- value-weighted: how long the vectors are that the last layer takes from each token, ‖Σ_h α f(x)‖
  (Kobayashi et al. 2020, eq. 4).

A head that is switched off (`without`) shows by the prediction whether it mattered.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Attend, Look, Memory, intervene
from regard.attention.attend import spread
from regard.attention.edit import without
from regard.attention.tape import sites_of
from regard.core.protocols import Batch
from regard.explain.importance import moved

WAYS = ("raw", "rollout", "attention x gradient", "value-weighted")
"""How weights of several layers become one number for each token."""


@runtime_checkable
class Merges(Protocol):
    """A layer whose heads are joined by a linear layer."""

    attend: Attend
    merge: nn.Linear


@dataclass(frozen=True)
class Layer:
    """What happened at one site of self-attention."""

    weights: Float[Tensor, "B H T T"]
    slopes: Float[Tensor, "B H T T"]
    """The gradient of the likeliest class's logit with respect to each weight."""
    taken: Float[Tensor, "B H T D"]
    """What a weight of one takes from each token, as it leaves the layer."""


@dataclass(frozen=True)
class Stack:
    """The layers of self-attention over the tokens that are judged, from the first to the last.

    `reads` says from which positions of the top layer the prediction is read: `[B,T]`, a row of
    shares of one.
    """

    model: nn.Module
    predict: Callable[[Batch], Tensor]
    sites: tuple[str, ...]
    reads: Callable[[Batch], Tensor]

    @property
    def attends(self) -> dict[str, Attend]:
        """The attention of each site."""
        known = sites_of(self.model)
        return {name: site for name in self.sites if isinstance(site := known[name], Attend)}

    def read(self, batch: Batch) -> dict[str, Layer]:
        """One pass, with the gradient of the likeliest class's logit at every weight."""
        leaves: dict[str, Tensor] = {}
        values: dict[str, Tensor] = {}

        def leaf(own: Tensor, look: Look) -> Tensor:
            leaves[look.site] = own.detach().requires_grad_()
            return leaves[look.site]

        hooks = [self._keep(site, values) for site in self.attends]
        try:
            with torch.enable_grad(), intervene(self.model, dict.fromkeys(self.sites, leaf)):
                logits = self.predict(batch)
        finally:
            for hook in hooks:
                hook.remove()
        best = logits.max(1).values.sum()
        slopes = torch.autograd.grad(best, [leaves[site] for site in self.sites])
        return {
            site: Layer(leaves[site].detach(), slope, self._taken(site, values[site]))
            for site, slope in zip(self.sites, slopes, strict=True)
        }

    def _keep(self, site: str, values: dict[str, Tensor]) -> torch.utils.hooks.RemovableHandle:
        def keep(module: nn.Module, given: tuple[object, ...]) -> None:
            memory = next(each for each in given if isinstance(each, Memory))
            values[site] = memory.value.detach()

        return self.attends[site].register_forward_pre_hook(keep)

    @torch.no_grad()
    def _taken(self, site: str, value: Tensor) -> Tensor:
        """Values through the part of the joining layer that belongs to their head."""
        for module in self.model.modules():
            if isinstance(module, Merges) and module.attend is self.attends[site]:
                heads = module.merge.in_features // value.shape[3]
                out = module.merge.weight.unflatten(1, (heads, value.shape[3]))  # [D,H,E]
                return torch.einsum("bhke,dhe->bhkd", spread(value, heads), out)
        return value

    @torch.no_grad()
    def without_head(self, batch: Batch, site: str, head: int) -> Float[Tensor, "B C"]:
        """What the model says when one head reads nothing."""
        with intervene(self.model, {site: without(head)}):
            return self.predict(batch).softmax(-1)


@runtime_checkable
class Stacked(Protocol):
    """A reader that knows the layers under its prediction."""

    @property
    def stack(self) -> Stack | None:
        """The layers; None if there are none."""
        ...


@dataclass(frozen=True)
class Heads:
    """What several layers say of some texts."""

    ways: Mapping[str, Float[Tensor, "B T"]]
    """One number for each token, by the way it was got."""
    heads: Mapping[str, Float[Tensor, "B T"]]
    """Where each head looks, by `site head`."""
    moves: Mapping[str, Float[Tensor, "B"]]
    """How far the prediction moves without the head."""


def read_heads(stack: Stack, batch: Batch) -> Heads:
    """All ways, all heads, and every head switched off once."""
    layers = stack.read(batch)
    with torch.no_grad():
        top = stack.reads(batch)  # [B,T]
        said = stack.predict(batch).softmax(-1)
        last = layers[stack.sites[-1]]
        heads, moves = {}, {}
        for site, layer in layers.items():
            for head in range(layer.weights.shape[1]):
                name = f"{site} {head}"
                heads[name] = _through(top, layer.weights[:, head])
                moves[name] = moved(said, stack.without_head(batch, site, head))
        found = (
            _through(top, last.weights.mean(1)),
            _rolled(top, [_residual(layer.weights.mean(1)) for layer in layers.values()]),
            _through(exact(top), relevance(list(layers.values()))),
            lengths(top, last),
        )
    return Heads(dict(zip(WAYS, found, strict=True)), heads, moves)


def _through(top: Float[Tensor, "B T"], weights: Float[Tensor, "B T T"]) -> Float[Tensor, "B T"]:
    """What the positions that are read look at."""
    return (top[:, None] @ weights)[:, 0]


def _rolled(top: Float[Tensor, "B T"], layers: list[Tensor]) -> Float[Tensor, "B T"]:
    """Down through all layers, the last first."""
    for layer in reversed(layers):
        top = _through(top, layer)
    return top


def _residual(weights: Float[Tensor, "B T T"]) -> Float[Tensor, "B T T"]:
    """Half the weights and half what goes by."""
    return (weights + torch.eye(weights.shape[1]).to(weights)) / 2


def relevance(layers: Sequence[Layer]) -> Float[Tensor, "B T T"]:
    """R after the last layer: how much each position depends on each token (Chefer et al. 2021).

    In float64 on the CPU: where gradients are small, R differs from the identity by less than
    float32 can hold.
    """
    first = exact(layers[0].weights)
    total = torch.eye(first.shape[2], dtype=first.dtype).expand(first.shape[0], -1, -1)
    for layer in layers:
        mean = (exact(layer.slopes) * exact(layer.weights)).clamp_min(0.0).mean(1)  # eq. 5
        total = total + mean @ total  # eq. 6
    return total


def exact(values: Tensor) -> Float[Tensor, "..."]:
    """The same in float64, on the CPU: not every device has it."""
    return values.detach().cpu().double()


def lengths(top: Float[Tensor, "B T"], layer: Layer) -> Float[Tensor, "B T"]:
    """The lengths of what each position takes from each token, of the positions that are read."""
    found = torch.zeros_like(top)
    for place in (top > 0).any(0).nonzero()[:, 0].tolist():
        vectors = torch.einsum("bhk,bhkd->bkd", layer.weights[:, :, place], layer.taken)
        found += top[:, place, None] * vectors.norm(dim=2)
    return found
