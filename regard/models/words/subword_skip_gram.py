"""fastText: skip-gram whose words are means of character n-grams (Bojanowski et al. 2017).

A word's vector as a centre is the mean of its own and those of its n-grams, hashed into buckets
(section 3.2; the code takes the mean where the paper writes a sum). All else is skip-gram. An
unknown word has the mean of its n-grams.

>>> import torch
>>> model = SubwordSkipGram(SubwordSkipGram.Config(width=4), words=9, buckets=20)
>>> batch = {"words": torch.tensor([[5, 6, 7, 8]]), "noise": torch.tensor([[4, 4]])}
>>> batch |= {"grams": torch.randint(20, (1, 4, 3)), "near": torch.ones(1, 2, 4).bool()}
>>> model(batch).items
8
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry
from regard.models.words.negative_sampling import (
    NegativeSamplingConfig,
    centres_of,
    contrast,
    initialise_like_word2vec,
)
from regard.outputs.word_pairs import NegativeSampling


class SubwordSkipGram(nn.Module):
    """A table of words and buckets together, and one of neighbours."""

    class Config(NegativeSamplingConfig):
        """What a recipe may choose."""

    def __init__(self, config: Config, words: int, buckets: int) -> None:
        super().__init__()
        if not buckets:
            raise UserError("words are made of n-grams here: set data.buckets above zero")
        self.config = config
        self.words = words
        self.parts = nn.EmbeddingBag(
            words + buckets + 1, config.width, mode="mean", sparse=True, padding_idx=0
        )
        self.around = nn.Embedding(words, config.width, sparse=True)
        initialise_like_word2vec(self.parts.weight)
        nn.init.zeros_(self.around.weight)

    def forward(self, batch: Batch, carry: Carry | None = None) -> NegativeSampling:
        """Every centre of a row beside every word and every noise word of the row."""
        centres = self._centres(batch)  # [B,Q,D]
        pairs = batch["near"].to(centres.dtype)
        return contrast(
            centres, self.around, batch["words"], batch["noise"], pairs, self.config.negatives
        )

    def _centres(self, batch: Batch) -> Float[Tensor, "B Q D"]:
        """The mean of each different word is computed once, however often it occurs."""
        centres = centres_of(batch["words"], batch["near"])  # [B,Q]
        side = (batch["words"].shape[1] - centres.shape[1]) // 2
        grams = batch["grams"][:, side : side + centres.shape[1]].flatten(0, 1)
        different, back = centres.flatten().unique(return_inverse=True)
        places = torch.arange(len(back), device=back.device)
        where = torch.zeros_like(different).index_copy_(0, back, places)
        vectors = self._mean(different, grams[where])
        centre_vectors: Tensor = vectors[back].unflatten(0, centres.shape)
        return centre_vectors

    def _mean(self, words: Int[Tensor, "N"], grams: Int[Tensor, "N C"]) -> Float[Tensor, "N D"]:
        """The mean of a word and its n-grams; 0 is neither."""
        buckets = torch.where(grams == 0, 0, grams.long() + self.words)
        mean: Tensor = self.parts(torch.cat((words[:, None], buckets), dim=1))
        return mean

    def vectors(self, batch: Batch) -> Float[Tensor, "N D"]:
        """The vectors of `words` [N] with their `grams` [N,C]; word 0 is an unknown one."""
        return self._mean(batch["words"], batch["grams"])
