"""A language model in both directions: the next word at each position, and the previous one."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.padding import IGNORE
from regard.core.protocols import Batch
from regard.outputs.next_token import NextTokens
from regard.outputs.output import ModelOutput


@dataclass(frozen=True)
class BothDirections(ModelOutput):
    """Two distributions at each position."""

    forward: NextTokens
    """Of the next word."""
    backward: NextTokens
    """Of the previous word."""

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Against `targets` [B,T], the next words, and the words of `tokens` [B,T] before each."""
        forward = self.forward.nll(batch["targets"])
        return self.with_auxiliary(forward + self.backward.nll(previous_tokens(batch["tokens"])))


def previous_tokens(tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """The token before each; IGNORE for the first of a window.

    >>> previous_tokens(torch.tensor([[5, 6, 7]])).tolist()
    [[-100, 5, 6]]
    """
    previous = torch.full_like(tokens, IGNORE)
    previous[:, 1:] = tokens[:, :-1]
    return previous
