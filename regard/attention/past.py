"""The past: what a step needs of the steps before it, a value that a decoder carries along."""

from dataclasses import dataclass, replace

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Past:
    """The position of the first query among the keys, and the weights of the query before it.

    `Attend.step` returns the next one. No module keeps any of it, so two decodings that run side
    by side cannot disturb each other, and a beam search may select its rows.
    """

    first: int = 0
    """The key position of the first query: the number of queries before it."""

    weights: Float[Tensor, "B H 1 K"] | None = None
    """The weights of the row before, for mechanisms that use them."""

    total: Float[Tensor, "B H 1 K"] | None = None
    """The sum of the weights of all rows before: the coverage of See et al. 2017."""

    state: Float[Tensor, "B H 1 M"] | None = None
    """A state of the weighing, such as the positions of Graves' window."""

    def select(self, rows: Tensor) -> "Past":
        """The past of the chosen batch rows, in that order."""

        def pick(value: Tensor | None) -> Tensor | None:
            return None if value is None else value.index_select(0, rows)

        return replace(
            self, weights=pick(self.weights), total=pick(self.total), state=pick(self.state)
        )

    def pad_to(self, keys: int) -> "Past":
        """The past for this many keys: newer keys have weight zero."""

        def pad(value: Tensor | None) -> Tensor | None:
            missing = 0 if value is None else keys - value.shape[3]
            return value if value is None or not missing else F.pad(value, (0, missing))

        if self.weights is None or self.weights.shape[3] == keys:
            return self
        return replace(self, weights=pad(self.weights), total=pad(self.total))


START = Past()
"""The past of a first step."""
