"""A recurrent language model: Elman, GRU or LSTM (Mikolov et al. 2010; Zaremba et al. 2014).

Dropout is on the input of each layer and on the output of the last, never on the recurrence, as in
Zaremba et al.; the state is carried from one batch to the next. With `tied`, the embedding is
the output layer (Press & Wolf 2017).

>>> import torch
>>> model = RNNLM(RNNLM.Config(width=8, layers=1), vocabulary=10)
>>> output = model({"tokens": torch.tensor([[1, 2, 3]])})
>>> output.logits().shape, sorted(output.carry)
(torch.Size([1, 3, 10]), ['cell', 'hidden'])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.recurrent import CELLS
from regard.outputs.next_token import SoftmaxOutput


@dataclass(frozen=True)
class RecurrentState:
    """The hidden state of each layer, and the cell state where the cell has one."""

    hidden: Float[Tensor, "L B D"] | None = None
    cell: Float[Tensor, "L B D"] | None = None

    def select(self, rows: Int[Tensor, "N"]) -> "RecurrentState":
        """The state of the chosen batch rows, in that order."""
        return RecurrentState(
            *(None if x is None else x.index_select(1, rows) for x in (self.hidden, self.cell))
        )

    @staticmethod
    def of(carry: Carry | None) -> "RecurrentState":
        """From the carry of the batch before."""
        given = (carry or {}).get("hidden"), (carry or {}).get("cell")
        return RecurrentState(
            *(None if x is None else x.transpose(0, 1).contiguous() for x in given)
        )

    def carry(self) -> Carry:
        """For the next batch, with the batch first, as in every carry."""
        named = {"hidden": self.hidden, "cell": self.cell}
        return {
            name: value.detach().transpose(0, 1)
            for name, value in named.items()
            if value is not None
        }


class RNNLM(nn.Module):
    """Reads tokens one after another and predicts the next."""

    class Config(Config):
        """What a recipe may choose."""

        cell: Literal["elman", "gru", "lstm"] = "lstm"
        """The recurrent cell."""
        width: PositiveInt = 200
        """Of the embedding and of every layer."""
        layers: PositiveInt = 2
        dropout: float = Field(0.0, ge=0, lt=1)
        tied: bool = False
        """Use the embedding as output layer."""
        init_range: float = Field(0.1, gt=0)
        """Embedding and output layer are initialised uniformly between minus this and this."""

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(vocabulary, config.width)
        self.cells = CELLS[config.cell](
            config.width,
            config.width,
            num_layers=config.layers,
            batch_first=True,
            dropout=config.dropout if config.layers > 1 else 0.0,
        )
        self.drop = Dropout(config.dropout)
        self.output = None if config.tied else nn.Linear(config.width, vocabulary, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.uniform_(self.embed.weight, -config.init_range, config.init_range)
        if self.output is not None:
            nn.init.uniform_(self.output.weight, -config.init_range, config.init_range)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each, and the state for the next window."""
        states, state = self.read(batch["tokens"], RecurrentState.of(carry))
        return self.predict(self.drop(states), state.carry())

    def read(
        self, tokens: Int[Tensor, "B T"], state: RecurrentState
    ) -> tuple[Float[Tensor, "B T D"], RecurrentState]:
        """The state after each token."""
        if state.hidden is None:
            given = None
        else:
            given = state.hidden if state.cell is None else (state.hidden, state.cell)
        states, last = self.cells(self.drop(self.embed(tokens)), given)
        both = last if isinstance(last, tuple) else (last, None)
        return states, RecurrentState(*both)

    def predict(self, states: Float[Tensor, "B T D"], carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each state; the carry is passed on."""
        table = self.embed if self.output is None else self.output
        return SoftmaxOutput(states, table.weight, self.bias, carry=carry)

    def start(self, source: Batch) -> RecurrentState:
        """The state after a prompt, all but its last token, which the first step reads."""
        tokens = source["tokens"]
        if tokens.shape[1] == 0:
            raise UserError("a prompt needs at least one token")
        if tokens.shape[1] == 1:
            return RecurrentState()
        return self.read(tokens[:, :-1], RecurrentState())[1]

    def join(self, states: Sequence[RecurrentState]) -> RecurrentState | None:
        """All rows as one batch; None before the first step, when there is nothing to join."""
        hidden = [state.hidden for state in states if state.hidden is not None]
        cells = [state.cell for state in states if state.cell is not None]
        if len(hidden) < len(states):
            return None
        return RecurrentState(torch.cat(hidden, 1), torch.cat(cells, 1) if cells else None)

    def step(
        self, tokens: Int[Tensor, "B"], state: RecurrentState
    ) -> tuple[Float[Tensor, "B V"], RecurrentState]:
        """Logits of the next tokens after these."""
        states, state = self.read(tokens[:, None], state)
        return self.predict(states).logits().squeeze(1), state
