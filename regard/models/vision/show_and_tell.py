"""Show and Tell: a sentence from one vector of an image (Vinyals et al. 2015).

The LSTM reads the image once, before the first word, and never again (equations 10 to 12):

    x_-1 = W_i v,  x_t = E y_t,  s_t = LSTM(x_t, s_t-1),  p(y_t+1) = softmax(W_o s_t)

v is the mean of the features over the places of the image, which is what a network that was trained
to classify images has before its classes. All steps after the first are one call of the LSTM.

Departures: the readout is projected to the width of the embedding, so that the two may be tied.

>>> import torch
>>> model = ShowAndTell(ShowAndTell.Config(width=4, hidden=8), vocabulary=10, features=6)
>>> model({"patches": torch.randn(1, 9, 6), "tokens": torch.tensor([[2, 7]])}).logits().shape
torch.Size([1, 2, 10])
"""

from dataclasses import dataclass

import torch as torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.protocols import Batch, Carry
from regard.models.vision.captioner import Captioner, CaptionerConfig
from regard.outputs.next_token import SoftmaxOutput


@dataclass(frozen=True)
class LSTMState:
    """The state and the cell of each row."""

    hidden: Float[Tensor, "B D"]
    cell: Float[Tensor, "B D"]

    def select(self, rows: Int[Tensor, "N"]) -> "LSTMState":
        """The state of the chosen batch rows, in that order."""
        return LSTMState(self.hidden.index_select(0, rows), self.cell.index_select(0, rows))


class ShowAndTell(Captioner):
    """An LSTM that reads an image, then writes."""

    class Config(CaptionerConfig):
        """What a recipe may choose."""

    def __init__(self, config: Config, vocabulary: int, features: int) -> None:
        super().__init__(config, vocabulary)
        self.config = config
        self.image = nn.Linear(features, config.width)
        self.cells = nn.LSTM(config.width, config.hidden, batch_first=True)
        self.join = nn.Linear(config.hidden, config.width)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each token of the caption."""
        states, _ = self._run(self.words(batch["tokens"]), self.start(batch))
        return self.words.predict(self.join(states))

    def start(self, source: Batch) -> LSTMState:
        """The state after the image."""
        read: Tensor = self.image(source["patches"].mean(1))  # [B,C]
        zero = read.new_zeros(len(read), self.config.hidden)
        return self._run(read[:, None], LSTMState(zero, zero))[1]

    def step(
        self, tokens: Int[Tensor, "B"], state: LSTMState
    ) -> tuple[Float[Tensor, "B V"], LSTMState]:
        """Logits of the next tokens after these."""
        states, state = self._run(self.words(tokens[:, None]), state)
        return self.words.predict(self.join(states)).logits().squeeze(1), state

    def _run(
        self, x: Float[Tensor, "B T C"], state: LSTMState
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        states, (hidden, cell) = self.cells(x, (state.hidden[None], state.cell[None]))
        return states, LSTMState(hidden[0], cell[0])
