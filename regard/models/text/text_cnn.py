"""CNN over words: filters of several widths and max pooling (Kim 2014).

c_i = relu(w · x_i:i+h-1 + b) for windows of h words, ĉ = max c_i, and a linear layer over all ĉ,
with dropout (section 2). Windows reach over both ends of a text, as in Kim's code.

Departures: one channel; the L2 constraint on the last layer is left to weight decay.

>>> model = TextCNN(TextCNN.Config(width=8, filters=5), vocabulary=10, classes=3)
>>> model({"tokens": torch.tensor([[4, 5]]), "lengths": torch.tensor([2])}).logits.shape
torch.Size([1, 3])
"""

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import nn

from regard.core.padding import real_positions
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.word_features import WordFeatures, WordFeaturesConfig
from regard.outputs.classes import Classes


class TextCNN(nn.Module):
    """Convolutions over words, pooled by their maximum."""

    class Config(WordFeaturesConfig):
        """What a recipe may choose."""

        windows: tuple[PositiveInt, ...] = (3, 4, 5)
        """The widths of filters, in words."""
        filters: PositiveInt = 100
        """Of each width."""
        dropout: float = Field(0.5, ge=0, lt=1)
        """On the pooled features."""
        words_dropout: float = Field(0.0, ge=0, lt=1)
        init_range: float = Field(0.25, gt=0)

    def __init__(
        self, config: Config, vocabulary: int, classes: int, *, source: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.words = WordFeatures.of(config, vocabulary, source, config.words_dropout)
        self.filters = nn.ModuleList(
            nn.Conv1d(self.words.width, config.filters, window, padding=window - 1)
            for window in config.windows
        )
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(config.filters * len(config.windows), classes)

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The classes of each text."""
        lengths = batch["lengths"]
        real = real_positions(lengths, batch["tokens"].shape[1])[..., None]  # [B,T,1]
        x = torch.where(real, self.words(batch), 0.0).transpose(1, 2)  # [B,D,T]
        most = []
        for window, filters in zip(self.config.windows, self.filters, strict=True):
            found = F.relu(filters(x))  # [B,C,T]
            # Windows wholly behind a text count as zero, the least value of relu.
            mine = real_positions(lengths + window - 1, found.shape[2])[:, None]
            most.append((found * mine).amax(2))
        return Classes(self.output(self.drop(torch.cat(most, dim=1))))
