"""Skip-gram with negative sampling: a word predicts its neighbours (Mikolov et al. 2013).

Every word has a vector as a centre, v, and one as a neighbour, u. For each neighbour o of a centre
c in its window (eq. 4):

    log σ(u_o·v_c) + Σ log σ(-u_k·v_c) over `negatives` noise words k

The centres of a row share their noise (negative_sampling.py).

>>> import torch
>>> model = SkipGram(SkipGram.Config(width=4), words=9)
>>> batch = {"words": torch.tensor([[5, 6, 7, 8]]), "noise": torch.tensor([[4, 4]])}
>>> model(batch | {"near": torch.ones(1, 2, 4, dtype=torch.bool)}).items
8
"""

from jaxtyping import Float
from torch import Tensor, nn

from regard.core.protocols import Batch, Carry
from regard.models.words.negative_sampling import (
    NegativeSamplingConfig,
    centres_of,
    contrast,
    initialise_like_word2vec,
    refuse_ngrams,
)
from regard.outputs.word_pairs import NegativeSampling


class SkipGram(nn.Module):
    """A table of vectors for centres, and one for their neighbours."""

    class Config(NegativeSamplingConfig):
        """What a recipe may choose."""

    def __init__(self, config: Config, words: int, buckets: int = 0) -> None:
        super().__init__()
        refuse_ngrams(type(self).__name__, buckets)
        self.config = config
        self.centre = nn.Embedding(words, config.width, sparse=True)
        self.around = nn.Embedding(words, config.width, sparse=True)
        initialise_like_word2vec(self.centre.weight)
        nn.init.zeros_(self.around.weight)

    def forward(self, batch: Batch, carry: Carry | None = None) -> NegativeSampling:
        """Every centre of a row beside every word and every noise word of the row."""
        words, near = batch["words"], batch["near"]
        centres = self.centre(centres_of(words, near))  # [B,Q,D]
        pairs = near.to(centres.dtype)
        return contrast(centres, self.around, words, batch["noise"], pairs, self.config.negatives)

    def vectors(self, batch: Batch) -> Float[Tensor, "N D"]:
        """The vectors of `words` [N]."""
        vectors: Tensor = self.centre(batch["words"])
        return vectors
