"""The heads of BERT (Devlin et al. 2019): the word behind a mask, and one vector for a text.

>>> head = WordsHead(4, 10, "gelu", tied=True, eps=1e-12)
>>> output = head(torch.randn(1, 3, 4), torch.randn(10, 4))
>>> output.logits().shape, output.at(torch.tensor([[True, False, False]])).logits().shape
(torch.Size([1, 3, 10]), torch.Size([1, 1, 10]))
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import choose
from regard.layers.feedforward import ACTIVATIONS
from regard.outputs.masked_lm import MaskedWords


class WordsHead(nn.Module):
    """W norm(f(U h + c)) + b: scores of all words for a state."""

    def __init__(
        self, width: int, vocabulary: int, activation: str, *, tied: bool, eps: float
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = choose("activation", activation, ACTIVATIONS)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.output = None if tied else nn.Linear(width, vocabulary, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, states: Float[Tensor, "B T D"], table: Float[Tensor, "V D"]) -> MaskedWords:
        """The distributions, computed where they are needed."""
        weight = table if self.output is None else self.output.weight
        return MaskedWords(states, self.transform, weight, self.bias)

    def transform(self, states: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """The input of the output layer."""
        vectors: Tensor = self.norm(self.activation(self.dense(states)))
        return vectors


class Pooler(nn.Module):
    """f(W h + b) of the first token's state."""

    def __init__(self, width: int, activation: str = "tanh") -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = choose("activation", activation, ACTIVATIONS)

    def forward(self, states: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        """One vector for the text."""
        pooled: Tensor = self.activation(self.dense(states[:, 0]))
        return pooled
