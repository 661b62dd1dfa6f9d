"""Policy: how the next token is chosen. Greedy and Sampling are the two there are."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.rules import Bound


class Row(NamedTuple):
    """Who writes: the number of the prompt in the call, and of the sample for this prompt."""

    prompt: int
    sample: int = 0


@runtime_checkable
class Chooser(Protocol):
    """Chooses for some rows, token by token."""

    def choose(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        """The next token of each row."""
        ...

    def keep(self, places: Sequence[int]) -> None:
        """Go on with the rows at these places alone."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Rules for the logits, and a way to choose from what they leave."""

    @property
    def rules(self) -> tuple[Bound, ...]:
        """The rules that are on, in the order of the table."""
        ...

    def begin(self, rows: Sequence[Row]) -> Chooser:
        """A chooser for these rows, before their first token."""
        ...
