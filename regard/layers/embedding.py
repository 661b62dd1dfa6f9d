"""Tokens and segments as vectors, and vectors back as scores of tokens.

>>> import torch
>>> words = TokenEmbedding(10, 4)
>>> words.logits(words(torch.tensor([[1, 2]]))).shape
torch.Size([1, 2, 10])

Tokens in, predictions out: an embedding and an output layer, which may be one table.

>>> import torch
>>> words = Lexicon(10, 4, tied=True)
>>> words.predict(words(torch.tensor([[1, 2]]))).logits().shape
torch.Size([1, 2, 10])
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import UserError, positive
from regard.core.protocols import Carry
from regard.kernels.dropout import Dropout
from regard.outputs.next_token import SoftmaxOutput


class TokenEmbedding(nn.Module):
    """A vector for each token; `logits` is the output layer that shares its weights.

    The tie is a method on the one table rather than a second name for its weights (Press & Wolf
    2017), so saving, moving and averaging a model cannot undo it. `scaled` multiplies by √D
    (Vaswani et al. 2017, section 3.4). The vector of the `padding` token starts as zero and gets no
    gradient as an input; where `logits` is used it is an output vector like any other and learns
    that padding is not likely.
    """

    def __init__(
        self, vocabulary: int, width: int, *, scaled: bool = False, padding: int | None = None
    ) -> None:
        super().__init__()
        if padding is not None and not 0 <= padding < positive("vocabulary", vocabulary):
            raise UserError(f"padding={padding} is no token of a vocabulary of {vocabulary}")
        self.table = nn.Embedding(
            positive("vocabulary", vocabulary), positive("width", width), padding_idx=padding
        )
        self.scale = width**0.5 if scaled else 1.0
        nn.init.normal_(self.table.weight, std=width**-0.5 if scaled else 0.02)
        if padding is not None:
            nn.init.zeros_(self.table.weight.data[padding])

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The vectors of tokens."""
        found: Tensor = self.table(tokens)
        return found if self.scale == 1.0 else found * self.scale

    def logits(self, states: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """How well each token fits each state: the products with the table itself, not scaled."""
        return F.linear(states, self.table.weight)


class SegmentEmbedding(nn.Module):
    """x + a vector for the segment that a token belongs to (Devlin et al. 2019, figure 2)."""

    def __init__(self, segments: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(positive("segments", segments), positive("width", width))
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(
        self, x: Float[Tensor, "B T D"], segments: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        """The sequence, each position marked with its segment."""
        if segments.shape != x.shape[:2]:
            raise UserError(
                f"segments must be [batch, positions] as the sequence is, {list(x.shape[:2])}, "
                f"not {list(segments.shape)}"
            )
        marked: Tensor = x + self.table(segments)
        return marked


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
