"""Language models that carry: all they know of the past is what one window hands to the next.

So a step is a window of one token, and a search may drive them without another line of code. Every
tensor of a carry has the batch first; one without axes is the same for all rows.

>>> import torch
>>> state = Carried({"tokens": torch.tensor([[7], [8]]), "time": torch.tensor(3)})
>>> chosen = state.select(torch.tensor([1, 1])).carry
>>> chosen["tokens"].tolist(), chosen["time"].item()
([[8], [8]], 3)
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry
from regard.outputs.next_token import NextTokens


@dataclass(frozen=True)
class Carried:
    """A carry as the state of a search."""

    carry: Carry | None = None

    def select(self, rows: Int[Tensor, "N"]) -> "Carried":
        """The state of the chosen batch rows, in that order."""
        if self.carry is None:
            return self
        chosen = {
            name: each if each.dim() == 0 else each.index_select(0, rows)
            for name, each in self.carry.items()
        }
        return Carried(chosen)


class Carrying(nn.Module, ABC):
    """A language model whose step is a window of one token."""

    @abstractmethod
    def forward(self, batch: Batch, carry: Carry | None = None) -> NextTokens:
        """The next token after each of `tokens` [B,T], and the carry for the next window."""

    def start(self, source: Batch) -> Carried:
        """The state after a prompt, all but its last token, which the first step reads."""
        tokens = source["tokens"]
        if tokens.shape[1] == 0:
            raise UserError("a prompt needs at least one token")
        return (
            Carried() if tokens.shape[1] == 1 else Carried(self({"tokens": tokens[:, :-1]}).carry)
        )

    def step(
        self, tokens: Int[Tensor, "B"], state: Carried
    ) -> tuple[Float[Tensor, "B V"], Carried]:
        """Logits of the next tokens after these."""
        output = NextTokens.of(self, {"tokens": tokens[:, None]}, state.carry)
        return output.logits().squeeze(1), Carried(output.carry)


def following(
    carry: Carry | None, name: str, new: Shaped[Tensor, "B T ..."]
) -> Shaped[Tensor, "B K ..."]:
    """What was carried under this name, and the new positions after it."""
    return new if carry is None else torch.cat((carry[name], new), dim=1)


def recent(known: Shaped[Tensor, "B K ..."], count: int) -> Shaped[Tensor, "B T ..."]:
    """The last so many positions, or all where there are fewer; detached, to be carried.

    >>> recent(torch.arange(4).view(1, 4), 0).shape
    torch.Size([1, 0])
    """
    return known.detach()[:, max(0, known.shape[1] - count) :]
