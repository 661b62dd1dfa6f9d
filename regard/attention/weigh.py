"""Weigh: how are scores turned into weights?

Every weighing takes scores `[B,H,Q,K]` and a table of allowed keys, and returns weights of the same
shape. A forbidden key has weight exactly zero; a row without any allowed key is all zeros, and so
is its gradient. Weighings that also need the query, its position or the weights of the row before
are in place.py.

>>> import torch
>>> allowed = torch.tensor([True, True, False]).view(1, 1, 1, 3)
>>> Softmax()(torch.zeros(1, 1, 1, 3), allowed).flatten().tolist()
[0.5, 0.5, 0.0]
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from regard.attention.past import START, Past
from regard.core.errors import above_zero, positive
from regard.core.precision import in_float32


class Weigh(nn.Module, ABC):
    """Scores to weights; normalised rows sum to one, or to zero where nothing is allowed."""

    sequential = False
    """Does a row need the weights of the row before it?"""

    carries = False
    """Does it have a state for the next call, from `advance`?"""

    normalised = True
    """Do rows sum to one?"""

    temperature: float | None = None
    """The temperature, if this is a softmax: then a fused kernel can compute it."""

    @classmethod
    def sized(cls, width: int) -> "Weigh":
        """With its default options for queries of this width, as models build it by name."""
        return cls()

    @abstractmethod
    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights; `query` and `past` are for weighings that need more than scores."""

    def advance(self, query: Tensor, past: Past) -> Tensor | None:
        """The state for the next call, `[B,H,Q,M]`; most weighings have none."""
        return None


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the allowed keys; exactly zero elsewhere, and all zero in an empty row.

    The lowest finite number stands for "forbidden" on the way in, so that no infinity meets
    another, and a product with the table makes the zeros exact on the way out.
    """
    if allowed is None:
        return scores.softmax(-1)
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~allowed, lowest).softmax(-1) * allowed


class Softmax(Weigh):
    """α = exp(e / τ) / Σ exp(e / τ)."""

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature: float = above_zero("temperature", temperature)

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights."""
        cooled = scores if self.temperature == 1.0 else scores / self.temperature
        return masked_softmax(cooled, allowed)


class _Entmax(torch.autograd.Function):
    """α-entmax; s = p^(2-α) is all that its gradient needs (Peters et al. 2019, prop. 2)."""

    @staticmethod
    def forward(ctx: FunctionCtx, scores: Tensor, weights: Tensor, slopes: Tensor) -> Tensor:
        ctx.save_for_backward(slopes)
        return weights.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        (slopes,) = ctx.saved_tensors  # type: ignore[attr-defined]
        scaled = slopes * grad
        share = slopes.sum(-1, keepdim=True).clamp_min(torch.finfo(slopes.dtype).tiny)
        return scaled - slopes * (scaled.sum(-1, keepdim=True) / share), None, None


class EntmaxWeigh(Weigh, ABC):
    """A sparse relative of softmax: scores below a threshold get weight exactly zero."""

    @abstractmethod
    def threshold(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and slopes of scores with maximum zero; scores below -2 have weight zero."""

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights, with the exact gradient on the support.

        In float32: half precision is too coarse for running sums of many scores and their count.
        """
        wide = in_float32(scores)
        with torch.no_grad():
            lowest = torch.finfo(wide.dtype).min
            visible = wide if allowed is None else wide.masked_fill(~allowed, lowest)
            below = (visible - visible.amax(-1, keepdim=True)).clamp_min(-4.0)
            if allowed is not None:
                below = below.masked_fill(~allowed, -4.0)
            weights, slopes = self.threshold(below)
            if allowed is not None:
                weights, slopes = weights * allowed, slopes * allowed
        result: Tensor = _Entmax.apply(wide, weights, slopes)  # type: ignore[no-untyped-call]
        return result.to(scores.dtype)


class Sparsemax(EntmaxWeigh):
    """The nearest point of the simplex: max(e - τ, 0) (Martins & Astudillo 2016, algorithm 1)."""

    def threshold(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Sort, and keep the scores that lift the mean above the threshold."""
        ordered = scores.sort(-1, descending=True).values
        count = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
        excess = ordered.cumsum(-1) - 1
        size = (count * ordered > excess).sum(-1, keepdim=True)
        tau = excess.gather(-1, size - 1) / size
        weights = (scores - tau).clamp_min(0)
        return weights, (weights > 0).to(scores.dtype)


class Entmax15(EntmaxWeigh):
    """Between softmax and sparsemax: max(e/2 - τ, 0)² (Peters et al. 2019, algorithm 2)."""

    def threshold(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Sort, and take the last threshold that its own score still passes."""
        halved = scores / 2
        ordered = halved.sort(-1, descending=True).values
        count = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
        mean = ordered.cumsum(-1) / count
        spread = ordered.square().cumsum(-1) / count - mean.square()
        taus = mean - (1 / count - spread).clamp_min(0).sqrt()
        size = (taus <= ordered).sum(-1, keepdim=True)
        root = (halved - taus.gather(-1, size - 1)).clamp_min(0)
        return root.square(), root


class TopK(Weigh):
    """Softmax over the k allowed keys with the highest scores; all others have weight zero."""

    def __init__(self, k: int = 8) -> None:
        super().__init__()
        self.k = positive("k", k)

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights; of equal scores at the border, only as many as fit are kept."""
        lowest = torch.finfo(scores.dtype).min
        visible = scores if allowed is None else scores.masked_fill(~allowed, lowest)
        best = visible.topk(min(self.k, scores.shape[-1]), dim=-1).indices
        kept = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)
        return masked_softmax(scores, kept if allowed is None else kept & allowed)


class Sigmoid(Weigh):
    """α = σ(e): each key by itself, and rows need not sum to one."""

    normalised = False

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights."""
        weights = scores.sigmoid()
        return weights if allowed is None else weights * allowed


class Identity(Weigh):
    """α = e: the scores themselves, of any sign; for a linear start (Sukhbaatar et al. 2015)."""

    normalised = False

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights."""
        return scores if allowed is None else scores * allowed


class Smoothed(Weigh):
    """α = σ(e) / Σ σ(e): softer than softmax, to see several frames (Chorowski et al. 2015)."""

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights, as a softmax of log σ so that no row underflows."""
        return masked_softmax(nn.functional.logsigmoid(scores), allowed)


def _one_hot_argmax(weights: Tensor, allowed: Tensor | None) -> Tensor:
    """One for the key with the largest weight of each row that has any, zero elsewhere."""
    best = weights.argmax(-1, keepdim=True)
    chosen = torch.zeros_like(weights).scatter(-1, best, 1.0)
    return chosen if allowed is None else chosen * allowed


class Argmax(Weigh):
    """All weight on the best key, without a gradient. For use with a trained model."""

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights: zeros and a one."""
        return _one_hot_argmax(masked_softmax(scores.detach(), allowed), allowed)


class StraightThrough(Weigh):
    """All weight on the best key; backward, the gradient of softmax (Bengio et al. 2013)."""

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights: exactly zeros and a one, whatever the soft weights round to."""
        soft = masked_softmax(scores, allowed)
        hard = _one_hot_argmax(soft.detach(), allowed)
        return hard + (soft - soft.detach())
