"""A Transformer encoder with pooling, as a classifier of texts (Vaswani et al. 2017, section 3.1).

Words and their positions go through layers of self-attention, whose states are pooled: by a learned
query (layers/pool.py) or, with `pool = "even"`, by their mean. With `pairs`, each part of a pair
has a segment vector (Devlin et al. 2019). A linear layer joins the features of words from their
characters or from a trained run with their embeddings.

>>> model = TextTransformer(TextTransformer.Config(width=8, heads=2), vocabulary=10, classes=3)
>>> model({"tokens": torch.tensor([[4, 5]]), "lengths": torch.tensor([2])}).logits.shape
torch.Size([1, 3])
"""

from typing import Literal

import torch as torch
from pydantic import Field, PositiveInt, model_validator
from torch import nn

from regard.attention import padding
from regard.core.errors import divides
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.block import EncoderBlock
from regard.layers.embedding import SegmentEmbedding
from regard.layers.pool import AttentionPool
from regard.layers.position import POSITIONS
from regard.layers.word_features import WordFeatures, WordFeaturesConfig
from regard.outputs.classes import Classes


class TextTransformer(nn.Module):
    """Self-attention over words, pooled, and a linear layer."""

    context_limit: int
    """The most tokens it can read; only learned positions bound it, and only then it is there."""

    class Config(WordFeaturesConfig):
        """What a recipe may choose."""

        width: PositiveInt = 128
        """Of the vector of a word, and of every layer."""
        heads: PositiveInt = 4
        layers: PositiveInt = 2
        hidden: PositiveInt = 256
        """Of the feed-forward layers."""
        position: Literal["sinusoidal", "learned"] = "learned"
        context: PositiveInt = 1024
        """The most words there may be, for learned positions."""
        pool: Literal["additive", "dot", "even"] = "additive"
        """How states become one vector; even is their mean."""
        pairs: bool = False
        """Add a segment vector for each part of a pair."""
        dropout: float = Field(0.1, ge=0, lt=1)

        @model_validator(mode="after")
        def _agree(self) -> "TextTransformer.Config":
            divides("width", self.width, "heads", self.heads)
            return self

    def __init__(
        self, config: Config, vocabulary: int, classes: int, *, source: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.words = WordFeatures.of(config, vocabulary, source, 0.0)
        features = self.words.width
        self.together = nn.Linear(features, width) if features > width else nn.Identity()
        self.position = POSITIONS[config.position](width, config.context)
        self.segment = SegmentEmbedding(2, width) if config.pairs else None
        self.drop = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            EncoderBlock(width, config.heads, config.hidden, dropout=config.dropout)
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.pool = AttentionPool(config.pool, width)
        self.output = nn.Linear(width, classes)
        if config.position == "learned":
            self.context_limit = config.context

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The classes of each text."""
        mask = padding(batch["lengths"])
        x = self.position(self.together(self.words(batch)))  # [B,T,D]
        if self.segment is not None:
            x = self.segment(x, batch["parts"].clamp(0, 1))
        x = self.drop(x)
        for layer in self.layers:
            x = layer(x, mask)
        pooled = self.pool(self.norm(x), mask)[:, 0]  # [B,D]
        return Classes(self.output(self.drop(pooled)))
