"""Greedy: always the likeliest token; nothing is drawn.

>>> import torch
>>> Greedy().begin([]).choose(torch.tensor([[0.1, 0.7, 0.2]])).tolist()
[1]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float, Int
from torch import Tensor, from_numpy

from regard.decode.policy import Row
from regard.decode.rules import Bound, Number, bound, check
from regard.decode.top_k import best


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """The likeliest token; of those that tie, the first."""

    repetition_penalty: Number = 1.0
    """Above one, tokens that were there before become less likely; 1 is off."""

    def __post_init__(self) -> None:
        check({"repetition_penalty": self.repetition_penalty})

    @cached_property
    def rules(self) -> tuple[Bound, ...]:
        """The penalty, if it is on: no other rule changes which token is the likeliest."""
        return bound({"repetition_penalty": self.repetition_penalty})

    def begin(self, rows: Sequence[Row]) -> "Greedy":
        """Nothing has to be remembered from one token to the next."""
        return self

    def choose(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        """The place of the largest logit."""
        return from_numpy(best(logits)[1]).to(logits.device)

    def keep(self, places: Sequence[int]) -> None:
        """Nothing to forget either."""
