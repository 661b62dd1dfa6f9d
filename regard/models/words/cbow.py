"""CBOW with negative sampling: the mean of the neighbours predicts the word (Mikolov et al. 2013).

With h the mean of the neighbours' vectors v, as in word2vec's code, for each centre c:

    log σ(u_c·h) + Σ log σ(-u_k·h) over `negatives` noise words k

The centres of a row share their noise (negative_sampling.py).

>>> import torch
>>> model = CBOW(CBOW.Config(width=4), words=9)
>>> batch = {"words": torch.tensor([[5, 6, 7, 8]]), "noise": torch.tensor([[4, 4]])}
>>> model(batch | {"near": torch.ones(1, 2, 4, dtype=torch.bool)}).items
2
"""

import torch
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


class CBOW(nn.Module):
    """A table of vectors for neighbours, and one for their centres."""

    class Config(NegativeSamplingConfig):
        """What a recipe may choose."""

    def __init__(self, config: Config, words: int, buckets: int = 0) -> None:
        super().__init__()
        refuse_ngrams(type(self).__name__, buckets)
        self.config = config
        self.around = nn.Embedding(words, config.width, sparse=True)
        self.centre = nn.Embedding(words, config.width, sparse=True)
        initialise_like_word2vec(self.around.weight)
        nn.init.zeros_(self.centre.weight)

    def forward(self, batch: Batch, carry: Carry | None = None) -> NegativeSampling:
        """The mean around every centre of a row beside the centres and the noise of the row."""
        words, near = batch["words"], batch["near"]
        share = near.to(self.around.weight.dtype)  # [B,Q,K]
        count = share.sum(2, keepdim=True)
        mean = (share / count.clamp_min(1)) @ self.around(words)  # [B,Q,D]
        centres = centres_of(words, near)  # [B,Q]
        size = centres.shape[1]
        pairs = torch.eye(size, dtype=share.dtype, device=share.device) * (count > 0)  # [B,Q,Q]
        return contrast(mean, self.centre, centres, batch["noise"], pairs, self.config.negatives)

    def vectors(self, batch: Batch) -> Float[Tensor, "N D"]:
        """The vectors of `words` [N]."""
        vectors: Tensor = self.around(batch["words"])
        return vectors
