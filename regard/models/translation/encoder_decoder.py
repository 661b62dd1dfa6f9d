"""Sequence to sequence without attention (Sutskever et al. 2014; Cho et al. 2014).

An encoder reads the source; its last state is the first state of the decoder
(Sutskever et al., section 2):

    s_0 = encoder(x_1 ... x_S),  s_t = decoder(y_t-1, s_t-1),  p(y_t) = softmax(V s_t + b)

This one state, layer by layer, is all that the decoder has of the source: the bottleneck that
attention removes. With `reverse` the encoder reads the source from its end, so that the first words
of both sides are close together, which Sutskever et al. found to matter much (section 3.3).

Departure: in Cho's decoder the final state enters every step; here it is the first state only.

>>> import torch
>>> config = EncoderDecoder.Config(width=8, layers=2)
>>> model = EncoderDecoder(config, vocabulary=10, source_vocabulary=12)
>>> source = {"source": torch.tensor([[5, 6, 3]]), "source_lengths": torch.tensor([3])}
>>> output = model({**source, "tokens": torch.tensor([[2, 7]])})
>>> output.logits().shape
torch.Size([1, 2, 10])
"""

from typing import Literal

from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor

from regard.core.protocols import Batch, Carry
from regard.layers.decoder import Hidden, RecurrentDecoder
from regard.layers.recurrent import RecurrentEncoder
from regard.models.translation.recurrent import RecurrentTranslator, RecurrentTranslatorConfig
from regard.outputs.next_token import SoftmaxOutput


class EncoderDecoder(RecurrentTranslator):
    """Two recurrent stacks, joined by a state."""

    class Config(RecurrentTranslatorConfig):
        """What a recipe may choose."""

        cell: Literal["gru", "lstm"] = "lstm"
        """The recurrent cell."""
        width: PositiveInt = 1000
        """Of the embeddings and of every layer."""
        layers: PositiveInt = 4
        """Of the encoder, and of the decoder."""
        reverse: bool = True
        """Read the source from its end."""

    def __init__(self, config: Config, vocabulary: int, source_vocabulary: int) -> None:
        width, layers, dropout = config.width, config.layers, config.dropout
        encoder = RecurrentEncoder(
            config.cell, width, width, layers=layers, bidirectional=False, dropout=dropout
        )
        super().__init__(
            config, encoder, width, vocabulary, source_vocabulary, reverse=config.reverse
        )
        self.config = config
        self.decoder = RecurrentDecoder(config.cell, width, width, layers=layers, dropout=dropout)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each token of the target; the decoder is one fused call."""
        states, _ = self.decoder(self.words(batch["tokens"]), self.start(batch))
        return self.words.predict(states)

    def start(self, source: Batch) -> Hidden:
        """The last state of the encoder."""
        return Hidden.of(self.reader(source["source"], source["source_lengths"]))

    def step(self, tokens: Int[Tensor, "B"], state: Hidden) -> tuple[Float[Tensor, "B V"], Hidden]:
        """Logits of the next tokens after these."""
        states, state = self.decoder(self.words(tokens[:, None]), state)
        return self.words.predict(states).logits().squeeze(1), state
