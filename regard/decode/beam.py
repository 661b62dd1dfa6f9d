"""The settings of a beam search, by default those of the Transformer paper, and its penalties.

A hypothesis has the score log P(Y|X) / lp(Y) + cp(X;Y) (Wu et al. 2016, section 7). Without the
length penalty lp, short hypotheses win, because every token lowers P; without the coverage penalty
cp, those win that omit part of the source.

>>> Beam(width=2, n_best=3)
Traceback (most recent call last):
regard.core.errors.UserError: n_best=3 is more than width=2, the hypotheses that are kept
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.errors import UserError, choose, divides, positive
from regard.decode.rules import Number

_Penalty = Callable[[int, Number], float]
"""From a length, including the end token, and alpha to the divisor of log P.

It must not decrease with the length: the stopping criterion of the search relies on that.
"""


def _no_penalty(length: int, alpha: Number) -> float:
    """1: the score is log P."""
    return 1.0


def _gnmt(length: int, alpha: Number) -> float:
    """((5 + |Y|) / (5 + 1))^α, equation 14.

    >>> [round(_gnmt(length, 1.0), 3) for length in (1, 7, 13)]
    [1.0, 2.0, 3.0]
    """
    return float(((5 + length) / 6) ** alpha)


def _average_penalty(length: int, alpha: Number) -> float:
    """|Y|^α: with α=1 the mean of the tokens' log-probabilities, as in fairseq."""
    return float(length**alpha)


LENGTH_PENALTIES: dict[str, _Penalty] = {
    "none": _no_penalty,
    "gnmt": _gnmt,
    "average": _average_penalty,
}
"""The length penalties by name."""


def coverage_penalty(
    sums: Float[Tensor, "N S"], real: Bool[Tensor, "N S"], beta: Number
) -> Float[Tensor, "N"]:
    """cp = β Σᵢ log(min(Σⱼ pᵢⱼ, 1)), with the sums of attention weights over source positions.

    A sum of 0, which sparse weights allow, is replaced by the smallest float: with -inf, such
    hypotheses could not be compared.

    >>> sums = torch.tensor([[1.5, 0.5, 0.0]])
    >>> coverage_penalty(sums, torch.tensor([[True, True, False]]), 1.0).exp().tolist()
    [0.5]
    """
    covered = sums.clamp(torch.finfo(sums.dtype).tiny, 1.0).log()  # [N,S]
    return beta * torch.where(real, covered, 0.0).sum(-1)


@dataclass(frozen=True, kw_only=True)
class Beam:
    """The settings of a beam search. A width of one is greedy search."""

    width: int = 4
    """The number of hypotheses that are kept at every step."""
    n_best: int = 1
    """The maximum number of hypotheses to return for each sentence."""
    length_penalty: str = "gnmt"
    """A name in LENGTH_PENALTIES: `none`, `gnmt` or `average`."""
    alpha: Number = 0.6
    """The exponent of the length penalty; 0 is no penalty."""
    coverage: Number = 0.0
    """β of the coverage penalty, which needs the attention weights; 0 is off."""
    min_length: int = 0
    """The minimum length, without the end token."""
    min_per_source: Number = 0.0
    """Added to the minimum length for every token of the source."""
    max_length: int = 50
    """The maximum length, without the end token; longer hypotheses must end. The model's context
    limits it too.
    """
    max_per_source: Number = 1.0
    """Added to the maximum length for every token of the source."""
    no_repeat: int = 0
    """The size of n-grams that may not occur twice; 0 is off."""
    groups: int = 1
    """Diverse beam search (Vijayakumar et al. 2016): the number of groups of beams, searched one
    after the other; each avoids the tokens of earlier groups.
    """
    diversity: Number = 0.0
    """λ: subtracted from the rank of a token for each beam of earlier groups that chose it at the
    same step. Scores do not change.
    """
    early: bool = False
    """Finish a sentence when as many hypotheses as beams have ended, as in fairseq; otherwise when
    no unfinished hypothesis can still become one of the best.
    """
    estimate: bool = False
    """Finish a sentence when as many hypotheses as beams have ended and the best unfinished one is
    no better at its present length, though it might become so: the default of transformers.
    """
    free_end: bool = False
    """Does the end token of a hypothesis of the maximum length cost nothing, instead of its
    probability? So it is in transformers, with `forced_eos_token_id`.
    """
    bos: int = 2
    """The token that begins every target."""
    eos: int = 3
    """The token that ends it."""
    banned: tuple[int, ...] = ()
    """Tokens that are never chosen."""
    scores: bool = True
    """False saves greedy search a pass over the logits; its scores are then nan."""

    def __post_init__(self) -> None:
        positive("width", self.width)
        positive("n_best", self.n_best)
        divides("width", self.width, "groups", self.groups)
        choose("length penalty", self.length_penalty, LENGTH_PENALTIES)
        for name in ("min_length", "max_length", "no_repeat", "bos", "eos"):
            _count(name, getattr(self, name))
        for token in self.banned:
            _count("banned", token)
        for name in ("alpha", "coverage", "min_per_source", "max_per_source", "diversity"):
            _amount(name, getattr(self, name))
        self._check_together()

    def _check_together(self) -> None:
        """Raise a UserError for settings that contradict each other."""
        if self.n_best > self.width:
            raise UserError(
                f"n_best={self.n_best} is more than width={self.width}, "
                "the hypotheses that are kept"
            )
        if self.min_length > self.max_length and self.min_per_source >= self.max_per_source:
            raise UserError(
                f"min_length={self.min_length} is more than max_length={self.max_length}"
            )
        if (self.groups > 1) != (self.diversity > 0):
            raise UserError(
                f"groups={self.groups} with diversity={self.diversity}: several groups need a "
                "diversity above 0, and one group has no use for it"
            )
        if self.early and self.estimate:
            raise UserError("early=True and estimate=True are two ways to finish; choose one")
        if self.width == 1 and self.coverage:
            raise UserError(f"coverage={self.coverage} ranks hypotheses, but width=1 has only one")
        if not self.scores and self.width > 1:
            raise UserError(f"scores=False is for width=1; width={self.width} ranks by them")

    @property
    def group(self) -> int:
        """The number of beams in a group."""
        return self.width // self.groups

    def longest(self, source: int) -> int:
        """The maximum length for a source of this length."""
        return self.max_length + math.floor(self.max_per_source * source)

    def penalty(self, length: int) -> float:
        """The divisor of the log-probability of a hypothesis.

        >>> Beam(length_penalty="average", alpha=1).penalty(7)
        7.0
        """
        return LENGTH_PENALTIES[self.length_penalty](length, self.alpha)


def _count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UserError(f"{name}={value!r} must be a whole number, 0 or more")


def _amount(name: str, value: Number) -> None:
    if not 0.0 <= value < math.inf:
        raise UserError(f"{name}={value} must be a finite number, 0 or more")
