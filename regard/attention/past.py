"""What came before the first query of a call: a value that a decoder carries along."""

from dataclasses import dataclass, replace

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Past:
    """Where the first query stands among the keys, and where the query before it looked.

    `Attend.step` returns the next one. Nothing of it is kept on a module, so two decodings that run
    side by side cannot disturb each other, and a beam search may select rows of it at will.
    """

    first: int = 0
    """The key position at which the first query stands: how many queries came before."""

    weights: Float[Tensor, "B H 1 K"] | None = None
    """The weights of the row before, for mechanisms that look at where they looked."""

    total: Float[Tensor, "B H 1 K"] | None = None
    """The sum of the weights of all rows before: the coverage of See et al. 2017."""

    state: Float[Tensor, "B H 1 M"] | None = None
    """What the weighing itself carries on, such as the positions of Graves' window."""

    def select(self, rows: Tensor) -> "Past":
        """The past of the chosen batch rows, in that order."""

        def pick(value: Tensor | None) -> Tensor | None:
            return None if value is None else value.index_select(0, rows)

        return replace(
            self, weights=pick(self.weights), total=pick(self.total), state=pick(self.state)
        )

    def grown(self, keys: int) -> "Past":
        """The past for so many keys: those that came since weigh nothing in it."""

        def pad(value: Tensor | None) -> Tensor | None:
            missing = 0 if value is None else keys - value.shape[3]
            return value if value is None or not missing else F.pad(value, (0, missing))

        if self.weights is None or self.weights.shape[3] == keys:
            return self
        return replace(self, weights=pad(self.weights), total=pad(self.total))


START = Past()
"""The past of a first step."""
