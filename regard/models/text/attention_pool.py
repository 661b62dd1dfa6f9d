"""BiLSTM with attention pooling: the classifiers of "Attention is not Explanation" (2019).

Jain and Wallace, section 2: h = Enc(x) by a bidirectional LSTM, α = softmax(φ(h)) with φ additive,
vᵀ tanh(W h + b), or scaled dot, vᵀ h / √D; the text is Σ α_t h_t, and a linear layer scores its
classes. With `score = "even"` it is the mean, a baseline for attention (Wiegreffe and Pinter 2019).

Without a cell (`none`) the state of a word depends on that word alone: the MLP that is guided by
the attention weights of another model (Wiegreffe and Pinter 2019, section 3.4).

Departures: the cell may be a GRU, words may have features from their characters or from a trained
run, and dropout is on words and on the pooled vector.

>>> model = AttentionPooling(AttentionPooling.Config(width=8, hidden=6), vocabulary=10, classes=3)
>>> model({"tokens": torch.tensor([[4, 5]]), "lengths": torch.tensor([2])}).logits.shape
torch.Size([1, 3])
"""

from typing import Literal

import torch as torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.attention import padding, weigh_named
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.bidirectional import Bidirectional
from regard.layers.pool import AttentionPool
from regard.layers.word_features import WordFeatures, WordFeaturesConfig
from regard.outputs.classes import Classes


class WordByWord(nn.Module):
    """tanh(W x + b) at every word, independent of its context."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.width = hidden
        self.layer = nn.Linear(width, hidden)

    def forward(
        self, x: Float[Tensor, "B T C"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B T D"]:
        """A state for every word."""
        states: Tensor = self.layer(x).tanh()
        return states


class AttentionPooling(nn.Module):
    """A bidirectional encoder, attention pooling and a linear layer."""

    class Config(WordFeaturesConfig):
        """What a recipe may choose."""

        cell: Literal["elman", "gru", "lstm", "none"] = "lstm"
        """Of the encoder; "none" is one layer at each word by itself."""
        hidden: PositiveInt = 128
        """Of each direction."""
        layers: PositiveInt = 1
        score: Literal["additive", "dot", "even"] = "additive"
        """Of each word; "even" weighs all alike."""
        weigh: Literal["softmax", "sparsemax", "entmax15", "topk", "sigmoid", "smoothed"] = (
            "softmax"
        )
        """How scores become weights: those of WEIGHS that need neither query nor positions."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """On words, between layers and on the pooled vector."""

    def __init__(
        self, config: Config, vocabulary: int, classes: int, *, source: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.words = WordFeatures.of(config, vocabulary, source, config.dropout)
        self.encoder = (
            WordByWord(self.words.width, 2 * config.hidden)
            if config.cell == "none"
            else Bidirectional(
                config.cell,
                self.words.width,
                config.hidden,
                layers=config.layers,
                dropout=config.dropout,
            )
        )
        width = self.encoder.width
        self.pool = AttentionPool(config.score, width, weigh=weigh_named(config.weigh, width))
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(width, classes)

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The classes of each text."""
        lengths = batch["lengths"]
        states = self.encoder(self.words(batch), lengths)  # [B,T,D]
        pooled = self.pool(states, padding(lengths))[:, 0]  # [B,D]
        return Classes(self.output(self.drop(pooled)))
