"""Beam: the settings of a beam search; those of the Transformer paper if nothing is said.

>>> Beam(width=2, n_best=3)
Traceback (most recent call last):
regard.core.errors.UserError: n_best=3 is more than width=2, the hypotheses that are kept
"""

import math
from dataclasses import dataclass

from regard.core.errors import UserError, choose, divides, positive
from regard.decode.penalty import LENGTH_PENALTIES
from regard.decode.rules import Number


@dataclass(frozen=True, kw_only=True)
class Beam:
    """How to search for the best target of a sentence.

    A width of one is greedy: the likeliest token each time, up to the first end.
    """

    width: int = 4
    """Hypotheses that are kept at every step."""
    n_best: int = 1
    """The most hypotheses to give for each sentence."""
    length_penalty: str = "gnmt"
    """A row of LENGTH_PENALTIES: `none`, `gnmt` or `average`."""
    alpha: Number = 0.6
    """The exponent of the length penalty; 0 is none."""
    coverage: Number = 0.0
    """β of the coverage penalty, which needs the attention weights; 0 is off."""
    min_length: int = 0
    """The fewest tokens, without the one that ends them."""
    min_per_source: Number = 0.0
    """For every token of the source so many more."""
    max_length: int = 50
    """The most tokens, without the one that ends them; a hypothesis of so many must end. It is
    never more than the model's context holds.
    """
    max_per_source: Number = 1.0
    """For every token of the source so many more."""
    no_repeat: int = 0
    """No sequence of so many tokens is written twice; 0 is off."""
    groups: int = 1
    """Diverse beam search (Vijayakumar et al. 2016): the beams in groups that search one after the
    other, each for something else than those before it.
    """
    diversity: Number = 0.0
    """λ: what a token loses in rank, at the step, for each beam of earlier groups that took it.
    Scores are not changed by it.
    """
    early: bool = False
    """End a sentence when as many hypotheses as there are beams have ended, as fairseq does; else
    when no hypothesis that goes on can still get among the best.
    """
    bos: int = 2
    """The token that begins every target."""
    eos: int = 3
    """The token that ends it."""
    never: tuple[int, ...] = ()
    """Tokens that are not written, whatever the model says."""
    scores: bool = True
    """False saves greedy a pass over the logits; its scores are then nan."""

    def __post_init__(self) -> None:
        positive("width", self.width)
        positive("n_best", self.n_best)
        divides("width", self.width, "groups", self.groups)
        choose("length penalty", self.length_penalty, LENGTH_PENALTIES)
        for name in ("min_length", "max_length", "no_repeat", "bos", "eos"):
            _count(name, getattr(self, name))
        for token in self.never:
            _count("never", token)
        for name in ("alpha", "coverage", "min_per_source", "max_per_source", "diversity"):
            _amount(name, getattr(self, name))
        self._check_together()

    def _check_together(self) -> None:
        """Settings that are sound each for itself, but not beside the others."""
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
                f"groups={self.groups} with diversity={self.diversity}: "
                "groups without it would all write the same, and it does nothing for one group"
            )
        if self.width == 1 and self.coverage:
            raise UserError(f"coverage={self.coverage} ranks hypotheses, but width=1 has only one")
        if not self.scores and self.width > 1:
            raise UserError(f"scores=False is for width=1; width={self.width} ranks by them")

    @property
    def group(self) -> int:
        """How many beams a group has."""
        return self.width // self.groups

    def longest(self, source: int) -> int:
        """The most tokens for a source of so many."""
        return self.max_length + math.floor(self.max_per_source * source)

    def penalty(self, length: int) -> float:
        """What the log-probability of a hypothesis is divided by.

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
