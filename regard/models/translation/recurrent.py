"""What recurrent translators share: an encoder of the source, and the words of the target."""

from pydantic import Field
from torch import nn

from regard.core.config import Config
from regard.layers.embedding import Lexicon
from regard.layers.recurrent import RecurrentEncoder
from regard.layers.source_encoder import Reader


class RecurrentTranslatorConfig(Config):
    """What a recipe may choose of any recurrent translator."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """On embeddings, between layers and before the output; never on the recurrence."""
    tied: bool = False
    """Use the target embedding as output layer."""
    init_range: float = Field(0.1, gt=0)
    """Embeddings and output layer are initialised uniformly between minus this and this."""


class RecurrentTranslator(nn.Module):
    """Both ends of a recurrent translator; a model adds the decoder between them."""

    def __init__(
        self,
        config: RecurrentTranslatorConfig,
        encoder: RecurrentEncoder,
        width: int,
        vocabulary: int,
        source_vocabulary: int,
        *,
        reverse: bool = False,
    ) -> None:
        super().__init__()
        self.reader = Reader(
            source_vocabulary,
            width,
            encoder,
            dropout=config.dropout,
            init_range=config.init_range,
            reverse=reverse,
        )
        self.words = Lexicon(
            vocabulary,
            width,
            tied=config.tied,
            dropout=config.dropout,
            init_range=config.init_range,
        )

    @property
    def feature_source(self) -> nn.Module:
        """Its encoder, whose states other models may use as features (CoVe, McCann et al. 2017)."""
        return self.reader
