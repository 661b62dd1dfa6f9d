"""Weighings by position: Luong's local attention, Graves' window, the NTM's addressing.

Besides the scores they use the query, from which they compute their parameters, and the past: the
position of the first query and the weights of the row before it. Positions, and what depends on
them, are computed in float32 where the scores are bfloat16 or float16; the weights have the dtype
of the scores.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.past import START, Past
from regard.attention.weigh import Weigh, masked_softmax
from regard.core.errors import UserError, positive
from regard.core.precision import float32_or_wider, in_float32, linear_in_float32


def _count_allowed(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """The number of allowed keys of each row: the source length S of the papers, `[B,H,Q,1]`."""
    dtype = float32_or_wider(scores.dtype)
    if allowed is None:
        return torch.full((), scores.shape[-1], device=scores.device, dtype=dtype)
    return allowed.sum(-1, keepdim=True).to(dtype)


def _key_positions(scores: Tensor) -> Tensor:
    """0, 1, 2, ... along the keys, exact: in float32 or wider."""
    dtype = float32_or_wider(scores.dtype)
    return torch.arange(scores.shape[-1], device=scores.device, dtype=dtype)


def _near_and_allowed(near: Tensor, allowed: Tensor | None) -> Tensor:
    """Keys that are both near and allowed."""
    return near if allowed is None else near & allowed


def _require_query(weigh: Weigh, query: Tensor | None) -> Tensor:
    """The query, which these weighings need."""
    if query is None:
        raise UserError(
            f"{type(weigh).__name__} computes its window from the query: pass query=..."
        )
    return query


class LocalMonotonic(Weigh):
    """Softmax over keys within `reach` of the query's position (Luong et al. 2015, local-m).

    p_t = t. A query past the end of its source attends around the last key, where the paper's
    window is empty.
    """

    def __init__(self, reach: int = 10) -> None:
        super().__init__()
        self.reach = positive("reach", reach)

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights."""
        rows = torch.arange(past.first, past.first + scores.shape[2], device=scores.device)
        keys = _key_positions(scores)
        centre = torch.minimum(rows.to(keys.dtype)[:, None], _count_allowed(scores, allowed) - 1)
        near = (keys - centre).abs() <= self.reach  # [B,H,Q,K]
        return masked_softmax(scores, _near_and_allowed(near, allowed))


class LocalPredictive(Weigh):
    """Softmax near a predicted position, times a Gaussian (Luong et al. 2015, eq. 9, 10: local-p).

    p = S · sigmoid(vᵀ tanh(W q)), window [p - D, p + D], σ = D / 2, S the number of allowed keys of
    the row. As in the paper the product is not normalised again.
    """

    normalised = False

    def __init__(self, width: int, reach: int = 10) -> None:
        super().__init__()
        self.reach = positive("reach", reach)
        self.turn = nn.Linear(positive("width", width), width, bias=False)
        self.point = nn.Linear(width, 1, bias=False)

    @classmethod
    def sized(cls, width: int) -> "Weigh":
        """For queries of this width."""
        return cls(width)

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights."""
        query = _require_query(self, query)
        hidden = linear_in_float32(self.turn, query).tanh()
        share = linear_in_float32(self.point, hidden).sigmoid()  # [B,H,Q,1]
        away = _key_positions(scores) - _count_allowed(scores, allowed) * share  # [B,H,Q,K]
        near = away.detach().abs() <= self.reach
        gaussian = torch.exp(-away.square() / (2 * (self.reach / 2) ** 2))
        return (masked_softmax(scores, _near_and_allowed(near, allowed)) * gaussian).to(
            scores.dtype
        )


class MixtureWindow(Weigh):
    """Gaussians that only move forward, by position alone (Graves 2013, eq. 46 to 51).

    α, β, κ̂ = exp(W q + b); κ = κ₋₁ + κ̂; φ(u) = Σ α exp(-β (κ - u)²) for u = 1 ... K. It is not
    normalised, and it does not use the scores: give it the score Even, which costs nothing.
    """

    carries = True
    normalised = False

    def __init__(self, width: int, mixtures: int = 10) -> None:
        super().__init__()
        self.mixtures = positive("mixtures", mixtures)
        self.shape = nn.Linear(positive("width", width), 2 * mixtures)
        self.move = nn.Linear(width, mixtures)

    @classmethod
    def sized(cls, width: int) -> "Weigh":
        """For queries of this width."""
        return cls(width)

    def advance(self, query: Tensor, past: Past) -> Tensor:
        """κ of every row, `[B,H,Q,M]`."""
        moved = linear_in_float32(self.move, query).exp().cumsum(2)
        return moved if past.state is None else moved + past.state

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights."""
        query = _require_query(self, query)
        shape = linear_in_float32(self.shape, query).exp().unsqueeze(4)
        height, sharpness = shape.chunk(2, dim=3)  # [B,H,Q,M,1]
        away = self.advance(query, past).unsqueeze(4) - (_key_positions(scores) + 1)  # [B,H,Q,M,K]
        gaussians = height * torch.exp(-sharpness * away.square())
        weights = gaussians.sum(3).to(scores.dtype)  # [B,H,Q,K]
        return weights if allowed is None else weights * allowed


class ShiftSharpen(Weigh):
    """Content, gated with the row before, shifted and sharpened (Graves et al. 2014, eq. 5 to 9).

    From the query come the gate g = σ, a softmax over shifts of up to `reach` slots either way, and
    γ = 1 + softplus. The allowed keys of a row form a ring, in their order; padding is
    not part of it, so a row has the same weights in any batch. Before the first row all weight is
    on the first slot.
    """

    sequential = True

    def __init__(self, width: int, reach: int = 1) -> None:
        super().__init__()
        self.reach = positive("reach", reach)
        self.gate = nn.Linear(positive("width", width), 1)
        self.shift = nn.Linear(width, 2 * reach + 1)
        self.sharpness = nn.Linear(width, 1)

    @classmethod
    def sized(cls, width: int) -> "Weigh":
        """For queries of this width."""
        return cls(width)

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights of one row."""
        query = _require_query(self, query)
        content = masked_softmax(in_float32(scores), allowed)
        before = _first_slot(content, allowed) if past.weights is None else past.weights
        gate = linear_in_float32(self.gate, query).sigmoid()  # [B,H,Q,1]
        mixed = gate * content + (1 - gate) * before  # [B,H,Q,K]
        shifts = linear_in_float32(self.shift, query).softmax(-1)  # [B,H,Q,2*reach+1]
        power = 1 + nn.functional.softplus(linear_in_float32(self.sharpness, query))
        return sharpen(self.shift_weights(mixed, shifts, allowed), power).to(scores.dtype)

    def shift_weights(self, weights: Tensor, shifts: Tensor, allowed: Tensor | None) -> Tensor:
        """Circular convolution: a shift by s moves the weight of slot j to slot j + s."""
        moves = range(-self.reach, self.reach + 1)
        if allowed is None:
            rolled = [weights.roll(move, -1) for move in moves]
        else:
            order, slot, count = _ring(allowed)
            # the key in the slot that is `move` slots before each key's own
            origins = [order.gather(-1, (slot - move) % count) for move in moves]
            rolled = [weights.gather(-1, each.expand_as(weights)) * allowed for each in origins]
        return torch.stack([each * shifts[..., [i]] for i, each in enumerate(rolled)]).sum(0)


def _ring(allowed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The allowed keys of each row as slots of a ring: the key in each slot, and back.

    The first tensor has the keys in order of their slots, forbidden ones last; the second the slot
    of each key, of use only where it is allowed; the third the number of slots, at least one.

    >>> order, slot, count = _ring(torch.tensor([True, False, True]))
    >>> order.tolist(), slot.tolist(), count.tolist()
    ([0, 2, 1], [0, 0, 1], [2])
    """
    order = (~allowed).to(torch.uint8).argsort(dim=-1, stable=True)
    slot = allowed.cumsum(-1) - 1
    return order, slot, allowed.sum(-1, keepdim=True).clamp_min(1)


def _first_slot(weights: Tensor, allowed: Tensor | None) -> Tensor:
    """All weight on the first allowed key, at the shape of the weights."""
    if allowed is None:
        allowed = torch.ones_like(weights, dtype=torch.bool)
    first = allowed & (allowed.cumsum(-1) == 1)
    return first.to(weights.dtype).expand_as(weights)


def sharpen(weights: Tensor, power: Tensor) -> Tensor:
    """w^γ / Σ w^γ; the largest weight is brought to one first, so that no power underflows."""
    largest = weights.detach().amax(-1, keepdim=True)
    raised = (weights / torch.where(largest > 0, largest, 1.0)).pow(power)
    return raised / torch.where(largest > 0, raised.sum(-1, keepdim=True), 1.0)
