"""Losses for models that are trained by where another looks (Wiegreffe and Pinter 2019).

`Guided` holds the attention of a model as it is told while the model learns its task; `Elsewhere`
teaches it to say what a base model says, and to look elsewhere (section 4, eq. 1):

    TVD(ŷ, ŷ_base) - λ KL(α ‖ α_base)
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Look, intervene
from regard.attention.tape import Edit
from regard.core.protocols import Batch, Carry, Loss, Task
from regard.data import IGNORE
from regard.explain.attention_reader import Attended
from regard.explain.importance import moved


@dataclass(frozen=True)
class Guided:
    """A task whose models look where they are told."""

    task: Task
    site: str
    guide: Callable[[Batch], Edit]
    """The weights for a batch, as an edit."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The task's own."""
        with intervene(model, {self.site: self.guide(batch)}):
            return self.task.loss(model, batch, carry)


def as_it_looks(base: Attended) -> Callable[[Batch], Edit]:
    """A guide: the weights of another model, for every head and query."""

    def guide(batch: Batch) -> Edit:
        with torch.no_grad():
            weights = base.read(batch).weights

        def edit(own: Tensor, look: Look) -> Tensor:
            return weights[:, None, None].expand_as(own).to(own)

        return edit

    return guide


@dataclass(frozen=True)
class Elsewhere:
    """To say the same as the base, and to look elsewhere by so much as λ is worth."""

    base: Attended
    reader: Attended
    """The model that learns."""
    strength: float
    """λ."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """Summed over texts; how many classes are right is told beside it."""
        with torch.no_grad():
            own = self.base.read(batch)
        logits, weights = self.reader.looked(batch)
        there = batch["classes"] != IGNORE
        change = moved(own.probabilities, logits.softmax(1))
        total = ((change - self.strength * _distance(weights, own.weights)) * there).sum()
        right = (logits.argmax(1) == batch["classes"]).sum()
        return Loss(total=total, items=int(there.sum()), counts={"accuracy": float(right)})


def _distance(first: Float[Tensor, "B T"], second: Float[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """KL(first ‖ second) in nats; where the second has nothing, as if it had next to nothing.

    >>> _distance(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.5, 0.5]])).tolist()
    [0.0]
    """
    tiny = torch.finfo(first.dtype).tiny
    return (first * (first.clamp_min(tiny).log() - second.clamp_min(tiny).log())).sum(1)
