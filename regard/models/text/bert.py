"""BERT: an encoder that learns to predict masked words (Devlin et al. 2019).

The words head maps the state of a masked word to logits of all words: a layer, a normalisation and
the token embedding as output layer. With `next_sentence`, a second head predicts from the state of
the first token whether the second part follows the first. RoBERTa (Liu et al. 2019) and DistilBERT
(Sanh et al. 2019) are the same with other settings.

The words head runs only where it is needed: at one position in seven, in training.

>>> model = BERT(BERT.Config(encoder=Encoding(width=8, heads=2, layers=1)), vocabulary=10)
>>> output = model({"tokens": torch.tensor([[2, 4, 5, 3]])})
>>> output.states.shape, output.words.logits().shape, output.next_sentence
(torch.Size([1, 4, 8]), torch.Size([1, 4, 10]), None)
>>> output.words.at(torch.tensor([[False, True, False, False]])).logits().shape
torch.Size([1, 1, 10])
"""

import torch as torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry
from regard.layers.masked_words import Pooler, WordsHead
from regard.layers.text_encoder import Encoding as Encoding
from regard.layers.text_encoder import TextEncoder, encoder_of, initialise_normal
from regard.outputs.masked_lm import MaskedLMOutput


class BERT(nn.Module):
    """Masked words, and whether one part follows another."""

    class Config(Config):
        """What a recipe may choose."""

        encoder: Encoding | None = None
        """The settings of the encoder; those of the source, if there is one."""
        source: str | None = None
        """A run folder to initialise from."""
        words: bool = True
        """Predict masked words."""
        words_activation: str | None = None
        """Of the layer of the words head; that of the encoder if not given."""
        tied: bool = True
        """Use the token embedding as output layer."""
        pooled: bool = False
        """Add a layer over the state of the first token."""
        next_sentence: bool = False
        """Predict from that layer whether the second part follows the first."""
        recompute: bool = False
        """Compute layers again in the backward pass: less memory for a third more time."""

        @model_validator(mode="after")
        def _agree(self) -> "BERT.Config":
            if self.next_sentence and not self.pooled:
                raise UserError("next_sentence reads the pooled state; set pooled = true")
            return self

    def __init__(self, config: Config, vocabulary: int, *, source: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = encoder_from(config.encoder, vocabulary, source)
        self.encoder.recompute = config.recompute
        c = self.encoder.config
        activation = config.words_activation or c.activation
        self.words = (
            WordsHead(c.width, vocabulary, activation, tied=config.tied, eps=c.norm_eps)
            if config.words
            else None
        )
        self.pooler = Pooler(c.width) if config.pooled else None
        self.next_sentence = nn.Linear(c.width, 2) if config.next_sentence else None
        for part in (self.words, self.pooler, self.next_sentence):
            if part is not None:
                initialise_normal(part)
        if source is not None:
            initialise_heads(self, source)

    @property
    def context_limit(self) -> int:
        """The most tokens it can read."""
        return self.encoder.context_limit

    def forward(self, batch: Batch, carry: Carry | None = None) -> MaskedLMOutput:
        """The states, and what the heads predict from them."""
        states = self.encoder(batch)  # [B,T,D]
        words = None if self.words is None else self.words(states, self.encoder.embed.table.weight)
        pooled = None if self.pooler is None else self.pooler(states)
        follows = None if self.next_sentence is None else self.next_sentence(pooled)
        return MaskedLMOutput(states, words, pooled, follows)

    @property
    def feature_width(self) -> int:
        """How wide a state is."""
        return self.encoder.config.width

    @property
    def feature_layers(self) -> int:
        """The input of the first layer, and the output of each."""
        return self.encoder.config.layers + 1

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The last layer; zero at padding."""
        return self.encoder.layers_of(batch)[-1]

    def layers_of(self, batch: Batch) -> Float[Tensor, "L B T D"]:
        """Every layer; zero at padding."""
        return self.encoder.layers_of(batch)

    def stages(self) -> list[list[nn.Parameter]]:
        """The token embedding, each layer, the heads."""
        return staged(self, self.encoder)


def encoder_from(
    given: Encoding | None,
    vocabulary: int,
    source: nn.Module | None,
    dropout: float | None = None,
) -> TextEncoder:
    """A new encoder, or that of a trained model; with another dropout, if one is given."""
    if source is None:
        encoder = TextEncoder(given or Encoding(), vocabulary)
    else:
        encoder = encoder_of(source, vocabulary, given)
    if dropout is None:
        return encoder
    changed = {"dropout": dropout, "attention_dropout": dropout}
    again = TextEncoder(encoder.config.model_copy(update=changed), vocabulary)
    again.load_state_dict(encoder.state_dict())
    return again


def initialise_heads(model: nn.Module, source: nn.Module) -> None:
    """Copy the heads that the source has too, such as the pooler."""
    theirs = source.state_dict()
    for name, each in model.state_dict().items():
        if name in theirs and theirs[name].shape == each.shape and not name.startswith("encoder."):
            each.copy_(theirs[name])


def staged(model: nn.Module, encoder: TextEncoder) -> list[list[nn.Parameter]]:
    """The parameters of a model with an encoder: those of its layers, and then all others."""
    stages = encoder.stages()
    in_stages = {id(each) for stage in stages for each in stage}
    rest = [each for each in model.parameters() if id(each) not in in_stages]
    return [*stages, rest] if rest else stages
