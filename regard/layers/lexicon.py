"""Tokens in, predictions out: an embedding and an output layer, which may be one table.

>>> import torch
>>> words = Lexicon(10, 4, tied=True)
>>> words.predict(words(torch.tensor([[1, 2]]))).logits().shape
torch.Size([1, 2, 10])
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import positive
from regard.core.protocols import Carry
from regard.kernels.dropout import Dropout
from regard.outputs.next_token import SoftmaxOutput


class Lexicon(nn.Module):
    """Both ends of a recurrent language model, with dropout on what enters and on what leaves.

    `tied` uses the embedding as output layer (Press & Wolf 2017). Both start uniform between
    -`init_range` and `init_range`, and the output layer's bias at zero.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        tied: bool = False,
        dropout: float = 0.0,
        init_range: float = 0.1,
    ) -> None:
        super().__init__()
        positive("vocabulary", vocabulary)
        positive("width", width)
        self.embed = nn.Embedding(vocabulary, width)
        self.output = None if tied else nn.Linear(width, vocabulary, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.drop = Dropout(dropout)
        nn.init.uniform_(self.embed.weight, -init_range, init_range)
        if self.output is not None:
            nn.init.uniform_(self.output.weight, -init_range, init_range)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The vectors of tokens."""
        vectors: Tensor = self.drop(self.embed(tokens))
        return vectors

    def predict(self, states: Float[Tensor, "B T D"], carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each state; the carry is passed on."""
        table = self.embed if self.output is None else self.output
        return SoftmaxOutput(self.drop(states), table.weight, self.bias, carry=carry)
