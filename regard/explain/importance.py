"""The importance of each position for a prediction, by other measures than attention.

Gradients are computed with the attention weights fixed (Jain and Wallace 2019, section 4.1): they
measure the effect of the position itself, not its effect on the weights.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.protocols import Batch
from regard.explain.audited_model import AuditedModel

_Importance = Callable[[AuditedModel, Batch], Float[Tensor, "B T"]]
"""One number for each position; zero for those that are not judged."""

INTEGRATION_STEPS = 32
"""Points on the path from zero vectors to the input, for integrated gradients."""

_ROWS = 256
"""Rows that are computed together, each an example without one position."""


def _gradient(model: AuditedModel, batch: Batch) -> Float[Tensor, "B T"]:
    """The norm of the gradient of the top class's probability at the vector of each position."""
    point = GradientPoint.of(model, batch)
    norms: Tensor = point.gradient(point.vectors).norm(dim=2)
    return norms * model.positions(batch)


def _gradient_by_input(model: AuditedModel, batch: Batch) -> Float[Tensor, "B T"]:
    """|gradient · vector|, as in the code of the paper."""
    point = GradientPoint.of(model, batch)
    return (point.gradient(point.vectors) * point.vectors).sum(2).abs() * model.positions(batch)


def integrated_gradient(model: AuditedModel, batch: Batch) -> Float[Tensor, "B T"]:
    """|gradient · vector| with the mean gradient on the path from zero (Sundararajan 2017).

    The points are the midpoints of equal steps.
    """
    point = GradientPoint.of(model, batch)
    shares = (torch.arange(INTEGRATION_STEPS) + 0.5) / INTEGRATION_STEPS
    mean = torch.zeros_like(point.vectors)
    for share in shares.tolist():
        mean += point.gradient(share * point.vectors) / INTEGRATION_STEPS
    return (mean * point.vectors).sum(2).abs() * model.positions(batch)


@dataclass(frozen=True)
class GradientPoint:
    """Some examples with their vectors, the model's own weights, and the class it predicts."""

    model: AuditedModel
    batch: Batch
    vectors: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T"]
    predicted: Int[Tensor, "B 1"]

    @staticmethod
    @torch.no_grad()
    def of(model: AuditedModel, batch: Batch) -> "GradientPoint":
        """One pass of the model."""
        own = model.predict(batch)
        predicted = own.probabilities.argmax(1, keepdim=True)
        return GradientPoint(model, batch, model.embed(batch), own.weights, predicted)

    def gradient(self, vectors: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The gradient of the predicted class's probability at these vectors, weights fixed."""
        leaf = vectors.detach().requires_grad_()
        with torch.enable_grad():
            prediction = self.model.predict(self.batch, weights=self.weights, vectors=leaf)
            value = prediction.probabilities.gather(1, self.predicted).sum()
            (gradient,) = torch.autograd.grad(value, leaf)
        return gradient.detach()


@torch.no_grad()
def leave_one_out(model: AuditedModel, batch: Batch) -> Float[Tensor, "B T"]:
    """How far the prediction changes when the position is removed."""
    positions = model.positions(batch)
    whole = model.predict(batch).probabilities
    changes = torch.zeros(positions.shape, dtype=whole.dtype, device=whole.device)
    several = positions & (positions.sum(1, keepdim=True) > 1)  # never remove the only one
    for some in several.nonzero().split(_ROWS):
        row, place = some.unbind(1)
        keep = positions[row]
        keep[torch.arange(len(row)), place] = False
        rest = model.select({name: value[row] for name, value in batch.items()}, keep)
        changes[row, place] = total_variation(whole[row], model.predict(rest).probabilities)
    return changes


def total_variation(
    first: Float[Tensor, "B C"], second: Float[Tensor, "B C"]
) -> Float[Tensor, "B"]:
    """The distance of two predictions, between 0 and 1."""
    return (first - second).abs().sum(1) / 2


IMPORTANCES: dict[str, _Importance] = {
    "gradient": _gradient,
    "gradient x input": _gradient_by_input,
    "integrated gradients": integrated_gradient,
    "leave one out": leave_one_out,
}
"""The measures with which attention is compared."""
