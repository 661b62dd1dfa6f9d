"""Scores with relative positions: Shaw 2018, Music Transformer, Transformer-XL.

All three add a term per offset r = j - i of key and query position to the product of query and key.
The term is computed once per offset, `[B,H,Q,R]`, and turned into `[B,H,Q,K]` by reading the same
memory with another row length (Huang et al. 2018 call it the skew, Dai et al. 2019 the relative
shift), so no tensor of Q·K·E is ever built.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.past import START, Past
from regard.attention.score import Score
from regard.core.errors import UserError, positive
from regard.core.precision import float32_or_wider


def sinusoid(positions: Float[Tensor, "T"], width: int) -> Float[Tensor, "T D"]:
    """sin and cos of a position at geometric wavelengths (Vaswani et al. 2017, section 3.5).

    >>> sinusoid(torch.zeros(1), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    if width % 2:
        raise UserError(f"width={width} must be even: sines and cosines come in pairs")
    if type(positions) is Tensor and positions.is_meta:  # shapes alone, without its 800 modules
        return positions.new_empty(len(positions), width)
    pairs = torch.arange(0, width, 2, device=positions.device, dtype=positions.dtype)
    angles = positions[:, None] * torch.exp(pairs * (-torch.log(positions.new_tensor(1e4)) / width))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # [T,D]


def skew(columns: Float[Tensor, "B H Q R"]) -> Float[Tensor, "B H Q K"]:
    """From one column per offset to one column per key; R = K + Q - 1.

    Column c of row i belongs to key c + i - (Q - 1): each row starts one element earlier than the
    row above, which is the same memory read in rows that are one shorter.

    >>> skew(torch.arange(6.0).view(1, 1, 2, 3))[0, 0].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    queries, offsets = columns.shape[2:]
    if queries == 1:
        return columns
    flat = columns.flatten(2)[..., queries - 1 : queries - 1 + queries * (offsets - 1)]
    rows: Tensor = flat.unflatten(2, (queries, offsets - 1))
    return rows[..., : offsets - queries + 1]  # [B,H,Q,K]


class RelativeScore(Score, ABC):
    """e = ((q + u) · k + (q + v) · a_{j-i}) / √E, with u = v = 0 where a mechanism has none.

    Where `has_future_terms` is false the term of a key after the query is zero; such keys are meant
    to be masked.
    """

    has_future_terms = False
    equal_widths = True

    def __init__(self, width: int, key_width: int | None = None, *, heads: int = 1) -> None:
        super().__init__(width, key_width)
        self.heads = positive("heads", heads)
        self.scale = self.width**-0.5

    @classmethod
    def sized(cls, width: int, key_width: int, heads: int) -> "Score":
        """A term of its own for each head."""
        return cls(width, key_width, heads=heads)

    @abstractmethod
    def terms(self, offsets: Int[Tensor, "R"]) -> Float[Tensor, "H R E"]:
        """The vectors a_r of these offsets, for each head or for all heads alike."""

    def add_biases(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """The queries for content, q + u, and for distance, q + v."""
        return query, query

    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """Content and distance, each one matrix product."""
        queries, keys = query.shape[2], key.shape[2]
        behind = past.first + queries - 1
        count = keys + queries - 1
        known = count if self.has_future_terms else min(count, behind + 1)
        offsets = torch.arange(-behind, known - behind, device=query.device)
        for_content, for_distance = self.add_biases(query * self.scale)
        distance = for_distance @ self.terms(offsets).transpose(1, 2)  # [B,H,Q,C]
        distance = F.pad(distance, (0, count - known))  # [B,H,Q,R]
        return for_content @ key.transpose(2, 3) + skew(distance)

    def extra_repr(self) -> str:
        """Width and heads."""
        return f"{super().extra_repr()}, heads={self.heads}"


class RelativeClipped(RelativeScore):
    """a_r is learned for offsets up to `clip` either way, shared beyond (Shaw et al. 2018, eq. 4).

    Heads share it, as in the paper. The paper's second table, added to the values, is left out: its
    own ablation (table 3) finds no gain in it.
    """

    has_future_terms = True

    def __init__(
        self, width: int, key_width: int | None = None, *, heads: int = 1, clip: int = 16
    ) -> None:
        super().__init__(width, key_width, heads=heads)
        self.clip = positive("clip", clip)
        self.table = nn.Parameter(torch.empty(2 * clip + 1, width).normal_(std=width**-0.5))

    def terms(self, offsets: Int[Tensor, "R"]) -> Float[Tensor, "H R E"]:
        """One row of the table per offset."""
        return self.table[offsets.clamp(-self.clip, self.clip) + self.clip].unsqueeze(0)


class RelativeSkewed(RelativeScore):
    """a_r is learned per head for each distance behind (Huang et al. 2018, eq. 3).

    Distances past `longest` share the vector of the farthest one.
    """

    def __init__(
        self, width: int, key_width: int | None = None, *, heads: int = 1, longest: int = 512
    ) -> None:
        super().__init__(width, key_width, heads=heads)
        self.longest = positive("longest", longest)
        self.table = nn.Parameter(torch.empty(heads, longest, width).normal_(std=width**-0.5))

    def terms(self, offsets: Int[Tensor, "R"]) -> Float[Tensor, "H R E"]:
        """Row d of a head's table is for the key d positions behind."""
        return self.table[:, (-offsets).clamp(0, self.longest - 1)]


class RelativeXL(RelativeScore):
    """a_r = W R_r with R sinusoidal, and biases u, v per head (Dai et al. 2019, section 3.3).

    R is not learned and exists for every distance, so keys may come from a memory of any length.
    """

    def __init__(self, width: int, key_width: int | None = None, *, heads: int = 1) -> None:
        super().__init__(width, key_width, heads=heads)
        self.turn = nn.Linear(heads * width, heads * width, bias=False)
        self.u = nn.Parameter(torch.zeros(heads, 1, width))
        self.v = nn.Parameter(torch.zeros(heads, 1, width))

    def add_biases(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """The queries with biases; the scale is on both."""
        return query + self.u * self.scale, query + self.v * self.scale

    def terms(self, offsets: Int[Tensor, "R"]) -> Float[Tensor, "H R E"]:
        """W R_r, split into heads."""
        distances = (-offsets).to(float32_or_wider(self.u.dtype))
        waves = sinusoid(distances, self.turn.in_features).to(self.u.dtype)
        projected: Tensor = self.turn(waves)  # [R,D]
        return projected.view(-1, self.heads, self.width).transpose(0, 1)
