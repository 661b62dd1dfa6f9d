"""How much each token matters to a prediction, by other means than attention.

Gradients are taken with the attention held as it was (Jain and Wallace 2019, section 4.1): they say
what the token itself does, not what it does to where the model looks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.protocols import Batch
from regard.explain.reader import Reader

_Importance = Callable[[Reader, Batch], Float[Tensor, "B T"]]
"""One number for each token; those that are not judged have zero."""

STEPS = 32
"""Of the path from nothing to the text, for integrated gradients."""

_TOGETHER = 256
"""Texts without a token that are read at a time."""


def _gradient(reader: Reader, batch: Batch) -> Float[Tensor, "B T"]:
    """The length of the gradient of the likeliest class's probability at each token's vector."""
    point = Point.of(reader, batch)
    lengths: Tensor = point.slope(point.embedded).norm(dim=2)
    return lengths * reader.judged(batch)


def _gradient_by_input(reader: Reader, batch: Batch) -> Float[Tensor, "B T"]:
    """|gradient · vector|: the gradient of the paper's own code."""
    point = Point.of(reader, batch)
    return (point.slope(point.embedded) * point.embedded).sum(2).abs() * reader.judged(batch)


def integrated_gradient(reader: Reader, batch: Batch) -> Float[Tensor, "B T"]:
    """|gradient · vector|, the gradient averaged on the way from zero vectors (Sundararajan 2017).

    Points lie in the middles of equal steps.
    """
    point = Point.of(reader, batch)
    shares = (torch.arange(STEPS) + 0.5) / STEPS
    mean = torch.zeros_like(point.embedded)
    for share in shares.tolist():
        mean += point.slope(share * point.embedded) / STEPS
    return (mean * point.embedded).sum(2).abs() * reader.judged(batch)


@dataclass(frozen=True)
class Point:
    """Some texts as they were read: their vectors, where the model looked, and what it said."""

    reader: Reader
    batch: Batch
    embedded: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T"]
    likeliest: Int[Tensor, "B 1"]

    @staticmethod
    @torch.no_grad()
    def of(reader: Reader, batch: Batch) -> "Point":
        """What was read."""
        own = reader.read(batch)
        likeliest = own.probabilities.argmax(1, keepdim=True)
        return Point(reader, batch, reader.embed(batch), own.weights, likeliest)

    def slope(self, embedded: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The gradient, at these vectors, of the class that was likeliest; attention held still."""
        leaf = embedded.detach().requires_grad_()
        with torch.enable_grad():
            said = self.reader.read(self.batch, weights=self.weights, embedded=leaf).probabilities
            (slope,) = torch.autograd.grad(said.gather(1, self.likeliest).sum(), leaf)
        return slope.detach()


@torch.no_grad()
def left_out(reader: Reader, batch: Batch) -> Float[Tensor, "B T"]:
    """How far the prediction moves when the token is taken out of the text.

    Many texts, each without one token, are read together.
    """
    judged = reader.judged(batch)
    whole = reader.read(batch).probabilities
    found = torch.zeros(judged.shape, dtype=whole.dtype, device=whole.device)
    several = judged & (judged.sum(1, keepdim=True) > 1)  # of one token nothing would be left
    for some in several.nonzero().split(_TOGETHER):
        text, place = some.unbind(1)
        keep = judged[text]
        keep[torch.arange(len(text)), place] = False
        rest = reader.kept({name: value[text] for name, value in batch.items()}, keep)
        found[text, place] = moved(whole[text], reader.read(rest).probabilities)
    return found


def moved(first: Float[Tensor, "B C"], second: Float[Tensor, "B C"]) -> Float[Tensor, "B"]:
    """How far two predictions are apart: total variation, between 0 and 1."""
    return (first - second).abs().sum(1) / 2


IMPORTANCES: dict[str, _Importance] = {
    "gradient": _gradient,
    "gradient x input": _gradient_by_input,
    "integrated gradients": integrated_gradient,
    "leave one out": left_out,
}
"""What attention is compared with."""
