"""SNAIL: few-shot classification as a sequence of labelled examples (Mishra et al. 2018).

A convolutional network of four blocks embeds each image (appendix A). An episode is the sequence
(x_1, y_1), ..., (x_n, y_n), (x, -): embedded images beside their labels, and at last an image
without a label, whose class is predicted. Between them are causal convolutions and attention
(layers/snail.py). All queries of an episode share one pass over its examples.

>>> model = SNAIL(SNAIL.Config(filters=4, channels=(4, 4)), ways=3, shots=1, colours=1, size=8)
>>> images, labels = torch.zeros(2, 5, 1, 8, 8), torch.tensor([[0, 1, 2]] * 2)
>>> model({"images": images, "labels": labels}).logits.shape         # two queries for each episode
torch.Size([4, 3])
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry
from regard.layers.snail import SnailBlocks
from regard.outputs.classes import Classes


class ImageEmbedding(nn.Module):
    """Blocks of a 3 x 3 convolution, batch norm, ReLU and a maximum over 2 x 2 pixels."""

    def __init__(self, colours: int, channels: tuple[int, ...], size: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for count in channels:
            layers += [
                nn.Conv2d(colours, count, 3, padding=1, bias=False),
                nn.BatchNorm2d(count),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            ]
            colours, size = count, size // 2
        if size < 1:
            raise UserError(
                f"{len(channels)} blocks halve an image to nothing; give larger images "
                "(data.size) or fewer channels"
            )
        self.blocks = nn.Sequential(*layers)
        self.output = nn.Linear(colours * size * size, width)

    def forward(self, images: Float[Tensor, "N C H W"]) -> Float[Tensor, "N D"]:
        """A vector for each image."""
        embedded: Tensor = self.output(self.blocks(images).flatten(1))
        return embedded


class SNAIL(nn.Module):
    """A convolutional embedding, then causal convolutions and attention over an episode."""

    class Config(Config):
        """What a recipe may choose."""

        channels: tuple[PositiveInt, ...] = (64, 64, 64, 64)
        """Of each block of the embedding."""
        width: PositiveInt = 64
        """Of an embedded image."""
        layout: str = "ATATA"
        """The order of attention (A) and temporal convolution (T) blocks."""
        filters: PositiveInt = 128
        """Of each dense block."""
        attention: tuple[tuple[PositiveInt, PositiveInt], ...] = ((64, 32), (256, 128), (512, 256))
        """The widths of keys and values of each attention block."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """On embedded images."""

    def __init__(self, config: Config, ways: int, shots: int, colours: int, size: int) -> None:
        super().__init__()
        self.config = config
        self.ways = ways
        self.embed = ImageEmbedding(colours, config.channels, size, config.width)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = SnailBlocks(
            config.width + ways,
            length=ways * shots + 1,
            layout=config.layout,
            filters=config.filters,
            attention=config.attention,
        )
        self.output = nn.Linear(self.blocks.width, ways)

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The class of every query: rows are the queries of the first episode, then of the next."""
        images, labels = batch["images"], batch["labels"]  # [B,T,C,H,W], [B,n]
        episodes, length = images.shape[:2]
        examples = labels.shape[1]
        embedded = self.drop(self.embed(images.flatten(0, 1)))  # [B*T,D]
        named = F.one_hot(labels, self.ways).to(embedded)  # [B,n,N]
        named = F.pad(named, (0, 0, 0, length - examples))  # queries have no label
        x = torch.cat([embedded.unflatten(0, (episodes, length)), named], 2)
        features = self.blocks(x, prefix=examples)[:, examples:]  # [B,Q,W]
        return Classes(self.output(features).flatten(0, 1))
