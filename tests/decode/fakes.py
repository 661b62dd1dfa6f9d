"""Models that are as small as a model can be: each shows one thing that a search must respect."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.core.protocols import Batch


@dataclass(frozen=True)
class Read:
    """The tokens that each row has read."""

    tokens: Tensor

    def select(self, rows: Tensor) -> "Read":
        return Read(self.tokens[rows])


@dataclass
class Fixed:
    """Gives the same logits after every token, and notes how many rows were in each step."""

    logits: Sequence[float]
    sizes: list[int] = field(default_factory=list)

    def start(self, source: Batch) -> Read:
        return Read(source["tokens"][:, :-1])

    def step(self, tokens: Tensor, state: Read) -> tuple[Tensor, Read]:
        self.sizes.append(len(tokens))
        read = torch.cat((state.tokens, tokens[:, None]), 1)
        return self.after(read), Read(read)

    def after(self, read: Tensor) -> Tensor:
        return torch.tensor([list(self.logits)] * len(read))


@dataclass
class Counting(Fixed):
    """After each number comes the next one, whatever the row."""

    vocabulary: int = 100

    def after(self, read: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(read[:, -1] + 1, self.vocabulary).float()


@dataclass
class Hashing(Fixed):
    """Logits that depend on every token that was read, in its order; as unlike as can be."""

    vocabulary: int = 11

    def after(self, read: Tensor) -> Tensor:
        weights = torch.arange(1, read.shape[1] + 1) ** 2
        seeds = (read * weights).sum(1, keepdim=True)
        return 3 * torch.sin(1.7 * seeds * torch.arange(1, self.vocabulary + 1) + seeds)


class Narrow(Counting):
    """Can read only ten tokens, and says so."""

    context_limit = 10

    def step(self, tokens: Tensor, state: Read) -> tuple[Tensor, Read]:
        assert state.tokens.shape[1] < self.context_limit
        return super().step(tokens, state)
