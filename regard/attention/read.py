"""Read: what does the query receive?

A read takes weights `[B,H,Q,K]` and the values of the memory.

>>> import torch
>>> weights = torch.tensor([0.25, 0.75]).view(1, 1, 1, 2)
>>> WeightedSum()(weights, torch.eye(2)[None, None]).flatten().tolist()
[0.25, 0.75]
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from regard.core.errors import UserError, positive


class Read(nn.Module, ABC):
    """From weights and values to what the query receives."""

    fusable = False
    """Is this the weighted sum, which a fused kernel can compute?"""

    @abstractmethod
    def forward(
        self, weights: Float[Tensor, "B H Q K"], value: Shaped[Tensor, "B H K W"]
    ) -> Float[Tensor, "B H Q ..."]:
        """What each query receives."""


class WeightedSum(Read):
    """Σ α v: the expected value."""

    fusable = True

    def forward(
        self, weights: Float[Tensor, "B H Q K"], value: Float[Tensor, "B H K W"]
    ) -> Float[Tensor, "B H Q W"]:
        """One matrix product."""
        return weights @ value


class Gather(Read):
    """The value of the key with the largest weight; zeros where a row is empty.

    No gradient reaches the weights.
    """

    def forward(
        self, weights: Float[Tensor, "B H Q K"], value: Float[Tensor, "B H K W"]
    ) -> Float[Tensor, "B H Q W"]:
        """One value for each query, not a sum."""
        largest = weights.max(-1)
        return gather_chosen(value, largest.indices) * (largest.values > 0).unsqueeze(-1)


class Copy(Read):
    """The weights as probabilities of the tokens that the keys stand for (See et al. 2017, eq. 9).

    The memory's value is the token of each key, `[B,H,K,1]`, integers below `vocabulary`,
    which may be extended by the words of this batch. A token of several keys receives the sum of
    their weights.
    """

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = positive("vocabulary", vocabulary)

    def forward(
        self, weights: Float[Tensor, "B H Q K"], value: Int[Tensor, "B H K 1"]
    ) -> Float[Tensor, "B H Q V"]:
        """A distribution over the vocabulary, if the weights are one over the keys."""
        return sum_by_token(weights, value.squeeze(3), self.vocabulary)


class Hops(nn.Module):
    """Several reads, each with a query from the one before (Sukhbaatar et al. 2015, sec. 2.2).

    `update` computes the next query from the last one and its read; in the paper, their sum. Hops
    may share one Attend (layer-wise tying) or each have its own.
    """

    def __init__(
        self,
        attends: Sequence[nn.Module],
        update: Callable[[Tensor, Tensor], Tensor] = torch.add,
    ) -> None:
        super().__init__()
        if not attends:
            raise UserError("Hops needs at least one Attend")
        self.attends = nn.ModuleList(attends)
        self.update = update

    def forward(
        self, query: Float[Tensor, "B H Q E"], memories: Sequence[object], mask: object = None
    ) -> Float[Tensor, "B H Q E"]:
        """The query after all reads."""
        if len(memories) != len(self.attends):
            raise UserError(f"{len(self.attends)} hops need as many memories, not {len(memories)}")
        for attend, memory in zip(self.attends, memories, strict=True):
            query = self.update(query, attend(query, memory, mask))
        return query


def gather_chosen(
    value: Float[Tensor, "B H K W"], choice: Int[Tensor, "B H Q"]
) -> Float[Tensor, "B H Q W"]:
    """The value at each chosen key."""
    index = choice.unsqueeze(-1).expand(*choice.shape, value.shape[-1])
    return value.gather(2, index)


def sum_by_token(
    weights: Float[Tensor, "B H Q K"], tokens: Int[Tensor, "B H K"], vocabulary: int
) -> Float[Tensor, "B H Q V"]:
    """The weights added up by token.

    >>> weights = torch.tensor([0.2, 0.3, 0.5]).view(1, 1, 1, 3)
    >>> total = sum_by_token(weights, torch.tensor([[[4, 1, 4]]]), 5)
    >>> [round(p, 2) for p in total.flatten().tolist()]
    [0.0, 0.3, 0.0, 0.0, 0.7]
    """
    largest = int(tokens.max()) if tokens.numel() else 0
    if largest >= vocabulary or (tokens.numel() and int(tokens.min()) < 0):
        raise UserError(
            f"the memory holds token {largest if largest >= vocabulary else int(tokens.min())}, "
            f"outside a vocabulary of {vocabulary}"
        )
    total = weights.new_zeros(*weights.shape[:3], vocabulary)
    return total.scatter_add(-1, tokens.unsqueeze(2).expand_as(weights), weights)
