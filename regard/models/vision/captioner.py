"""What models that describe an image share: its places, and the words of the caption."""

from pydantic import Field, PositiveInt
from torch import nn

from regard.core.config import Config
from regard.layers.embedding import Lexicon


class CaptionerConfig(Config):
    """What a recipe may choose of any captioner."""

    width: PositiveInt = 512
    """Of the embeddings."""
    hidden: PositiveInt = 512
    """Of the LSTM."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """On embeddings and before the output; never on the recurrence."""
    tied: bool = False
    """Use the embedding as output layer."""
    init_range: float = Field(0.1, gt=0)
    """Embeddings and output layer are initialised uniformly between minus this and this."""


class Captioner(nn.Module):
    """The words of a captioner; a model adds how it reads the image."""

    def __init__(self, config: CaptionerConfig, vocabulary: int) -> None:
        super().__init__()
        self.words = Lexicon(
            vocabulary,
            config.width,
            tied=config.tied,
            dropout=config.dropout,
            init_range=config.init_range,
        )
