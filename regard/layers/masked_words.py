"""The heads of BERT (Devlin et al. 2019): the word behind a mask, and one vector for a text.

>>> head = WordsHead(4, 10, "gelu", tied=True, eps=1e-12)
>>> said = head(torch.randn(1, 3, 4), torch.randn(10, 4))
>>> said.logits().shape, said.only(torch.tensor([[True, False, False]])).logits().shape
(torch.Size([1, 3, 10]), torch.Size([1, 1, 10]))
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.errors import choose
from regard.layers.feedforward import ACTIVATIONS
from regard.outputs.next_token import IGNORED, Prediction, Vocabulary


@dataclass(frozen=True)
class HiddenWords(Prediction):
    """What a masked language model says of each token's place."""

    states: Float[Tensor, "B T D"]
    turned: Callable[[Tensor], Tensor]
    """The layers between a state and the table of words."""
    weight: Float[Tensor, "V D"]
    bias: Float[Tensor, "V"]

    def only(self, where: Bool[Tensor, "B T"]) -> Vocabulary:
        """The same at some places, in one row: the words head runs over nothing else."""
        return self._of(self.states[where][None])

    def _of(self, states: Tensor) -> Vocabulary:
        return Vocabulary(self.turned(states), self.weight, self.bias)

    def surprise(
        self, targets: Int[Tensor, "B T"], *, smoothing: float = 0.0, never: int | None = None
    ) -> Float[Tensor, ""]:
        """-log p of the words that stood there, summed over all that are not `IGNORED`."""
        where = targets != IGNORED
        chosen = targets[where][None]  # [1,T]
        return self.only(where).surprise(chosen, smoothing=smoothing, never=never)

    def log_probability(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Log p of each word; zero where it is `IGNORED`."""
        return self._of(self.states).log_probability(targets)

    def logits(self) -> Float[Tensor, "B T V"]:
        """Scores of all words at all places."""
        return self._of(self.states).logits()


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

    def forward(self, states: Float[Tensor, "B T D"], table: Float[Tensor, "V D"]) -> HiddenWords:
        """The scores, as a value that computes those it is asked for."""
        weight = table if self.output is None else self.output.weight
        return HiddenWords(states, self.turned, weight, self.bias)

    def turned(self, states: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """What the output layer is given."""
        turned: Tensor = self.norm(self.activation(self.dense(states)))
        return turned


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
