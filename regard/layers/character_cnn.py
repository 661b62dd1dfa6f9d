"""ELMo's words from characters: filters of many widths, highways, a projection.

As in Peters et al. (2018), Kim et al. (2016) and ELMo's code: a word is padded to 50 characters
with a character of its own; each filter keeps its maximum over the word, the padding included.

>>> words = CharacterCNN(8, filters=((1, 4), (2, 4)), character_width=3)
>>> words(torch.tensor([[[259, 98, 260], [0, 0, 0]]])).shape
torch.Size([1, 2, 8])

Highway layers: each number is carried along or transformed, as a gate has it (Srivastava 2015).

    y = g · relu(W x + b) + (1 - g) · x,    g = σ(V x + c)

>>> Highway(6, layers=2)(torch.randn(3, 6)).shape
torch.Size([3, 6])
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import UserError, choose, positive
from regard.layers.character_words import CHARACTERS

_CARRY_AT_FIRST = -2.0
"""What the bias of the gate begins with: most is carried (Srivastava et al. 2015, section 2.2)."""


class Highway(nn.Module):
    """Some of them, one after another."""

    def __init__(self, width: int, layers: int = 1) -> None:
        super().__init__()
        sizes = (positive("width", width), width)
        self.transform = nn.ModuleList(nn.Linear(*sizes) for _ in range(layers))
        self.gate = nn.ModuleList(nn.Linear(*sizes) for _ in range(layers))
        for gate in self.gate:
            assert isinstance(gate, nn.Linear)
            nn.init.constant_(gate.bias, _CARRY_AT_FIRST)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """What is carried and what is transformed."""
        for transform, gate in zip(self.transform, self.gate, strict=True):
            # x + g (t - x) is the equation with one product less.
            x = torch.lerp(x, transform(x).relu(), gate(x).sigmoid())
        return x


_FILL, _LONGEST = CHARACTERS - 1, 50
"""The character that pads a word, and the number of characters of a padded word."""

_ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class CharacterCNN(nn.Module):
    """A vector for each spelling; a position without characters is all padding."""

    def __init__(
        self,
        width: int,
        *,
        filters: Sequence[tuple[int, int]],
        character_width: int = 16,
        highways: int = 1,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        if not filters or max(size for size, _ in filters) > _LONGEST:
            raise UserError(
                f"filters={filters} must be (width, count), at most {_LONGEST} characters wide"
            )
        self.embed = nn.Embedding(
            CHARACTERS, positive("character_width", character_width), padding_idx=0
        )
        self.filters = nn.ModuleList(
            nn.Conv1d(character_width, count, size) for size, count in filters
        )
        self.activation = choose("activation", activation, _ACTIVATIONS)
        found = sum(count for _, count in filters)
        self.highway = Highway(found, highways)
        self.project = nn.Linear(found, positive("width", width))
        self.widest = max(size for size, _ in filters)

    def forward(self, characters: Int[Tensor, "B T C"]) -> Float[Tensor, "B T D"]:
        """A vector for each word; each spelling is read once, however often its word occurs."""
        flat = characters.flatten(0, 1)
        spelled, back = flat.unique(dim=0, return_inverse=True)  # [N,C]
        found: Tensor = self.read(spelled)[back].unflatten(0, characters.shape[:2])
        return found

    def read(self, spelled: Int[Tensor, "N C"]) -> Float[Tensor, "N D"]:
        """The vectors of some spellings."""
        # One window of nothing but filling is as good as many: all of them are alike.
        room = min(_LONGEST, spelled.shape[1] + self.widest)
        spelled = F.pad(spelled[:, :room], (0, max(0, room - spelled.shape[1])))
        x = self.embed(torch.where(spelled == 0, _FILL, spelled)).transpose(1, 2)  # [N,E,C]
        most = [each(x).amax(2) for each in self.filters]
        read: Tensor = self.project(self.highway(self.activation(torch.cat(most, dim=1))))
        return read
