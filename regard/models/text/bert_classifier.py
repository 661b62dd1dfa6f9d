"""BERT as a classifier of texts and pairs, from the first state (Devlin et al. 2019, section 4.1).

A layer over that state, and one over it that scores the classes. BERT's first layer is the pooler
of its pre-training, with tanh; RoBERTa's is a new one, with tanh; DistilBERT's is a new one, with
relu. Departure: RoBERTa drops some of the state before the first layer too.

>>> config = BERTClassifier.Config(encoder=Encoding(width=8, heads=2, layers=1))
>>> model = BERTClassifier(config, vocabulary=10, classes=3)
>>> model({"tokens": torch.tensor([[2, 4, 3]]), "lengths": torch.tensor([3])}).logits.shape
torch.Size([1, 3])
"""

from typing import Literal

import torch as torch
from pydantic import Field
from torch import nn

from regard.core.config import Config
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.masked_words import Pooler
from regard.layers.text_encoder import Encoding, TextEncoder, initialise_normal
from regard.models.text.bert import encoder_from, initialise_heads, staged
from regard.outputs.classes import Classes


class BERTClassifier(nn.Module):
    """An encoder and two layers over its first state."""

    class Config(Config):
        """What a recipe may choose."""

        encoder: Encoding | None = None
        """The settings of the encoder; those of the source, if there is one."""
        source: str | None = None
        """The run folder of a BERT to initialise from."""
        fresh: bool = False
        """Take its settings and tokens with new weights: a baseline without pre-training."""
        activation: Literal["tanh", "relu"] = "tanh"
        """Of the layer over the first state."""
        dropout: float = Field(0.1, ge=0, lt=1)
        """Before the classes."""
        encoder_dropout: float | None = Field(None, ge=0, lt=1)
        """In the encoder, on states and on attention weights; that of its settings if not given."""
        recompute: bool = False
        """Compute layers again in the backward pass: less memory for a third more time."""

    def __init__(
        self, config: Config, vocabulary: int, classes: int, *, source: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder = encoder_from(config.encoder, vocabulary, source, config.encoder_dropout)
        if config.fresh:
            self.encoder = TextEncoder(self.encoder.config, vocabulary)
        self.encoder.recompute = config.recompute
        width = self.encoder.config.width
        self.pooler = Pooler(width, config.activation)
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(width, classes)
        for part in (self.pooler, self.output):
            initialise_normal(part)
        if source is not None and not config.fresh:
            initialise_heads(self, source)

    @property
    def context_limit(self) -> int:
        """The most tokens it can read."""
        return self.encoder.context_limit

    def forward(self, batch: Batch, carry: Carry | None = None) -> Classes:
        """The classes of each text."""
        return Classes(self.output(self.drop(self.pooler(self.encoder(batch)))))

    def stages(self) -> list[list[nn.Parameter]]:
        """The token embedding, each layer, the layers on top."""
        return staged(self, self.encoder)
