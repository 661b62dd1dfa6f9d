"""fastText: skip-gram whose words are made of n-grams of letters (Bojanowski et al. 2017).

A word's vector as a centre is the mean of its own and those of its n-grams, hashed into buckets
(section 3.2; the code takes the mean where the paper writes a sum). All else is skip-gram. A word
that was never seen has the mean of its n-grams.

>>> import torch
>>> model = SubwordSkipGram(SubwordSkipGram.Config(width=4), words=9, buckets=20)
>>> batch = {"words": torch.tensor([[5, 6, 7, 8]]), "noise": torch.tensor([[4, 4]])}
>>> batch |= {"grams": torch.randint(20, (1, 4, 3)), "near": torch.ones(1, 2, 4).bool()}
>>> model(batch).items
8
"""

import torch
from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.core.config import Config as Settings
from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.outputs.word_pairs import Contrast, centred, noise_weights, spread_evenly


class SubwordSkipGram(nn.Module):
    """A table of words and buckets together, and one of neighbours."""

    class Config(Settings):
        """What a recipe may choose."""

        width: PositiveInt = 100
        negatives: PositiveInt = 5
        """For how many noise words each pair pays: k."""

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
        spread_evenly(self.parts.weight)
        nn.init.zeros_(self.around.weight)

    def forward(self, batch: Batch) -> Contrast:
        """Every centre of a row beside every word and every noise word of the row."""
        words, near, drawn = batch["words"], batch["near"], batch["noise"]
        beside = self.around(torch.cat((words, drawn), dim=1))  # [B,K,D]
        scores = self._centres(batch) @ beside.transpose(1, 2)  # [B,Q,K]
        pairs = near.to(scores.dtype)
        noise = noise_weights(pairs, words, drawn, self.config.negatives)  # [B,Q,C]
        return Contrast(
            scores,
            torch.cat((pairs, torch.zeros_like(noise)), dim=2),
            torch.cat((torch.zeros_like(pairs), noise), dim=2),
        )

    def _centres(self, batch: Batch) -> Float[Tensor, "B Q D"]:
        """Each different word is put together once, however often it occurs."""
        centres = centred(batch["words"], batch["near"])  # [B,Q]
        side = (batch["words"].shape[1] - centres.shape[1]) // 2
        grams = batch["grams"][:, side : side + centres.shape[1]].flatten(0, 1)
        different, back = centres.flatten().unique(return_inverse=True)
        places = torch.arange(len(back), device=back.device)
        where = torch.zeros_like(different).index_copy_(0, back, places)
        made = self._put_together(different, grams[where])
        found: Tensor = made[back].unflatten(0, centres.shape)
        return found

    def _put_together(
        self, words: Int[Tensor, "N"], grams: Int[Tensor, "N C"]
    ) -> Float[Tensor, "N D"]:
        """The mean of a word and its n-grams; 0 is neither."""
        buckets = torch.where(grams == 0, 0, grams.long() + self.words)
        mean: Tensor = self.parts(torch.cat((words[:, None], buckets), dim=1))
        return mean

    def vectors(self, batch: Batch) -> Float[Tensor, "N D"]:
        """The vectors of `words` [N] with their `grams` [N,C]; word 0 is one never seen."""
        return self._put_together(batch["words"], batch["grams"])
