"""Addressing of a memory that is written as well as read: the heads of NTM and DNC.

A head emits one vector of parameters: a key, its strength β, and what else its weighing needs. That
vector is the query of its `Attend`: `Content` scores slots by the key and the strength, a weighing
takes the rest. The numbers are raw; the functions that bring them into range are here. What a
weighing needs of the step before comes in the `Past`: the weights, and as its state the usage of
the slots or the weights that temporal links lead to.

| machine | query of a head | weighing |
| --- | --- | --- |
| NTM | key, β, gate, 2·reach + 1 shifts, γ | `ShiftedContent` |
| DNC, write | key, β, allocation gate, write gate | `Allocation` |
| DNC, read | key, β, backward, content, forward mode | `LinkedContent` |
| SAM, write | γ, α | `LeastRecentOrRead` |
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.past import START, Past
from regard.attention.score import Score
from regard.attention.weigh import Weigh
from regard.core.errors import UserError, positive
from regard.kernels.memory_step import (
    USAGE_EPSILON,
    shift_and_sharpen,
    softplus_above_one,
    unit_length,
)


class Content(Score):
    """e = β cos(k, m), key and strength from the query (Graves et al. 2014, eq. 5 and 6).

    The query is [k; β; ...]: `width` numbers of the key, the raw strength, and `more` numbers for
    the weighing. β = softplus, or 1 + softplus with `above_one` (DNC). The cosine with a slot near
    zero goes to zero smoothly: cos = k·m / √((|k|² + ε)(|m|² + ε)).
    """

    def __init__(self, width: int, more: int = 0, *, above_one: bool = False) -> None:
        super().__init__(positive("width", width) + 1 + more, width)
        self.above_one = above_one

    def prepare(self, key: Float[Tensor, "B H K E"]) -> Float[Tensor, "B H K F"]:
        """Slots of length one."""
        return unit_length(key)

    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """One product; heads that share one memory do not copy it."""
        raw = query[..., self.key_width : self.key_width + 1]
        strength = softplus_above_one(raw) if self.above_one else F.softplus(raw)
        wanted = unit_length(query[..., : self.key_width]) * strength  # [B,H,Q,F]
        if key.shape[1] > 1 and key.stride(1) == 0:
            shared = wanted.flatten(1, 2) @ key[:, 0].transpose(1, 2)  # [B,H*Q,K]
            scores: Tensor = shared.unflatten(1, query.shape[1:3])
            return scores
        return wanted @ key.transpose(2, 3)


class ShiftedContent(Weigh):
    """Content, gated with the weights before, shifted and sharpened (Graves et al. 2014, eq. 7-9).

    The last numbers of the query: gate g = σ, a softmax over moves of -reach to reach slots, and
    γ = 1 + softplus. The slots form a ring.
    """

    sequential = True

    def __init__(self, reach: int = 1) -> None:
        super().__init__()
        self.reach = positive("reach", reach)

    @property
    def more(self) -> int:
        """How many numbers of the query are for this weighing."""
        return 2 * self.reach + 3

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights of one step; before the first, all weight is on the first slot."""
        query = _all_slots(self, query, allowed)
        content = scores.softmax(-1)
        before = past.weights
        if before is None:
            before = F.pad(scores.new_ones(*scores.shape[:3], 1), (0, scores.shape[3] - 1))
        gate, shifts, power = query[..., -self.more :].split((1, 2 * self.reach + 1, 1), -1)
        return shift_and_sharpen(
            content, before, gate.sigmoid(), shifts.softmax(-1), softplus_above_one(power)
        )


class Allocation(Weigh):
    """Content or the least used slots, by gates (Graves et al. 2016, write weights).

    w = g_w (g_a a + (1 - g_a) c). The allocation a goes to the least used slots first,
    a[φ_j] = (1 - u[φ_j]) Π_{i<j} u[φ_i], φ the slots in order of their usage u. The usage is the
    state of the past, [B,H,1,K]; no gradient goes through the order, only through the usages. The
    last numbers of the query: the gates g_a and g_w, both σ. Rows sum to g_w at most.
    """

    sequential = True
    normalised = False
    more = 2

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights of one step; before the first, no slot is used."""
        query = _all_slots(self, query, allowed)
        usage = torch.zeros_like(scores) if past.state is None else past.state
        choose, strength = _columns(query[..., -self.more :].sigmoid())
        return torch.lerp(scores.softmax(-1), allocation(usage), choose) * strength


def allocation(usage: Float[Tensor, "... K"]) -> Float[Tensor, "... K"]:
    """How much of a write goes to each slot if it is to go where least is lost.

    >>> allocation(torch.tensor([1.0, 0.5, 0.0])).round(decimals=3).tolist()  # the last is free
    [0.0, 0.0, 1.0]
    >>> allocation(torch.tensor([1.0, 0.5, 0.25])).round(decimals=3).tolist()  # half the rest
    [0.0, 0.125, 0.75]
    """
    ordered, order = usage.sort(dim=-1, stable=True)
    # a product that ends in zero has no useful gradient: usages stay a little above it
    full = (ordered * (1 - USAGE_EPSILON) + USAGE_EPSILON).cumprod(-1)
    left = F.pad(full[..., :-1], (1, 0), value=1.0)
    return torch.zeros_like(usage).scatter(-1, order, (1 - ordered) * left)


class LinkedContent(Weigh):
    """Content, or the slots written before or after those read last (Graves et al. 2016).

    w = π₁ b + π₂ c + π₃ f. The weights that the links lead to, backward b and forward f, are the
    state of the past, [B,H,1,2K]. The last numbers of the query: a softmax over the three modes.
    """

    sequential = True
    normalised = False
    more = 3

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights of one step; before the first, no links lead anywhere."""
        query = _all_slots(self, query, allowed)
        backward, content, forward = _columns(query[..., -self.more :].softmax(-1))
        weights = scores.softmax(-1) * content
        if past.state is None:
            return weights
        behind, ahead = past.state.chunk(2, -1)
        return weights + behind * backward + ahead * forward


class LeastRecentOrRead(Weigh):
    """What was read a step ago, or the slot that was not used for longest (Rae et al. 2016, eq. 5).

    w = α (γ w_r + (1 - γ) 1_u). The read weights w_r are the weights of the past, [B,H,1,K]; its
    state is one at the slot u and zero elsewhere. The query is [γ, α], both σ. Scores are not used.
    """

    sequential = True
    normalised = False

    def shares(self, gates: Float[Tensor, "... 2"]) -> tuple[Tensor, Tensor]:
        """What goes to the slots read and to the unused one, α γ and α (1 - γ)."""
        again, strength = _columns(gates.sigmoid())
        return again * strength, (1 - again) * strength

    def forward(
        self,
        scores: Float[Tensor, "B H Q K"],
        allowed: Bool[Tensor, "#B #H #Q K"] | None = None,
        query: Float[Tensor, "B H Q E"] | None = None,
        past: Past = START,
    ) -> Float[Tensor, "B H Q K"]:
        """The weights of one step; before the first, nothing is read and no slot unused."""
        read, unused = self.shares(_all_slots(self, query, allowed))
        nothing = torch.zeros_like(scores)
        before = nothing if past.weights is None else past.weights
        target = nothing if past.state is None else past.state
        return read * before + unused * target


def _columns(numbers: Tensor) -> tuple[Tensor, ...]:
    """The numbers of each query, [B,H,Q,1] each."""
    columns: tuple[Tensor, ...] = numbers.split(1, -1)
    return columns


def _all_slots(weigh: Weigh, query: Tensor | None, allowed: Tensor | None) -> Tensor:
    """The query; a memory has no slots that are forbidden."""
    if query is None:
        raise UserError(f"{type(weigh).__name__} takes its parameters from the query: pass query=")
    if allowed is not None:
        raise UserError(f"{type(weigh).__name__} addresses every slot: pass no mask")
    return query
