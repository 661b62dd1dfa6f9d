"""AWD-LSTM: an LSTM language model with dropout on everything (Merity et al. 2018).

Recurrent weights, whole words, and states are dropped, each at its own rate (sections 2 and 4); the
embedding is the output layer, so the last LSTM is as wide as the words. It is the language model of
ULMFiT (Howard and Ruder 2018): with `source`, it is initialised from a trained run, with the
vocabulary of that run, and trained further on other text.

Departures: windows have a fixed length, and averaged SGD is the training's (`weights = "average"`);
neither activation regularisation nor its temporal kin.

>>> model = AWDLSTM(AWDLSTM.Config(width=8, hidden=12), vocabulary=10)
>>> output = model({"tokens": torch.tensor([[1, 2, 3]])})
>>> output.logits().shape, sorted(output.carry)[:2]
(torch.Size([1, 3, 10]), ['cell.0', 'cell.1'])
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.padding import real_positions
from regard.core.protocols import Batch, Carry
from regard.layers.carry import Carrying
from regard.layers.initialise import initialise_from
from regard.layers.weight_drop import CellState, LockedDropout, WeightDropLSTM, dropped_words
from regard.outputs.next_token import SoftmaxOutput

_Share = Field(0.0, ge=0, lt=1)


class AWDLSTM(Carrying):
    """Reads tokens one after another and predicts the next."""

    class Config(Config):
        """What a recipe may choose."""

        width: PositiveInt = 400
        """Of the words, and of the last layer."""
        hidden: PositiveInt = 1150
        """Of the layers below the last."""
        layers: PositiveInt = 3
        source: str | None = None
        """A run of such a model to initialise from; sizes must be the same."""
        drop_words: float = _Share
        """Of whole words."""
        drop_inputs: float = _Share
        """Of what the first layer reads."""
        drop_layers: float = _Share
        """Of what passes between layers."""
        drop_weights: float = _Share
        """Of recurrent weights."""
        drop_outputs: float = _Share
        """Of what enters the output layer."""
        init_range: float = Field(0.1, gt=0)
        """Words are initialised uniformly between minus this and this."""

    def __init__(self, config: Config, vocabulary: int, *, source: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(vocabulary, config.width)
        inner = [config.hidden] * (config.layers - 1)
        widths = [config.width, *inner, config.width]
        self.cells = nn.ModuleList(
            WeightDropLSTM(below, above, dropout=config.drop_weights)
            for below, above in pairwise(widths)
        )
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.enter = LockedDropout(config.drop_inputs)
        self.between = LockedDropout(config.drop_layers)
        self.leave = LockedDropout(config.drop_outputs)
        nn.init.uniform_(self.embed.weight, -config.init_range, config.init_range)
        if source is not None:
            initialise_from(self, source)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each, and the state for the next window."""
        layers, states = self.read_layers(batch["tokens"], _cells_in(carry, len(self.cells)))
        top = self.leave(layers[-1])
        return SoftmaxOutput(top, self.embed.weight, self.bias, carry=_cells_out(states))

    def read_layers(
        self, tokens: Int[Tensor, "B T"], states: Sequence[CellState] | None = None
    ) -> tuple[list[Tensor], list[CellState]]:
        """The state of every layer after each token, and the last state of each layer."""
        table = dropped_words(self.embed.weight, self.config.drop_words, self.training)
        x = self.enter(F.embedding(tokens, table))  # [B,T,D]
        outputs: list[Tensor] = []
        after: list[CellState] = []
        for depth, cell in enumerate(self.cells):
            if depth:
                x = self.between(x)
            x, state = cell(x, None if states is None else states[depth])
            outputs.append(x)
            after.append(state)
        return outputs, after

    def stages(self) -> list[list[nn.Parameter]]:
        """Words, which are the output layer too, and each LSTM."""
        return [
            [*self.embed.parameters(), self.bias],
            *(list(cell.parameters()) for cell in self.cells),
        ]

    @property
    def feature_width(self) -> int:
        """Of the last layer."""
        return self.config.width

    def features(self, batch: Batch) -> Float[Tensor, "B T W"]:
        """The last layer at each word, which has read that word and those before it."""
        layers, _ = self.read_layers(batch.get("source_tokens", batch["tokens"]))
        real = real_positions(batch["lengths"], layers[-1].shape[1])[..., None]
        return torch.where(real, layers[-1], 0.0)


def _cells_in(carry: Carry | None, layers: int) -> list[CellState] | None:
    """The states of the layers in a carry; None without one."""
    if carry is None:
        return None
    names = [(f"hidden.{depth}", f"cell.{depth}") for depth in range(layers)]
    return [(carry[h].unsqueeze(0), carry[c].unsqueeze(0)) for h, c in names]


def _cells_out(states: Sequence[CellState]) -> Carry:
    """States to carry, with the batch first."""
    hidden = {f"hidden.{place}": h.detach()[0] for place, (h, _) in enumerate(states)}
    cells = {f"cell.{place}": c.detach()[0] for place, (_, c) in enumerate(states)}
    return {**hidden, **cells}
