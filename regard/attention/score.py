"""Score: how well does this key match this query?

Every score takes queries `[B,H,Q,E]` and prepared keys, and returns `[B,H,Q,K]`. `prepare` computes
what depends on the keys alone, once per source (Bahdanau's U·h). A score that is a plain product of
vectors implements `product`, and then a fused kernel can compute it. Scores by distance are in
relative.py.

>>> import torch
>>> query, key = torch.eye(2)[None, None], torch.eye(2)[None, None]
>>> Dot(2)(query, key)[0, 0].tolist()
[[1.0, 0.0], [0.0, 1.0]]
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.past import START, Past
from regard.core.errors import UserError, above_zero, positive
from regard.kernels.additive import additive_scores


class Score(nn.Module, ABC):
    """How well each key matches each query: any real number, higher is better."""

    sequential = False
    """Does a row need the weights of the row before it? Then rows are computed one by one."""

    equal_widths = False
    """Does it compare vectors of one width only?"""

    scale: float = 1.0
    """The factor on `product`."""

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__()
        self.width = positive("width", width)
        self.key_width = width if key_width is None else positive("key_width", key_width)
        if self.equal_widths and self.width != self.key_width:
            raise UserError(
                f"{type(self).__name__} compares vectors of one width, but width={self.width} and "
                f"key_width={self.key_width}; Bilinear and Additive take two widths"
            )

    @classmethod
    def sized(cls, width: int, key_width: int, heads: int) -> "Score":
        """The score with its default options, as models build it from its name in SCORES."""
        return cls(width, key_width)

    def prepare(self, key: Float[Tensor, "B H K E"]) -> Float[Tensor, "B H K F"]:
        """The part that depends on the keys alone, position by position; once per source."""
        return key

    def product(self, query: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q F"] | None:
        """The vectors whose dot products with the prepared keys, times `scale`, are the scores.

        None where the score is no such product; then no fused kernel can compute it.
        """
        return None

    @abstractmethod
    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """The scores of prepared keys."""

    def extra_repr(self) -> str:
        """The widths, for printing a model."""
        same = self.key_width == self.width
        return f"width={self.width}" + ("" if same else f", key_width={self.key_width}")


class Even(Score):
    """The same score for every key: e = 0. With Softmax this is the mean of the allowed values.

    The baseline that any learned attention has to beat (Wiegreffe & Pinter 2019, section 3.2).
    """

    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """Zeros that take no memory."""
        return query.new_zeros(()).expand(*query.shape[:3], key.shape[2])


class ProductScore(Score, ABC):
    """A score that is a dot product of two vectors, which fused kernels can compute."""

    @abstractmethod
    def product(self, query: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q F"]:
        """The vectors whose dot products with the prepared keys, times `scale`, are the scores."""

    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """One matrix product; the scale goes on the smaller factor."""
        return (self.product(query) * self.scale) @ key.transpose(2, 3)


class Dot(ProductScore):
    """e = q · k (Luong et al. 2015, eq. 8, dot)."""

    equal_widths = True

    def product(self, query: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q F"]:
        """The queries as they are."""
        return query


class ScaledDot(ProductScore):
    """e = q · k / √E (Vaswani et al. 2017, eq. 1)."""

    equal_widths = True

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__(width, key_width)
        self.scale = self.width**-0.5

    def product(self, query: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q F"]:
        """The queries as they are."""
        return query


class Bilinear(ProductScore):
    """e = qᵀ W k (Luong et al. 2015, eq. 8, general), for queries and keys of any two widths.

    W is held as W' = W √width: W' begins uniformly within 1, and W as a linear layer does. An
    update of Adam moves every entry by the rate, and the score by up to rate · |q|₁ |k|₁. Without
    the root, at width 256 and a rate of 2e-3, that is several units: weights jump from one key to
    another and hardly learn.
    """

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__(width, key_width)
        self.scale = self.width**-0.5
        self.turn = nn.Linear(self.width, self.key_width, bias=False)
        nn.init.uniform_(self.turn.weight, -1, 1)

    def product(self, query: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q F"]:
        """qᵀ W', without the scale: the queries projected into the space of the keys."""
        projected: Tensor = self.turn(query)
        return projected


class Cosine(ProductScore):
    """e = β cos(q, k) (Graves et al. 2014, Neural Turing Machines, eq. 5 and 6).

    β is a fixed number if one is given; else it is computed from each query, β = softplus(w·q + b).
    The cosine with a vector of length zero is zero.
    """

    equal_widths = True

    def __init__(
        self, width: int, key_width: int | None = None, *, beta: float | None = None
    ) -> None:
        super().__init__(width, key_width)
        self.scale = 1.0 if beta is None else above_zero("beta", beta)
        self.beta = nn.Linear(self.width, 1) if beta is None else None

    def prepare(self, key: Float[Tensor, "B H K E"]) -> Float[Tensor, "B H K F"]:
        """Keys of length one."""
        return F.normalize(key, dim=-1, eps=1e-8)

    def product(self, query: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q F"]:
        """Queries of length one, times β where it depends on the query."""
        unit = F.normalize(query, dim=-1, eps=1e-8)
        return unit if self.beta is None else unit * F.softplus(self.beta(query))


class HiddenScore(Score, ABC):
    """e = vᵀ tanh(W q + U k + ...): one hidden layer over query and key, shared by all heads."""

    def __init__(
        self, width: int, key_width: int | None = None, *, hidden: int | None = None
    ) -> None:
        super().__init__(width, key_width)
        self.hidden = self.width if hidden is None else positive("hidden", hidden)
        self.ask = nn.Linear(self.width, self.hidden, bias=False)
        self.answer = nn.Linear(self.key_width, self.hidden, bias=False)
        self.vector = nn.Parameter(torch.empty(self.hidden).normal_(std=self.hidden**-0.5))

    def prepare(self, key: Float[Tensor, "B H K E"]) -> Float[Tensor, "B H K F"]:
        """U k, once per source."""
        projected: Tensor = self.answer(key)
        return projected

    @abstractmethod
    def join(self, key: Tensor, past: Past) -> Tensor:
        """The prepared keys plus the other terms inside the tanh."""

    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """Tile by tile: the [B,H,Q,K,A] table of hidden units is never in memory as a whole."""
        return additive_scores(self.ask(query), self.join(key, past), self.vector)


class Additive(HiddenScore):
    """e = vᵀ tanh(W q + U k) (Bahdanau et al. 2015, appendix A.1.2).

    Luong's concat, vᵀ tanh(W' [q; k]), is the same function with W' = [W U].
    """

    def join(self, key: Tensor, past: Past) -> Tensor:
        """No other terms."""
        return key


class LocationAware(HiddenScore):
    """e = vᵀ tanh(W q + U k + P f), f = F * α₋₁ (Chorowski et al. 2015, eq. 8 and 9).

    The features f are convolved from the weights of the row before; before the first row all weight
    is on the first key.
    """

    sequential = True

    def __init__(
        self,
        width: int,
        key_width: int | None = None,
        *,
        hidden: int | None = None,
        filters: int = 10,
        reach: int = 15,
    ) -> None:
        super().__init__(width, key_width, hidden=hidden)
        positive("filters", filters)
        positive("reach", reach)
        self.convolve = nn.Conv1d(1, filters, 2 * reach + 1, padding=reach, bias=False)
        self.place = nn.Linear(filters, self.hidden, bias=False)

    def join(self, key: Tensor, past: Past) -> Tensor:
        """U k + P f."""
        before = past.weights
        if before is None:
            before = F.pad(key.new_ones(*key.shape[:2], 1, 1), (0, key.shape[2] - 1))  # [B,H,1,K]
        features = self.convolve(before.flatten(0, 1)).transpose(1, 2)  # [B*H,K,C]
        placed: Tensor = self.place(features).unflatten(0, key.shape[:2])  # [B,H,K,A]
        return key + placed


class Coverage(HiddenScore):
    """e = vᵀ tanh(W q + U k + w c), c = Σ α of all rows before (See et al. 2017, eq. 10 and 11)."""

    sequential = True

    def __init__(
        self, width: int, key_width: int | None = None, *, hidden: int | None = None
    ) -> None:
        super().__init__(width, key_width, hidden=hidden)
        self.cover = nn.Parameter(torch.empty(self.hidden).normal_(std=self.hidden**-0.5))

    def join(self, key: Tensor, past: Past) -> Tensor:
        """U k + w c; before the first row, c is zero."""
        if past.total is None:
            return key
        return key + (past.total.transpose(2, 3) * self.cover).to(key.dtype)  # [B,H,K,A]


class Location(Score):
    """e = W q: from the query alone (Luong et al. 2015, eq. 9), one output per source position.

    More keys than `longest` raise an error: there are no outputs for them.
    """

    def __init__(self, width: int, key_width: int | None = None, *, longest: int = 512) -> None:
        super().__init__(width, key_width)
        self.longest = positive("longest", longest)
        self.point = nn.Linear(self.width, self.longest, bias=False)

    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """The first K outputs; the rest are not computed."""
        keys = key.shape[2]
        if keys > self.longest:
            raise UserError(
                f"Location was built for at most longest={self.longest} keys and was given {keys}; "
                "build it with a larger longest"
            )
        return F.linear(query, self.point.weight[:keys])


class ProjectedKeys(Score):
    """A score of vectors of one width, for keys of another: e(q, W k).

    W is learnt; it is applied in `prepare`, once per source. With Dot this is Bilinear.
    """

    def __init__(self, score: Score, key_width: int) -> None:
        super().__init__(score.width, key_width)
        self.inner, self.sequential, self.scale = score, score.sequential, score.scale
        self.project = nn.Linear(key_width, score.key_width, bias=False)

    def prepare(self, key: Float[Tensor, "B H K E"]) -> Float[Tensor, "B H K F"]:
        """W k, prepared as the inner score prepares it."""
        return self.inner.prepare(self.project(key))

    def product(self, query: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q F"] | None:
        """Those of the inner score."""
        return self.inner.product(query)

    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """The inner score."""
        scores: Tensor = self.inner(query, key, past)
        return scores
