"""The clockwork RNN: one hidden layer in modules, each with its own period (Koutník et al. 2014).

The hidden layer is cut into modules, each with a period T_i. At time t module i is computed anew if
t mod T_i = 0, from the token, from itself and from all slower modules; else it holds its state:

    h_i(t) = tanh(W_i x(t) + Σ U_ij h_j(t-1) over j with T_j ≥ T_i + b_i)

so U is block upper triangular when modules are ordered from fast to slow (section 3).

The first token of a text has t = 0: there every module ticks, and the slowest does not wait a whole
period to hear anything. The clock goes on from window to window.

A module never hears a faster one, and while it holds it hears nothing at all. So each is an Elman
network over its own ticks, whose input is the token and what the slower ones held just before; from
the slowest to the fastest, each runs fused over a whole window, and no step is taken in Python.

Departures: it is used here on embedded tokens with a softmax over words, for which the paper has no
experiment; periods must all differ (two modules of one period are one larger module); each module
has torch's two biases.

>>> import torch
>>> model = ClockworkRNN(ClockworkRNN.Config(width=8, periods=(1, 2)), vocabulary=10)
>>> output = model({"tokens": torch.tensor([[1, 2, 3]])})
>>> output.logits().shape, output.carry["time"].item()
(torch.Size([1, 3, 10]), 3)
"""

from itertools import pairwise

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt, field_validator
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.errors import divides
from regard.core.protocols import Batch, Carry
from regard.layers.carry import Carrying
from regard.layers.embedding import Lexicon
from regard.outputs.next_token import SoftmaxOutput


class ClockworkRNN(Carrying):
    """A recurrent language model some of whose units change rarely, and so remember long."""

    class Config(Config):
        """What a recipe may choose."""

        width: PositiveInt = 200
        """Of the embedding, and of all modules together; each has the same share."""
        periods: tuple[PositiveInt, ...] = (1, 2, 4, 8, 16)
        """How often each module ticks, from the fastest to the slowest."""
        dropout: float = Field(0.0, ge=0, lt=1)
        tied: bool = False
        """Use the embedding as output layer."""
        init_range: float = Field(0.1, gt=0)
        """Embedding and output layer are initialised uniformly between minus this and this."""

        @field_validator("periods")
        @classmethod
        def _increasing(cls, periods: tuple[int, ...]) -> tuple[int, ...]:
            if not periods or any(slow <= fast for fast, slow in pairwise(periods)):
                raise ValueError(
                    f"{list(periods)} must be whole numbers, each above the one before"
                )
            return periods

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.words = Lexicon(
            vocabulary,
            config.width,
            tied=config.tied,
            dropout=config.dropout,
            init_range=config.init_range,
        )
        count = len(config.periods)
        self.size = divides("width", config.width, "modules (one for each period)", count)
        # from the fastest to the slowest, which reads the tokens alone
        self.clocks = nn.ModuleList(
            nn.RNN(config.width + slower * self.size, self.size, batch_first=True)
            for slower in reversed(range(count))
        )

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each; the state and the time are carried."""
        x = self.words(batch["tokens"])
        time = 0 if carry is None else int(carry["time"])
        start = x.new_zeros(len(x), self.config.width) if carry is None else carry["hidden"]
        states = x.new_zeros(len(x), x.shape[1] + 1, 0)  # [B,T,D] of slower modules, none yet
        modules = zip(self.config.periods, self.clocks, start.split(self.size, dim=1), strict=True)
        for period, clock, before in reversed(list(modules)):
            inputs = torch.cat((x, states[:, :-1]), dim=2)  # at each time
            states = torch.cat((_ticked(clock, inputs, before, period, time), states), dim=2)
        carried = {"hidden": states[:, -1].detach(), "time": torch.tensor(time + x.shape[1])}
        return self.words.predict(states[:, 1:], carried)


def _ticked(
    clock: nn.Module,
    inputs: Float[Tensor, "B T C"],
    before: Float[Tensor, "B D"],
    period: int,
    time: int,
) -> Float[Tensor, "B K D"]:
    """The state of a module before the first token, whose time is given, and after each token."""
    first = -time % period
    states = before.unsqueeze(1)  # [B,1,D]
    if first < inputs.shape[1]:
        new, _ = clock(inputs[:, first::period], before.unsqueeze(0).contiguous())
        states = torch.cat((states, new), dim=1)
    tokens = torch.arange(inputs.shape[1] + 1, device=inputs.device)
    ticks = (tokens - first + period - 1).div(period, rounding_mode="floor").clamp_min(0)
    return states.index_select(1, ticks)
