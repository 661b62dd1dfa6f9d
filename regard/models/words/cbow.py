"""CBOW with negative sampling: the mean of the neighbours tells the word (Mikolov et al. 2013).

With h the mean of the neighbours' vectors v, as in word2vec's code, for each centre c:

    log σ(u_c·h) + Σ log σ(-u_k·h) over `negatives` words k drawn as noise

Noise is shared by the centres of a row (see skip_gram.py).

>>> import torch
>>> model = CBOW(CBOW.Config(width=4), words=9)
>>> batch = {"words": torch.tensor([[5, 6, 7, 8]]), "noise": torch.tensor([[4, 4]])}
>>> model(batch | {"near": torch.ones(1, 2, 4, dtype=torch.bool)}).items
2
"""

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.core.config import Config as Settings
from regard.core.protocols import Batch
from regard.outputs.word_pairs import Contrast, centred, noise_weights, spread_evenly, whole_words


class CBOW(nn.Module):
    """Two tables of vectors."""

    class Config(Settings):
        """What a recipe may choose."""

        width: PositiveInt = 100
        negatives: PositiveInt = 5
        """For how many noise words each word pays: k."""

    def __init__(self, config: Config, words: int, buckets: int = 0) -> None:
        super().__init__()
        whole_words(type(self).__name__, buckets)
        self.config = config
        self.around = nn.Embedding(words, config.width, sparse=True)
        self.centre = nn.Embedding(words, config.width, sparse=True)
        spread_evenly(self.around.weight)
        nn.init.zeros_(self.centre.weight)

    def forward(self, batch: Batch) -> Contrast:
        """The mean around every centre of a row beside the centre and the noise of the row."""
        words, near, drawn = batch["words"], batch["near"], batch["noise"]
        share = near.to(self.around.weight.dtype)  # [B,Q,K]
        count = share.sum(2, keepdim=True)
        mean = (share / count.clamp_min(1)) @ self.around(words)  # [B,Q,D]
        centres = centred(words, near)  # [B,Q]
        size = centres.shape[1]
        beside = self.centre(torch.cat((centres, drawn), dim=1))  # [B,K,D]
        scores = mean @ beside.transpose(1, 2)  # [B,Q,K]
        pairs = torch.eye(size, dtype=share.dtype, device=share.device) * (count > 0)  # [B,Q,Q]
        noise = noise_weights(pairs, centres, drawn, self.config.negatives)  # [B,Q,C]
        return Contrast(
            scores,
            torch.cat((pairs, torch.zeros_like(noise)), dim=2),
            torch.cat((torch.zeros_like(pairs), noise), dim=2),
        )

    def vectors(self, batch: Batch) -> Float[Tensor, "N D"]:
        """The vectors of `words` [N]."""
        found: Tensor = self.around(batch["words"])
        return found
