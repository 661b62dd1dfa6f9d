"""Bag of n-grams: the mean of embeddings and a linear layer (fastText; Joulin et al. 2017).

p = softmax(B (1/N) Σ_n A x_n), eq. 1: the x are words and n-grams of neighbouring words. There are
too many n-grams to name, so each is hashed to one of `buckets` rows, as fastText does: h = h ·
116049371 + w over its words, from the first; here w is the number of the word, there a hash of its
characters. Beyond n-grams, the order of words does not count.

The gradient of the table is sparse: the rows that a batch looked up. A step costs the same however
many buckets there are; of the optimisers, adagrad supports it.

>>> model = BagOfNgrams(BagOfNgrams.Config(buckets=100), vocabulary=10, classes=3)
>>> batch = {"tokens": torch.tensor([[4, 5, 6], [4, 5, 0]]), "lengths": torch.tensor([3, 2])}
>>> model.rows(batch).tolist()[1], model(batch).logits.shape
([4, 5, 0, 99, 0], torch.Size([2, 3]))
"""

import torch
from jaxtyping import Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.padding import real_positions
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.outputs.classes import Classes

FACTOR = 116049371
"""The factor of fastText's hash, before the next word is added."""


class BagOfNgrams(nn.Module):
    """The mean of word and n-gram embeddings, and a linear layer."""

    class Config(Config):
        """What a recipe may choose."""

        width: PositiveInt = 10
        """Of an embedding."""
        ngrams: PositiveInt = 2
        """The most words of an n-gram; 1 is words alone."""
        buckets: PositiveInt = 2_000_000
        """Rows that n-grams of two words and more share."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """On the mean."""

    def __init__(self, config: Config, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = vocabulary
        rows = vocabulary + (config.buckets if config.ngrams > 1 else 0)
        self.table = nn.EmbeddingBag(rows, config.width, mode="mean", padding_idx=0, sparse=True)
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(config.width, classes)
        nn.init.uniform_(self.table.weight, -1 / config.width, 1 / config.width)
        nn.init.zeros_(self.table.weight.data[0])
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The classes of each text."""
        return Classes(self.output(self.drop(self.table(self.rows(batch)))))

    def rows(self, batch: Batch) -> Int[Tensor, "B K"]:
        """The rows of a text's words and n-grams; 0 where there is none."""
        real = real_positions(batch["lengths"], batch["tokens"].shape[1])  # [B,T]
        tokens = torch.where(real, batch["tokens"], 0)
        found, hashed = [tokens], tokens
        for size in range(2, 1 + min(self.config.ngrams, tokens.shape[1])):
            hashed = hashed[:, :-1] * FACTOR + tokens[:, size - 1 :]  # wraps, as in fastText
            row = self.vocabulary + hashed.remainder(self.config.buckets)
            found.append(torch.where(real[:, size - 1 :], row, 0))
        return torch.cat(found, dim=1)
