"""How much each token matters to a prediction, by other means than attention.

Gradients are taken with the attention held as it was (Jain and Wallace 2019, section 4.1): they say
what the token itself does, not what it does to where the model looks.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.audit.reader import Reader
from regard.core.protocols import Batch

Importance = Callable[[Reader, Batch], Float[Tensor, "B T"]]
"""One number for each token; those that are not judged have zero."""

STEPS = 32
"""Of the path from nothing to the text, for integrated gradients."""


def gradient(reader: Reader, batch: Batch) -> Float[Tensor, "B T"]:
    """The length of the gradient of the likeliest class's probability at each token's vector."""
    embedded = reader.embed(batch).detach()
    slope = slope_at(reader, batch, embedded, reader.read(batch).weights.detach())
    lengths: Tensor = slope.norm(dim=2)
    return lengths * reader.judged(batch)


def gradient_by_input(reader: Reader, batch: Batch) -> Float[Tensor, "B T"]:
    """|gradient · vector|: the gradient of the paper's own code."""
    embedded = reader.embed(batch).detach()
    slope = slope_at(reader, batch, embedded, reader.read(batch).weights.detach())
    return (slope * embedded).sum(2).abs() * reader.judged(batch)


def integrated_gradient(reader: Reader, batch: Batch) -> Float[Tensor, "B T"]:
    """|gradient · vector|, the gradient averaged on the way from zero vectors (Sundararajan 2017).

    Points lie in the middles of equal steps.
    """
    embedded = reader.embed(batch).detach()
    weights = reader.read(batch).weights.detach()
    shares = (torch.arange(STEPS) + 0.5) / STEPS
    mean = torch.zeros_like(embedded)
    for share in shares.tolist():
        mean += slope_at(reader, batch, share * embedded, weights, at=embedded) / STEPS
    return (mean * embedded).sum(2).abs() * reader.judged(batch)


def slope_at(
    reader: Reader, batch: Batch, embedded: Tensor, weights: Tensor, *, at: Tensor | None = None
) -> Tensor:
    """The gradient at these vectors, of the class that is likeliest at those of the text."""
    leaf = embedded.detach().requires_grad_()
    with torch.enable_grad():
        said = reader.read(batch, weights=weights, embedded=leaf).probabilities
        named = said if at is None else reader.read(batch, embedded=at).probabilities
        likeliest = named.detach().argmax(1, keepdim=True)
        (slope,) = torch.autograd.grad(said.gather(1, likeliest).sum(), leaf)
    return slope.detach()


@torch.no_grad()
def left_out(reader: Reader, batch: Batch) -> Float[Tensor, "B T"]:
    """How far the prediction moves when the token is taken out of the text."""
    judged = reader.judged(batch)
    whole = reader.read(batch).probabilities
    found = torch.zeros(judged.shape, dtype=whole.dtype, device=whole.device)
    for place in judged.any(0).nonzero()[:, 0].tolist():
        keep = judged.clone()
        keep[:, place] = False
        there = judged[:, place] & keep.any(1)  # of a text of one token nothing would be left
        if there.any():
            rest = reader.read(reader.kept(batch, keep)).probabilities
            found[there, place] = moved(whole, rest)[there]
    return found


def moved(first: Float[Tensor, "B C"], second: Float[Tensor, "B C"]) -> Float[Tensor, "B"]:
    """How far two predictions are apart: total variation, between 0 and 1."""
    return (first - second).abs().sum(1) / 2


IMPORTANCES: dict[str, Importance] = {
    "gradient": gradient,
    "gradient x input": gradient_by_input,
    "integrated gradients": integrated_gradient,
    "leave one out": left_out,
}
"""What attention is compared with."""
