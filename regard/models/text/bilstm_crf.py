"""BiLSTM-CRF: a bidirectional tagger of sentences as a whole (Huang et al. 2015).

A word is an embedding beside features of its characters, by a CNN (Ma and Hovy 2016) or an LSTM
(Lample et al. 2016); a bidirectional LSTM reads the sentence; a linear layer scores each tag at
each word; a conditional random field over the tags finds the best path (outputs/crf.py). With
`crf = false` each word is tagged by itself.

A trained run may give features of each word too (`source`), beside the embedding, as with ELMo
(Peters et al. 2018), or after the first recurrent layer, as in TagLM (Peters et al. 2017).

>>> config = BiLSTMCRF.Config(width=8, hidden=6, characters="none")
>>> model = BiLSTMCRF(config, vocabulary=9, classes=5)
>>> output = model({"tokens": torch.tensor([[4, 5]]), "lengths": torch.tensor([2])})
>>> output.best().shape
torch.Size([1, 2])
"""

from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import nn

from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.bidirectional import Bidirectional
from regard.layers.crf import CRF
from regard.layers.word_features import SourceFeatures, WordFeatures, WordFeaturesConfig
from regard.outputs.tags import IndependentTags, Tags


class BiLSTMCRF(nn.Module):
    """Tags of the words of a sentence."""

    class Config(WordFeaturesConfig):
        """What a recipe may choose."""

        width: PositiveInt = 100
        hidden: PositiveInt = 100
        """Of each direction."""
        layers: PositiveInt = 1
        characters: Literal["none", "cnn", "lstm"] = "cnn"
        crf: bool = True
        """Use a conditional random field."""
        source_at: Literal["words", "between"] = "words"
        """Where features of the source enter: beside words, or after the first recurrent layer."""
        dropout: float = Field(0.5, ge=0, lt=1)
        """On words, between layers and on states."""

    def __init__(
        self, config: Config, vocabulary: int, classes: int, *, source: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.config = config
        between = source is not None and config.source_at == "between"
        self.words = WordFeatures.of(
            config, vocabulary, None if between else source, config.dropout
        )
        self.first = Bidirectional("lstm", self.words.width, config.hidden)
        self.source: SourceFeatures | None = None
        if between and source is not None:
            self.source = SourceFeatures(source, tune=config.tune, mix=config.mix)
        joined = self.first.width + (0 if self.source is None else self.source.width)
        more = max(1 if between else 0, config.layers - 1)
        self.second = (
            Bidirectional("lstm", joined, config.hidden, layers=more, dropout=config.dropout)
            if more
            else None
        )
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(self.first.width, classes)
        self.chain = CRF(classes) if config.crf else None

    def forward(self, batch: Batch, carry: Carry | None = None) -> Tags:
        """The tag of each word."""
        lengths = batch["lengths"]
        states = self.drop(self.first(self.words(batch), lengths))  # [B,T,D]
        if self.source is not None:
            states = torch.cat((states, self.source(batch)), dim=2)
        if self.second is not None:
            states = self.drop(self.second(states, lengths))
        scores = self.output(states)  # [B,T,C]
        return (
            IndependentTags(scores, lengths) if self.chain is None else self.chain(scores, lengths)
        )
