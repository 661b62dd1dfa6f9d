"""The vector of each word: an embedding, its spelling, and the features of a trained run.

    [table(word); characters(spelling); source.features(batch)]

Any part may be absent but the first. A batch holds, besides `tokens` [B,T] and `lengths` [B],
`characters` [B,T,C] where spellings are read, and `source_tokens` [B,T], the same words in the
vocabulary of the source run, where there is one. A source is any module with `feature_width` and
`features(batch) -> [B,T,W]`; it is frozen unless `tune` is set. Where it has several
layers, `layers_of(batch) -> [L,B,T,W]`, a mix of them is learnt (layers/scalar_mix.py), unless
only the top layer is chosen.

>>> words = WordFeatures(10, 4, characters=SpellingCNN(3, 2))
>>> batch = {"tokens": torch.ones(1, 2).long(), "characters": torch.ones(1, 2, 5).long()}
>>> words.width, words(batch).shape
(7, torch.Size([1, 2, 7]))
"""

from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.errors import UserError, fraction, positive
from regard.core.protocols import Batch
from regard.kernels.dropout import Dropout
from regard.layers.character_words import CharacterEncoder, character_encoder
from regard.layers.character_words import SpellingCNN as SpellingCNN
from regard.layers.scalar_mix import ScalarMix


@runtime_checkable
class Featured(Protocol):
    """A trained model with a feature vector for every word of a batch."""

    @property
    def feature_width(self) -> int:
        """The width of a feature vector."""
        ...

    def features(self, batch: Batch) -> Float[Tensor, "B T W"]:
        """A vector for each word; zero at padding."""
        ...


@runtime_checkable
class PartFeatured(Protocol):
    """A trained model with a part that gives features: a translator's encoder."""

    @property
    def feature_source(self) -> nn.Module:
        """That part; the rest is not kept."""
        ...


@runtime_checkable
class Layered(Protocol):
    """A source of features with several layers; `features` is the top one."""

    @property
    def feature_layers(self) -> int:
        """How many there are."""
        ...

    def layers_of(self, batch: Batch) -> Float[Tensor, "L B T W"]:
        """All of them; zero at padding."""
        ...


_Mix = Literal["learned", "normed", "top"]
"""What is taken of a source with several layers: a mix that is learnt, of layers as they are or
normalised, or the top one."""


class WordFeaturesConfig(Config):
    """What a recipe may choose of words: the part that the configs of models over words share."""

    width: PositiveInt = 300
    """Of the vector of a word."""
    characters: Literal["none", "cnn", "lstm"] = "none"
    """How spellings are read, beside the table of words; needs data.characters."""
    spelling_width: PositiveInt = 30
    """The width of the vector made of the characters of a word."""
    character_width: PositiveInt = 30
    """Of the vector of a character."""
    source: str | None = None
    """A run folder whose model gives features for each word."""
    tune: bool = False
    """Train the source too."""
    mix: _Mix = "learned"
    hide: float = Field(0.0, ge=0, lt=1)
    """Share of words that are unknown in training, but for their characters and the source."""
    init_range: float = Field(0.1, gt=0)
    """The table of words starts uniform between minus this and this."""


UNKNOWN_WORD = 1
"""Of unknown words, in every vocabulary of words (SPECIALS of data/text/pipeline.py)."""


class WordFeatures(nn.Module):
    """The first layer of classifiers and taggers, with dropout on its output.

    The table starts uniform between -`init_range` and `init_range`; the vector of padding, token 0,
    stays zero. In training the share `hide` of words is replaced by the unknown word, so that its
    vector is learnt and the characters of a word are used.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        characters: CharacterEncoder | None = None,
        source: nn.Module | None = None,
        tune: bool = False,
        mix: _Mix = "learned",
        dropout: float = 0.0,
        hide: float = 0.0,
        init_range: float = 0.1,
    ) -> None:
        super().__init__()
        self.hide = fraction("hide", hide)
        self.table = nn.Embedding(
            positive("vocabulary", vocabulary), positive("width", width), padding_idx=0
        )
        nn.init.uniform_(self.table.weight, -init_range, init_range)
        nn.init.zeros_(self.table.weight.data[0])
        self.characters = characters
        self.source = None if source is None else SourceFeatures(source, tune=tune, mix=mix)
        self.drop = Dropout(dropout)
        self.width = (
            width
            + (0 if characters is None else characters.width)
            + (0 if self.source is None else self.source.width)
        )
        """Of all parts together."""

    @classmethod
    def of(
        cls, config: WordFeaturesConfig, vocabulary: int, source: nn.Module | None, dropout: float
    ) -> "WordFeatures":
        """As a config has it."""
        return cls(
            vocabulary,
            config.width,
            characters=character_encoder(
                config.characters, config.spelling_width, config.character_width, dropout
            ),
            source=source,
            tune=config.tune,
            mix=config.mix,
            dropout=dropout,
            hide=config.hide,
            init_range=config.init_range,
        )

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """A vector for each word."""
        tokens = batch["tokens"]
        if self.training and self.hide:
            hidden = torch.rand(tokens.shape, device=tokens.device) < self.hide
            tokens = torch.where(hidden & (tokens != 0), UNKNOWN_WORD, tokens)
        parts: list[Tensor] = [self.table(tokens)]
        if self.characters is not None:
            if "characters" not in batch:
                raise UserError("this model reads spellings: set data.characters = true")
            parts.append(self.characters(batch["characters"]))
        if self.source is not None:
            parts.append(self.source(batch))
        together: Tensor = self.drop(torch.cat(parts, dim=2) if len(parts) > 1 else parts[0])
        return together

    @torch.no_grad()
    def initialise_vectors(self, vectors: Float[Tensor, "V D"], known: Bool[Tensor, "V"]) -> None:
        """Take the vectors that are known as the table's first values; others stay as drawn."""
        if vectors.shape != self.table.weight.shape:
            raise UserError(
                f"the vectors are {vectors.shape[1]} wide and the model's words "
                f"{self.table.weight.shape[1]}: set model.width = {vectors.shape[1]}"
            )
        there = known.clone()
        there[0] = False  # padding stays zero
        self.table.weight[there] = vectors[there].to(self.table.weight)


class SourceFeatures(nn.Module):
    """A trained model whose features are used; frozen, it stays in evaluation mode."""

    def __init__(self, model: nn.Module, *, tune: bool = False, mix: _Mix = "learned") -> None:
        super().__init__()
        whole: object = model
        model = whole.feature_source if isinstance(whole, PartFeatured) else model
        if not isinstance(model, Featured):
            raise UserError(
                f"a {type(model).__name__} cannot be a source of features: it has no features()"
            )
        self.width = model.feature_width
        self.tune = tune
        self.model = model if tune else model.requires_grad_(False)
        offers: object = model
        self.mix: ScalarMix | None = None
        if mix != "top" and isinstance(offers, Layered):
            self.mix = ScalarMix(offers.feature_layers, norm=mix == "normed")

    def train(self, mode: bool = True) -> "SourceFeatures":
        """Frozen models stay as they are."""
        super().train(mode)
        if not self.tune:
            self.model.eval()
        return self

    def forward(self, batch: Batch) -> Float[Tensor, "B T W"]:
        """The features of each word."""
        model: object = self.model
        with torch.set_grad_enabled(self.tune and torch.is_grad_enabled()):
            if self.mix is None:
                assert isinstance(model, Featured)
                return model.features(batch)
            assert isinstance(model, Layered)
            layers = model.layers_of(batch)
        mixed: Tensor = self.mix(layers, batch["lengths"])
        return mixed
