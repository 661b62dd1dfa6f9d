"""GloVe: vectors whose products are logarithms of counts (Pennington et al. 2014).

    Σ f(x_ij) (w_i·w̃_j + b_i + b̃_j - log x_ij)², f(x) = min(1, (x / x_max)^(3/4))   (eq. 8 and 9)

over the cells that are not zero. The vector of a word is the sum of both of its vectors (section
4.2).

>>> import torch
>>> model = GloVe(GloVe.Config(width=4), words=9)
>>> cells = {"rows": torch.tensor([5]), "columns": torch.tensor([6]), "counts": torch.ones(1)}
>>> model(cells).items
1
"""

from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config as Settings
from regard.core.protocols import Batch, Carry
from regard.models.words.negative_sampling import initialise_like_word2vec, refuse_ngrams
from regard.outputs.word_pairs import LogCounts


class GloVe(nn.Module):
    """Two tables of vectors and two of biases."""

    class Config(Settings):
        """What a recipe may choose."""

        width: PositiveInt = 100
        most: PositiveFloat = 100.0
        """The count from which all weigh the same: x_max."""

    def __init__(self, config: Config, words: int, buckets: int = 0) -> None:
        super().__init__()
        refuse_ngrams(type(self).__name__, buckets)
        self.config = config
        self.row = nn.Embedding(words, config.width, sparse=True)
        self.column = nn.Embedding(words, config.width, sparse=True)
        self.row_bias = nn.Embedding(words, 1, sparse=True)
        self.column_bias = nn.Embedding(words, 1, sparse=True)
        for table in (self.row, self.column, self.row_bias, self.column_bias):
            initialise_like_word2vec(table.weight)

    def forward(self, batch: Batch, carry: Carry | None = None) -> LogCounts:
        """The logarithm of each count as the vectors have it."""
        rows, columns = batch["rows"], batch["columns"]
        product = (self.row(rows) * self.column(columns)).sum(1)  # [B]
        biases = (self.row_bias(rows) + self.column_bias(columns)).squeeze(1)
        return LogCounts(product + biases, self.config.most)

    def vectors(self, batch: Batch) -> Float[Tensor, "N D"]:
        """The vectors of `words` [N]."""
        vectors: Tensor = self.row(batch["words"]) + self.column(batch["words"])
        return vectors
