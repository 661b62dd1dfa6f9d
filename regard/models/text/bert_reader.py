"""BERT that answers by spans of a passage: a score for each first and each last token.

Devlin et al. 2019, section 4.2: the question and the passage are the two parts of one input; the
answer goes from the token that scores best as its first to the one that scores best as its last.

>>> config = BERTReader.Config(encoder=Encoding(width=8, heads=2, layers=1))
>>> model = BERTReader(config, vocabulary=10)
>>> output = model({"tokens": torch.tensor([[2, 4, 3, 5, 3]]), "lengths": torch.tensor([5])})
>>> output.first.shape, output.last.shape
(torch.Size([1, 5]), torch.Size([1, 5]))
"""

import torch as torch
from pydantic import Field
from torch import nn

from regard.core.config import Config as Settings
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.text_encoder import Encoding, initialise_normal
from regard.models.text.bert import encoder_from, initialise_heads, staged
from regard.outputs.spans import Spans


class BERTReader(nn.Module):
    """An encoder and a layer with two scores."""

    class Config(Settings):
        """What a recipe may choose."""

        encoder: Encoding | None = None
        """The settings of the encoder; those of the source, if there is one."""
        source: str | None = None
        """The run folder of a BERT to initialise from."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """Before the scores."""
        encoder_dropout: float | None = Field(None, ge=0, lt=1)
        """In the encoder, on states and on attention weights; that of its settings if not given."""
        recompute: bool = False
        """Compute layers again in the backward pass: less memory for a third more time."""

    def __init__(self, config: Config, vocabulary: int, *, source: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = encoder_from(config.encoder, vocabulary, source, config.encoder_dropout)
        self.encoder.recompute = config.recompute
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(self.encoder.config.width, 2)
        initialise_normal(self.output)
        if source is not None:
            initialise_heads(self, source)

    @property
    def context_limit(self) -> int:
        """The most tokens it can read."""
        return self.encoder.context_limit

    def forward(self, batch: Batch, carry: Carry | None = None) -> Spans:
        """Scores of each token as the first and as the last of an answer."""
        first, last = self.output(self.drop(self.encoder(batch))).unbind(2)  # [B,T]
        return Spans(first, last)

    def stages(self) -> list[list[nn.Parameter]]:
        """The token embedding, each layer, the layer on top."""
        return staged(self, self.encoder)
