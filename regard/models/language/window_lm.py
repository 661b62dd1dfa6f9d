"""A feed-forward language model over a fixed window of words (Bengio et al. 2003).

x = [C(w_t-n+1); ...; C(w_t)] and p = softmax(b + W x + U tanh(d + H x)), eq. 1; W x are the direct
connections, which the paper finds one may do without. The window n is the paper's n-1: it counts
the words that are read, the next one not included.

Departures: words before the start of the text are zero vectors, and dropout may fall on x and on
the hidden layer. Both matrices of the sum are one here, over [tanh; x].

>>> import torch
>>> model = WindowLM(WindowLM.Config(window=3, width=8, hidden=16), vocabulary=10)
>>> output = model({"tokens": torch.tensor([[1, 2, 3, 4]])})
>>> output.logits().shape, output.carry["tokens"].tolist()
(torch.Size([1, 4, 10]), [[3, 4]])
"""

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import nn

from regard.core.config import Config
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.carry import Carrying, following, recent
from regard.outputs.next_token import SoftmaxOutput


class WindowLM(Carrying):
    """Predicts the next word from the last `window` words, and from nothing else."""

    class Config(Config):
        """What a recipe may choose."""

        window: PositiveInt = 4
        """How many words it reads."""
        width: PositiveInt = 60
        """Of the embedding of one word."""
        hidden: PositiveInt = 100
        """Units of the hidden layer."""
        direct: bool = False
        """Connect the embeddings to the output directly, besides through the hidden layer."""
        dropout: float = Field(0.0, ge=0, lt=1)
        init_range: float = Field(0.1, gt=0)
        """Embedding and output layer are initialised uniformly between minus this and this."""

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        joined = config.window * config.width
        self.embed = nn.Embedding(vocabulary, config.width)
        self.drop = Dropout(config.dropout)
        self.hidden = nn.Linear(joined, config.hidden)
        self.output = nn.Linear(config.hidden + (joined if config.direct else 0), vocabulary)
        for table in (self.embed, self.output):
            nn.init.uniform_(table.weight, -config.init_range, config.init_range)
        nn.init.zeros_(self.output.bias)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each, and the words that the next window still reads."""
        before, tokens = self.config.window - 1, batch["tokens"]
        known = following(carry, "tokens", tokens)  # [B,K]
        x = self.embed(known)  # [B,K,D]
        x = F.pad(x, (0, 0, before + tokens.shape[1] - known.shape[1], 0))  # [B,K,D]
        x = self.drop(x.unfold(1, before + 1, 1).transpose(2, 3).flatten(2))  # [B,T,W]
        states = self.drop(self.hidden(x).tanh())
        if self.config.direct:
            states = torch.cat((states, x), dim=2)
        carried = {"tokens": recent(known, before)}
        return SoftmaxOutput(states, self.output.weight, self.output.bias, carry=carried)
