"""A vector for a word from its spelling: by convolution or by a recurrent network.

Characters are `[B,T,C]`: the ids of data/text/characters.py, 0 where there is none. A word that is
not in a vocabulary still has a spelling.

>>> encoder = SpellingCNN(width=6, character_width=4)
>>> encoder(torch.tensor([[[259, 98, 260], [0, 0, 0]]])).shape
torch.Size([1, 2, 6])
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import choose, positive
from regard.kernels.dropout import Dropout
from regard.layers.bidirectional import Bidirectional

CHARACTERS = 262
"""How many numbers spellings have."""


class CharacterEncoder(nn.Module, ABC):
    """Words from characters; the vector of no word is zero."""

    def __init__(self, width: int, character_width: int, dropout: float) -> None:
        super().__init__()
        self.width = positive("width", width)
        self.embed = nn.Embedding(
            CHARACTERS, positive("character_width", character_width), padding_idx=0
        )
        self.drop = Dropout(dropout)
        reach = (3.0 / character_width) ** 0.5
        nn.init.uniform_(self.embed.weight, -reach, reach)
        nn.init.zeros_(self.embed.weight.data[0])

    def forward(self, characters: Int[Tensor, "B T C"]) -> Float[Tensor, "B T D"]:
        """A vector for each word; each spelling is read once, however often its word occurs."""
        # A batch repeats its words: reading the different ones costs about half as much.
        flat = characters.flatten(0, 1)
        spelled, back = flat.unique(dim=0, return_inverse=True)  # [N,C]
        lengths = (spelled != 0).sum(1)  # [N]
        words = self.read(self.drop(self.embed(spelled)), lengths)  # [N,D]
        words = torch.where((lengths > 0)[:, None], words, 0.0)
        found: Tensor = words[back].unflatten(0, characters.shape[:2])
        return found

    @abstractmethod
    def read(self, x: Float[Tensor, "N C E"], lengths: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """The vectors of some spellings."""


class SpellingCNN(CharacterEncoder):
    """Filters over windows of characters, and the maximum of each (Ma and Hovy 2016, 2.1)."""

    def __init__(
        self, width: int = 30, character_width: int = 30, *, window: int = 3, dropout: float = 0.0
    ) -> None:
        super().__init__(width, character_width, dropout)
        self.window = positive("window", window)
        self.filters = nn.Linear(window * character_width, width)

    def read(self, x: Float[Tensor, "N C E"], lengths: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """max over places of W [x_c-1; x_c; x_c+1] + b; windows reach over the ends of a word."""
        side = self.window - 1
        windows = nn.functional.pad(x, (0, 0, side, side)).unfold(1, self.window, 1)  # [N,C,E,3]
        found = self.filters(windows.transpose(2, 3).flatten(2))  # [N,C,D]
        places = torch.arange(found.shape[1], device=x.device)
        beyond = places >= (lengths + side)[:, None]  # [N,C]
        lowest = torch.finfo(found.dtype).min
        most: Tensor = torch.where(beyond[..., None], lowest, found).amax(1)
        return most


class SpellingLSTM(CharacterEncoder):
    """Where an LSTM ends that reads a word from each side (Lample et al. 2016, section 4.1)."""

    def __init__(self, width: int = 50, character_width: int = 25, *, dropout: float = 0.0) -> None:
        super().__init__(width, character_width, dropout)
        self.cells = Bidirectional("lstm", character_width, width // 2)
        self.width = self.cells.width

    def read(self, x: Float[Tensor, "N C E"], lengths: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """The last state of each direction."""
        return self.cells.last(self.cells(x, lengths), lengths)


_SPELLINGS: dict[str, type[SpellingCNN] | type[SpellingLSTM]] = {
    "cnn": SpellingCNN,
    "lstm": SpellingLSTM,
}
"""How words are read from characters, by the name a recipe calls it."""


def character_encoder(
    name: str, width: int, character_width: int, dropout: float
) -> SpellingCNN | SpellingLSTM | None:
    """The encoder of that name; "none" is none."""
    if name == "none":
        return None
    return choose("encoder of characters", name, _SPELLINGS)(
        width, character_width, dropout=dropout
    )
