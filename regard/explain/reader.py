"""A reader: a model that predicts from texts, and whose attention can be seen and replaced.

The tests of whether attention explains a prediction ask four things of a model, and nothing else.
`Attended` (attended.py) answers them for any model whose attention is an Attend; for a model of
your own, write a class with these four methods (docs/audit.md shows one for plain torch.nn).
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.protocols import Batch


@dataclass(frozen=True)
class Read:
    """What a reader makes of some texts."""

    probabilities: Float[Tensor, "B C"]
    weights: Float[Tensor, "B T"]
    """How much it looked at each token; a row sums to one over what it may look at."""


class Reader(ABC):
    """What the tests ask of a model."""

    @abstractmethod
    def judged(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """The tokens whose weights are judged: real ones, not those that every text has."""

    @abstractmethod
    def embed(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The vectors of the tokens, before anything has mixed them."""

    @abstractmethod
    def read(
        self,
        batch: Batch,
        *,
        weights: Float[Tensor, "B T"] | None = None,
        embedded: Float[Tensor, "B T D"] | None = None,
    ) -> Read:
        """The prediction, with other weights or other vectors than its own where they are given."""

    @abstractmethod
    def kept(self, batch: Batch, keep: Bool[Tensor, "B T"]) -> Batch:
        """The texts with only these tokens in them, closed up."""

    def groups(self, batch: Batch) -> Int[Tensor, "B T"]:
        """Which tokens share a sum of one: numbers of groups; all the same unless told otherwise.

        The words of a document that is read sentence by sentence are grouped by sentence.
        """
        return torch.zeros_like(self.judged(batch), dtype=torch.int64)

    def still(self, batch: Batch) -> AbstractContextManager[None]:
        """Inside, these texts are read with other weights and nothing else is changed.

        A reader may keep whatever does not depend on the weights; one that does not is only slower.
        """
        return nullcontext()
