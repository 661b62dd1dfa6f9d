"""HAN: hierarchical attention, over words and over sentences (Yang et al. 2016).

A bidirectional GRU reads the words of each sentence, h_it; a sentence is s_i = Σ α_it h_it, α_it =
softmax(u_itᵀ u_w), u_it = tanh(W h_it + b) (eq. 5 to 7). A second one reads the sentences, and the
document is their weighted mean in the same way (eq. 8 to 10); a linear layer scores its classes.

All sentences of a document attend to their words in one call, each to its own: the weights of the
first level are `[B,1,sentences,words]`. A sentence without words weighs nothing in the second.

Departure: words may also have features from their characters or from a trained run.

>>> model = HAN(HAN.Config(width=8, hidden=6), vocabulary=10, classes=2)
>>> tokens, parts = torch.tensor([[4, 5, 6]]), torch.tensor([[0, 0, 1]])
>>> model({"tokens": tokens, "lengths": torch.tensor([3]), "parts": parts}).logits.shape
torch.Size([1, 2])
"""

from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import nn

from regard.attention import padding, segment
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.bidirectional import Bidirectional
from regard.layers.pool import AttentionPool
from regard.layers.sentences import SentenceCut
from regard.layers.word_features import WordFeatures, WordFeaturesConfig
from regard.outputs.classes import Classes


class HAN(nn.Module):
    """A document as sentences of words."""

    class Config(WordFeaturesConfig):
        """What a recipe may choose."""

        width: PositiveInt = 200
        cell: Literal["elman", "gru", "lstm"] = "gru"
        hidden: PositiveInt = 50
        """Of each direction, on both levels."""
        attention: PositiveInt = 100
        """Of u, which is compared with the context vector."""
        score: Literal["additive", "dot", "even"] = "additive"
        """Of a word or a sentence; "even" weighs all alike."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """On words, on sentences and on the document."""

    def __init__(
        self, config: Config, vocabulary: int, classes: int, *, source: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.words = WordFeatures.of(config, vocabulary, source, config.dropout)
        self.word_encoder = Bidirectional(config.cell, self.words.width, config.hidden)
        width = self.word_encoder.width
        self.word_pool = AttentionPool(
            config.score, width, hidden=config.attention, axes=("sentence", "position")
        )
        self.sentence_encoder = Bidirectional(config.cell, width, config.hidden)
        self.sentence_pool = AttentionPool(
            config.score, width, hidden=config.attention, axes=("text", "sentence")
        )
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(width, classes)

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The classes of each document."""
        parts = batch["parts"]  # [B,T]
        states = SentenceCut.of(parts).read(self.word_encoder, self.words(batch))  # [B,T,D]
        count = parts.amax(1) + 1  # [B]
        numbers = torch.arange(max(1, int(count.max())), device=parts.device)
        owned = segment(numbers.expand(len(parts), len(numbers)), parts)
        sentences = self.word_pool(states, owned, queries=len(numbers))  # [B,S,D]
        there = (parts[:, None] == numbers[:, None]).any(2)  # [B,S]
        read = self.sentence_encoder(self.drop(sentences), count)  # [B,S,D]
        document = self.sentence_pool(read, padding(there))[:, 0]  # [B,D]
        return Classes(self.output(self.drop(document)))
