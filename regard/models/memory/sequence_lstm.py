"""A plain LSTM over sequences of bits: what the memory machines are compared with.

Graves et al. 2014 (table 3) use three layers of 256 for copy, repeat copy and associative recall.
"""

from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.core import config as settings
from regard.core.protocols import Batch, Carry
from regard.outputs.bits import Bits


class SequenceLSTM(nn.Module):
    """Layers of LSTM, and a sigmoid for each bit."""

    class Config(settings.Config):
        """What a recipe may choose."""

        hidden: PositiveInt = 256
        """The width of each layer."""
        layers: PositiveInt = 3

    def __init__(self, config: "SequenceLSTM.Config", inputs: int, outputs: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(inputs, config.hidden, config.layers, batch_first=True)
        self.output = nn.Linear(config.hidden, outputs)

    def forward(self, batch: Batch, carry: Carry | None = None) -> Bits:
        """The bits after each step of `inputs` [B,T,C]."""
        states: Float[Tensor, "B T D"] = self.recurrent(batch["inputs"])[0]
        return Bits(self.output(states))
