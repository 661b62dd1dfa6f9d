"""A stepper without a limit, made of one that can read only so many tokens: its context slides.

When the context is full, its oldest quarter is dropped and the rest is read again, so that a model
with a cache reads every token about four more times, and not once for every new token. Each token
is predicted from at least the last three quarters of the context.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import positive
from regard.core.protocols import Batch, Selectable, Stepper


@dataclass(frozen=True)
class SlidingState:
    """The state of the inner stepper, and the tokens that it has read."""

    inner: Selectable
    read: Int[Tensor, "B T"]

    def select(self, rows: Int[Tensor, "N"]) -> "SlidingState":
        """The state of the chosen rows, in that order."""
        return SlidingState(self.inner.select(rows), self.read.index_select(0, rows))


class SlidingStepper:
    """Steps on and on; the inner stepper reads the latest tokens alone."""

    def __init__(self, stepper: Stepper[Selectable], context: int, drop: int | None = None) -> None:
        self._stepper, self._context = stepper, positive("context", context)
        self._drop = max(1, context // 4) if drop is None else positive("drop", drop)

    def start(self, source: Batch) -> SlidingState:
        """The state after the end of a prompt, all but its last token."""
        tokens = source["tokens"][:, -self._context :]
        return SlidingState(self._stepper.start({**source, "tokens": tokens}), tokens[:, :-1])

    def step(
        self, tokens: Int[Tensor, "B"], state: SlidingState
    ) -> tuple[Float[Tensor, "B V"], SlidingState]:
        """Logits of the next token, and the state after these."""
        read, inner = torch.cat([state.read, tokens[:, None]], dim=1), state.inner
        if read.shape[1] > self._context:
            read = read[:, -max(1, self._context + 1 - self._drop) :]
            inner = self._stepper.start({"tokens": read})
        logits, inner = self._stepper.step(tokens, inner)
        return logits, SlidingState(inner, read)
