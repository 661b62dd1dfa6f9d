"""MemN2N as a language model: several reads of the last words (Sukhbaatar et al. 2015, section 5).

The memory of a position is its last `memory` words, its own the newest, each with its age:
m_i = A x_i + T_A(i), c_i = C x_i + T_C(i). The first query is the constant 0.1 for all positions.
Each hop reads, and weights are tied layer by layer:

    p = softmax(uᵀ m),  o = Σ p_i c_i,  u ← f(H u + o),  next word: softmax(W u)

where f is a ReLU on all but the first `linear` units. The words before a window are its carry. A
record has a head for each position of the text, a row for each hop and a column for each age.

>>> model = MemN2NLM(MemN2NLM.Config(width=8, linear=4, hops=2, memory=3), vocabulary=9)
>>> model({"tokens": torch.tensor([[4, 5, 6, 7]])}).logits().shape
torch.Size([1, 4, 9])
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from regard.attention import Attend, Dot
from regard.attention.mask import Mask
from regard.attention.past import Past
from regard.core.config import Config as Settings
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry
from regard.kernels.dropout import Dropout
from regard.layers.carry import Carrying, following, recent
from regard.outputs.next_token import SoftmaxOutput


class MemN2NLM(Carrying):
    """A language model without recurrence: a few reads of the last words."""

    class Config(Settings):
        """What a recipe may choose."""

        width: PositiveInt = 150
        linear: NonNegativeInt = 75
        """Units without a ReLU between hops."""
        hops: PositiveInt = 6
        """How often the memory is read."""
        memory: PositiveInt = 100
        """How many words are in memory."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """Before the output."""
        init_range: float = Field(0.05, gt=0)
        """The standard deviation of initial weights."""

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        if config.linear > config.width:
            raise UserError(f"linear={config.linear} units of width={config.width}: at most all")
        self.config = config
        self.keys = nn.Embedding(vocabulary, config.width)
        self.values = nn.Embedding(vocabulary, config.width)
        self.key_ages = nn.Parameter(torch.empty(config.memory, config.width))
        self.value_ages = nn.Parameter(torch.empty(config.memory, config.width))
        self.between = nn.Linear(config.width, config.width, bias=False)
        self.output = nn.Linear(config.width, vocabulary, bias=False)
        self.attend = Attend(Dot(config.width), kind="memory")
        self.drop = Dropout(config.dropout)
        for each in self.parameters():
            nn.init.normal_(each, std=config.init_range)

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each of `tokens` [B,T]."""
        tokens = batch["tokens"]
        known = following(carry, "tokens", tokens)  # [B,K]
        real = self._windows(torch.ones_like(known), tokens.shape[1])[..., 0, :] > 0  # [B,T,M]
        memory = self.attend.remember(
            self._remembered(self.keys(known), self.key_ages, tokens),
            self._remembered(self.values(known), self.value_ages, tokens),
        )
        mask = _by_head(real)
        query = torch.full_like(memory.value[:, :, :1], 0.1)  # [B,T,1,D]
        for hop in range(self.config.hops):
            read = self.attend(query, memory, mask, Past(first=hop))
            total = self.between(query) + read
            kept, bent = total.tensor_split([self.config.linear], dim=3)
            query = torch.cat([kept, bent.relu()], 3)
        carried = {"tokens": recent(known, self.config.memory - 1)}
        return SoftmaxOutput(self.drop(query[:, :, 0]), self.output.weight, carry=carried)

    def _windows(self, known: Tensor, positions: int) -> Tensor:
        """The last `memory` entries before and at each of the last positions, newest last."""
        wide = known[..., None] if known.dim() == 2 else known
        padded = F.pad(wide, (0, 0, self.config.memory - 1, 0))
        return padded.unfold(1, self.config.memory, 1)[:, -positions:]  # [B,T,D,M]

    def _remembered(
        self,
        embedded: Float[Tensor, "B K D"],
        ages: Float[Tensor, "M D"],
        tokens: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T M D"]:
        """Each word in memory with its age."""
        return self._windows(embedded, tokens.shape[1]).transpose(2, 3) + ages


def _by_head(real: Bool[Tensor, "B H K"]) -> Mask:
    """A mask whose heads are the positions of the text; the same for all hops."""
    batch, heads, keys = real.shape
    return Mask(
        lambda q, k: real[:, :, None].index_select(3, k[0]),
        "words in memory",
        batch=batch,
        heads=heads,
        keys=keys,
        by_row=False,
    )
