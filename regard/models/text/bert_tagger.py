"""BERT as a tagger: a tag for each word, from its first piece (Devlin et al. 2019, section 5.3).

A batch that has words in pieces holds `firsts` [B,W], where each word's first piece stands, and
`words` [B], how many words there are; without them every token is a word.

>>> config = BERTTagger.Config(encoder=Encoding(width=8, heads=2, layers=1))
>>> model = BERTTagger(config, vocabulary=10, classes=5)
>>> batch = {"tokens": torch.tensor([[2, 4, 5, 6, 3]]), "lengths": torch.tensor([5])}
>>> model(batch).best().shape
torch.Size([1, 5])
>>> model({**batch, "firsts": torch.tensor([[1, 3]]), "words": torch.tensor([2])}).best().shape
torch.Size([1, 2])
"""

import torch as torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.text_encoder import Encoding, initialise_normal
from regard.models.text.bert import encoder_from, initialise_heads, staged
from regard.outputs.tags import IndependentTags, Tags


class BERTTagger(nn.Module):
    """An encoder and a layer that scores the tags."""

    class Config(Config):
        """What a recipe may choose."""

        encoder: Encoding | None = None
        """The settings of the encoder; those of the source, if there is one."""
        source: str | None = None
        """The run folder of a BERT to initialise from."""
        dropout: float = Field(0.1, ge=0, lt=1)
        """Before the tags."""
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
        self.encoder.recompute = config.recompute
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(self.encoder.config.width, classes)
        initialise_normal(self.output)
        if source is not None:
            initialise_heads(self, source)

    @property
    def context_limit(self) -> int:
        """The most tokens it can read."""
        return self.encoder.context_limit

    def forward(self, batch: Batch, carry: Carry | None = None) -> Tags:
        """The tag of each word."""
        states = self.encoder(batch)  # [B,T,D]
        if "firsts" not in batch:
            return IndependentTags(self.output(self.drop(states)), batch["lengths"])
        return IndependentTags(self.output(self.drop(_at(states, batch["firsts"]))), batch["words"])

    def stages(self) -> list[list[nn.Parameter]]:
        """The token embedding, each layer, the layer on top."""
        return staged(self, self.encoder)


def _at(states: Float[Tensor, "B T D"], places: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
    """The states at some places of each row; a negative place takes the first state.

    >>> _at(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[2, -1]])).tolist()
    [[[3.0], [1.0]]]
    """
    index = places.clamp_min(0)[..., None].expand(-1, -1, states.shape[2])  # [B,S,D]
    return states.gather(1, index)
