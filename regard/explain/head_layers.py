"""Layers of several heads: the importance of positions by them, and whether each head is needed.

A prediction depends on some positions of the top layer: those that a pooling site attends to, the
last token of a language model, the word that is tagged. From there four methods lead down to the
inputs:

- raw: the weights of the last layer, the mean over its heads;
- rollout: the product of the layers, each half its weights and half the residual connection (Abnar
  and Zuidema 2020, section 3);
- attention x gradient: R ← R + Ā·R from the first layer to the last, starting with the identity,
  with Ā = E_h((∇A ∘ A)⁺), the mean over heads (Chefer et al. 2021, eq. 5 and 6). ∇A is the gradient
  of the top class's logit, as in the authors' code (of its log-probability for a tagger);
- value-weighted: the norms of the vectors that the last layer reads at each position, ‖Σ_h α f(x)‖
  (Kobayashi et al. 2020, eq. 4).

Whether a head is needed is measured by the prediction without it (`without`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Attend, Look, Memory, intervene
from regard.attention.attend import repeat_heads
from regard.attention.edit import without
from regard.attention.tape import sites_of
from regard.core.protocols import Batch
from regard.explain.importance import total_variation

METHODS = ("raw", "rollout", "attention x gradient", "value-weighted")
"""How the weights of several layers become one number for each position."""


@runtime_checkable
class MergesHeads(Protocol):
    """A layer whose heads are joined by a linear layer."""

    attend: Attend
    merge: nn.Linear


@dataclass(frozen=True)
class LayerRecord:
    """One pass through one site of self-attention."""

    weights: Float[Tensor, "B H T T"]
    gradients: Float[Tensor, "B H T T"]
    """Of the top class's logit with respect to each weight."""
    values: Float[Tensor, "B H T D"]
    """What a weight of one adds to the output of the layer, for each position."""


@dataclass(frozen=True)
class LayerStack:
    """The layers of self-attention over the judged positions, from the first to the last.

    `predict` returns logits. `top` returns the share of each position of the top layer in the
    prediction, `[B,T]`, rows that sum to one.
    """

    model: nn.Module
    predict: Callable[[Batch], Tensor]
    sites: tuple[str, ...]
    top: Callable[[Batch], Tensor]

    @property
    def attends(self) -> dict[str, Attend]:
        """The attention of each site."""
        known = sites_of(self.model)
        return {name: site for name in self.sites if isinstance(site := known[name], Attend)}

    def run(self, batch: Batch) -> dict[str, LayerRecord]:
        """One pass, with the gradient of the top class's logit at every weight."""
        leaves: dict[str, Tensor] = {}
        values: dict[str, Tensor] = {}

        def leaf(own: Tensor, look: Look) -> Tensor:
            leaves[look.site] = own.detach().requires_grad_()
            return leaves[look.site]

        hooks = [self._keep_values(site, values) for site in self.attends]
        try:
            with torch.enable_grad(), intervene(self.model, dict.fromkeys(self.sites, leaf)):
                logits = self.predict(batch)
        finally:
            for hook in hooks:
                hook.remove()
        best = logits.max(1).values.sum()
        gradients = torch.autograd.grad(best, [leaves[site] for site in self.sites])
        return {
            site: LayerRecord(leaves[site].detach(), each, self._merge_values(site, values[site]))
            for site, each in zip(self.sites, gradients, strict=True)
        }

    def _keep_values(
        self, site: str, values: dict[str, Tensor]
    ) -> torch.utils.hooks.RemovableHandle:
        def keep(module: nn.Module, given: tuple[object, ...]) -> None:
            memory = next(each for each in given if isinstance(each, Memory))
            values[site] = memory.value.detach()

        return self.attends[site].register_forward_pre_hook(keep)

    @torch.no_grad()
    def _merge_values(self, site: str, value: Tensor) -> Tensor:
        """Values through the part of the output projection that belongs to their head."""
        for module in self.model.modules():
            if isinstance(module, MergesHeads) and module.attend is self.attends[site]:
                heads = module.merge.in_features // value.shape[3]
                out = module.merge.weight.unflatten(1, (heads, value.shape[3]))  # [D,H,E]
                return torch.einsum("bhke,dhe->bhkd", repeat_heads(value, heads), out)
        return value

    @torch.no_grad()
    def without_head(self, batch: Batch, site: str, head: int) -> Float[Tensor, "B C"]:
        """The probabilities when the weights of one head are zero."""
        with intervene(self.model, {site: without(head)}):
            return self.predict(batch).softmax(-1)


@runtime_checkable
class HasLayers(Protocol):
    """A model under audit that has layers of self-attention below its prediction."""

    @property
    def layers(self) -> LayerStack | None:
        """The layers; None if there are none."""
        ...


@dataclass(frozen=True)
class HeadScores:
    """The importance of positions by several layers, and of the heads themselves."""

    methods: Mapping[str, Float[Tensor, "B T"]]
    """One number for each position, by method."""
    heads: Mapping[str, Float[Tensor, "B T"]]
    """The weights of each head, by `site head`."""
    changes: Mapping[str, Float[Tensor, "B"]]
    """How far the prediction changes without the head."""


def score_heads(stack: LayerStack, batch: Batch) -> HeadScores:
    """All methods, all heads, and the prediction without each head."""
    layers = stack.run(batch)
    with torch.no_grad():
        top = stack.top(batch)  # [B,T]
        own = stack.predict(batch).softmax(-1)
        last = layers[stack.sites[-1]]
        heads, changes = {}, {}
        for site, layer in layers.items():
            for head in range(layer.weights.shape[1]):
                name = f"{site} {head}"
                heads[name] = _through(top, layer.weights[:, head])
                changes[name] = total_variation(own, stack.without_head(batch, site, head))
        scores = (
            _through(top, last.weights.mean(1)),
            _through_all(top, [_residual(layer.weights.mean(1)) for layer in layers.values()]),
            _through(_float64(top), relevance(list(layers.values()))),
            value_norms(top, last),
        )
    return HeadScores(dict(zip(METHODS, scores, strict=True)), heads, changes)


def _through(top: Float[Tensor, "B T"], weights: Float[Tensor, "B T T"]) -> Float[Tensor, "B T"]:
    """The weights of the positions on which the prediction depends."""
    return (top[:, None] @ weights)[:, 0]


def _through_all(top: Float[Tensor, "B T"], layers: list[Tensor]) -> Float[Tensor, "B T"]:
    """The same through all layers, the last first."""
    for layer in reversed(layers):
        top = _through(top, layer)
    return top


def _residual(weights: Float[Tensor, "B T T"]) -> Float[Tensor, "B T T"]:
    """Half the weights and half the residual connection."""
    return (weights + torch.eye(weights.shape[1]).to(weights)) / 2


def relevance(layers: Sequence[LayerRecord]) -> Float[Tensor, "B T T"]:
    """R after the last layer: how much each position depends on each input (Chefer et al. 2021).

    In float64 on the CPU: where gradients are small, R differs from the identity by less than
    float32 can hold.
    """
    first = _float64(layers[0].weights)
    total = torch.eye(first.shape[2], dtype=first.dtype).expand(first.shape[0], -1, -1)
    for layer in layers:
        mean = (_float64(layer.gradients) * _float64(layer.weights)).clamp_min(0.0).mean(1)  # eq. 5
        total = total + mean @ total  # eq. 6
    return total


def _float64(values: Tensor) -> Float[Tensor, "..."]:
    """In float64 on the CPU: not every device has it."""
    return values.detach().cpu().double()


def value_norms(top: Float[Tensor, "B T"], layer: LayerRecord) -> Float[Tensor, "B T"]:
    """The norms of the vectors that the positions of the prediction read at each position."""
    norms = torch.zeros_like(top)
    for place in (top > 0).any(0).nonzero()[:, 0].tolist():
        vectors = torch.einsum("bhk,bhkd->bkd", layer.weights[:, :, place], layer.values)
        norms += top[:, place, None] * vectors.norm(dim=2)
    return norms
