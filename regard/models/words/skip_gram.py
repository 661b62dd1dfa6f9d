"""Skip-gram with negative sampling: a word's vector tells its neighbours (Mikolov et al. 2013).

Every word has a vector as a centre, v, and one as a neighbour, u. For each neighbour o of a centre
c in its window (eq. 4):

    log σ(u_o·v_c) + Σ log σ(-u_k·v_c) over `negatives` words k drawn as noise

Noise is shared by the centres of a row instead of drawn for each pair (Ji et al. 2016, who find
vectors as good), so that the work is done by products of matrices.

>>> import torch
>>> model = SkipGram(SkipGram.Config(width=4), words=9)
>>> batch = {"words": torch.tensor([[5, 6, 7, 8]]), "noise": torch.tensor([[4, 4]])}
>>> model(batch | {"near": torch.ones(1, 2, 4, dtype=torch.bool)}).items
8
"""

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.core.config import Config as Settings
from regard.core.protocols import Batch
from regard.outputs.word_pairs import Contrast, centred, noise_weights, spread_evenly, whole_words


class SkipGram(nn.Module):
    """Two tables of vectors."""

    class Config(Settings):
        """What a recipe may choose."""

        width: PositiveInt = 100
        negatives: PositiveInt = 5
        """For how many noise words each pair pays: k."""

    def __init__(self, config: Config, words: int, buckets: int = 0) -> None:
        super().__init__()
        whole_words(type(self).__name__, buckets)
        self.config = config
        self.centre = nn.Embedding(words, config.width, sparse=True)
        self.around = nn.Embedding(words, config.width, sparse=True)
        spread_evenly(self.centre.weight)
        nn.init.zeros_(self.around.weight)

    def forward(self, batch: Batch) -> Contrast:
        """Every centre of a row beside every word and every noise word of the row."""
        words, near, drawn = batch["words"], batch["near"], batch["noise"]
        beside = self.around(torch.cat((words, drawn), dim=1))  # [B,K,D]
        scores = self.centre(centred(words, near)) @ beside.transpose(1, 2)  # [B,Q,K]
        pairs = near.to(scores.dtype)
        noise = noise_weights(pairs, words, drawn, self.config.negatives)  # [B,Q,C]
        return Contrast(
            scores,
            torch.cat((pairs, torch.zeros_like(noise)), dim=2),
            torch.cat((torch.zeros_like(pairs), noise), dim=2),
        )

    def vectors(self, batch: Batch) -> Float[Tensor, "N D"]:
        """The vectors of `words` [N]."""
        found: Tensor = self.centre(batch["words"])
        return found
