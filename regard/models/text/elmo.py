"""ELMo: a language model in both directions whose layers are features (Peters et al. 2018).

Words are read from their characters (layers/character_cnn.py). One network reads forward and
predicts the next word, one reads backward and predicts the one before; both have the same first
layer and the same output layer. Each is `layers` LSTMs with projections, clipped as in the authors'
code; from the second on, a layer's input is added to its output (`skip`).

Other models use its layers as features, both directions side by side: the words themselves, twice,
and each LSTM (section 3.1), in a mix that they learn (layers/scalar_mix.py). A special token stands
before and after each sentence; the authors' files have one for the beginning and one for the end
(`marks = "two"`), a text read as a stream has one between sentences.

Departures: the output layer is a whole softmax over the frequent words instead of a sampled one,
and the backward direction starts anew in each window of a stream, since it comes from what is not
read yet. The forward one carries its state. As features, every sentence starts anew in both
directions, so that they do not depend on what was read before; `read` can take the states of the
batch before, as the authors' code does.

>>> config = ELMo.Config(width=4, hidden=6, character_width=3, filters=((1, 4), (2, 4)))
>>> model = ELMo(config, vocabulary=10, characters=262)
>>> characters = torch.tensor([[[259, 98, 260], [259, 99, 260]]])
>>> output = model({"characters": characters})
>>> output.forward.logits().shape, output.backward.logits().shape, sorted(output.carry)[:2]
(torch.Size([1, 2, 10]), torch.Size([1, 2, 10]), ['cell.0', 'cell.1'])
>>> model.layers_of({"characters": characters, "lengths": torch.tensor([2])}).shape
torch.Size([3, 1, 2, 8])
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.padding import real_positions
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.bidirectional import mirrored
from regard.layers.character_cnn import CharacterCNN
from regard.layers.character_words import CHARACTERS
from regard.layers.initialise import initialise_from
from regard.layers.projected_lstm import ProjectedLSTM, ProjectedState
from regard.outputs.both_directions import BothDirections
from regard.outputs.next_token import SoftmaxOutput

BEGIN, END = (259, 257, 260), (259, 258, 260)
"""The spelling of the special tokens around a sentence, in numbers of data/text/characters.py."""


class ELMo(nn.Module):
    """Two language models that share both ends."""

    class Config(Config):
        """What a recipe may choose."""

        width: PositiveInt = 128
        """Of the words and of each direction's states."""
        hidden: PositiveInt = 512
        """Of the cells of the LSTMs."""
        layers: PositiveInt = 2
        source: str | None = None
        """A run of such a model to initialise from; sizes must be the same."""
        character_width: PositiveInt = 16
        filters: tuple[tuple[PositiveInt, PositiveInt], ...] = (
            (1, 32),
            (2, 32),
            (3, 64),
            (4, 128),
            (5, 128),
        )
        """The width of each filter over characters, and how many there are of that width."""
        highways: NonNegativeInt = 1
        activation: Literal["relu", "tanh"] = "relu"
        cell_clip: PositiveFloat | None = 3.0
        clip: PositiveFloat | None = 3.0
        """The largest absolute value of a cell and of a state."""
        skip: bool = True
        """From the second layer on, add the input of a layer to its output."""
        marks: Literal["one", "two"] = "one"
        """One special token before and after a sentence, or one for each side."""
        dropout: float = Field(0.1, ge=0, lt=1)
        """On the input of each layer and of the output layer."""

    def __init__(
        self, config: Config, vocabulary: int, characters: int, *, source: nn.Module | None = None
    ) -> None:
        super().__init__()
        if characters != CHARACTERS:
            raise UserError(f"ELMo reads {CHARACTERS} characters, not {characters}")
        self.config = config
        self.words = CharacterCNN(
            config.width,
            filters=config.filters,
            character_width=config.character_width,
            highways=config.highways,
            activation=config.activation,
        )
        self.ahead = nn.ModuleList(self._cells() for _ in range(config.layers))
        self.behind = nn.ModuleList(self._cells() for _ in range(config.layers))
        self.drop = Dropout(config.dropout)
        self.output = nn.Linear(config.width, vocabulary)
        nn.init.normal_(self.output.weight, std=config.width**-0.5)
        nn.init.zeros_(self.output.bias)
        if source is not None:
            initialise_from(self, source)

    def _cells(self) -> ProjectedLSTM:
        c = self.config
        return ProjectedLSTM(c.width, c.hidden, c.width, cell_clip=c.cell_clip, clip=c.clip)

    def forward(self, batch: Batch, carry: Carry | None = None) -> BothDirections:
        """The next and the previous word at each position, and the forward state to carry on."""
        x = self.words(batch["characters"])
        forth, after = self.run(self.ahead, x, None, _states_in(carry, len(self.ahead)))
        back, _ = self.run(self.behind, x.flip(1), None, None)
        forward, backward = (
            SoftmaxOutput(self.drop(each), self.output.weight, self.output.bias)
            for each in (forth[-1], back[-1].flip(1))
        )
        return BothDirections(forward, backward, carry=_carried(after))

    def run(
        self,
        cells: nn.ModuleList,
        x: Float[Tensor, "B T D"],
        lengths: Int[Tensor, "B"] | None,
        states: Sequence[ProjectedState] | None,
    ) -> tuple[list[Tensor], list[ProjectedState]]:
        """The output of each layer of one direction, and its last state."""
        outputs: list[Tensor] = []
        after: list[ProjectedState] = []
        for depth, cell in enumerate(cells):
            new, state = cell(self.drop(x), lengths, None if states is None else states[depth])
            x = new + x if self.config.skip and depth else new
            outputs.append(x)
            after.append(state)
        return outputs, after

    def read(
        self,
        characters: Int[Tensor, "B T C"],
        lengths: Int[Tensor, "B"],
        states: tuple[list[ProjectedState], list[ProjectedState]] | None = None,
    ) -> tuple[Float[Tensor, "L B T W"], tuple[list[ProjectedState], list[ProjectedState]]]:
        """Every layer over sentences with their special tokens, and the last states."""
        x = self.words(characters)  # [B,T,D]
        turn = mirrored(lengths, x.shape[1])[..., None].expand_as(x)
        ahead, behind = states or (None, None)
        forth, ended = self.run(self.ahead, x, lengths, ahead)
        back, begun = self.run(self.behind, x.gather(1, turn), lengths, behind)
        back = [each.gather(1, turn) for each in back]
        pairs = [(x, x), *zip(forth, back, strict=True)]
        real = real_positions(lengths, x.shape[1])[..., None]
        layers = torch.stack([torch.cat(pair, dim=2) for pair in pairs])  # [L,B,T,W]
        return torch.where(real, layers, 0.0), (ended, begun)

    @property
    def feature_width(self) -> int:
        """Both directions side by side."""
        return 2 * self.config.width

    @property
    def feature_layers(self) -> int:
        """The words and each LSTM."""
        return 1 + self.config.layers

    def layers_of(self, batch: Batch) -> Float[Tensor, "L B T W"]:
        """Every layer at each word; zero at padding."""
        if "characters" not in batch:
            raise UserError("ELMo reads spellings: set data.characters = true")
        lengths = batch["lengths"]
        layers, _ = self.read(self._marked(batch["characters"], lengths), lengths + 2)
        real = real_positions(lengths, batch["characters"].shape[1])[..., None]
        return torch.where(real, layers[:, :, 1:-1], 0.0)

    def features(self, batch: Batch) -> Float[Tensor, "B T W"]:
        """The top layer at each word; zero at padding."""
        return self.layers_of(batch)[-1]

    def _marked(
        self, characters: Int[Tensor, "B T C"], lengths: Int[Tensor, "B"]
    ) -> Int[Tensor, "B S E"]:
        """Sentences with a special token before the first word and after the last."""
        rows, words, size = characters.shape
        marked = characters.new_zeros(rows, words + 2, max(size, len(END)))
        marked[:, 1:-1, :size] = characters
        begin = BEGIN if self.config.marks == "two" else END
        marked[:, 0, : len(begin)] = characters.new_tensor(begin)
        row = torch.arange(rows, device=characters.device)
        marked[row, lengths + 1] = 0
        marked[row, lengths + 1, : len(END)] = characters.new_tensor(END)
        return marked


def _states_in(carry: Carry | None, layers: int) -> list[ProjectedState] | None:
    """The states of a direction's layers in a carry; None without one."""
    if carry is None:
        return None
    return [
        ProjectedState(carry[f"hidden.{each}"], carry[f"cell.{each}"]) for each in range(layers)
    ]


def _carried(states: Sequence[ProjectedState]) -> Carry:
    """States to carry."""
    hidden = {f"hidden.{place}": each.hidden.detach() for place, each in enumerate(states)}
    cells = {f"cell.{place}": each.cell.detach() for place, each in enumerate(states)}
    return {**hidden, **cells}
