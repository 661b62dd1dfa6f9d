"""Ensemble: several models that write together, by the mean of their probabilities.

>>> class Sure(nn.Module):                     # a model that always writes one token
...     def __init__(self, token): super().__init__(); self.token = token
...     def start(self, source): return EnsembleState(())
...     def step(self, tokens, state):
...         return torch.eye(3)[[self.token] * len(tokens)] * 50, state
>>> both = Ensemble([Sure(0), Sure(2)])
>>> logits, _ = both.step(torch.tensor([1]), both.start({}))
>>> logits.softmax(1).round(decimals=3).tolist()
[[0.5, 0.0, 0.5]]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch as torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.protocols import Batch, Selectable, Stepper


@dataclass(frozen=True)
class EnsembleState:
    """The state of each model."""

    states: tuple[Selectable, ...]

    def select(self, rows: Int[Tensor, "N"]) -> "EnsembleState":
        """The chosen rows of each."""
        return EnsembleState(tuple(each.select(rows) for each in self.states))


class Ensemble(nn.Module):
    """Models of one vocabulary as one Stepper: log of the mean of their probabilities."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        for each in models:
            if not isinstance(each, Stepper):
                raise UserError(f"a {type(each).__name__} cannot write: it has no start and step")
        self.models = nn.ModuleList(models)

    def start(self, source: Batch) -> EnsembleState:
        """The states before the first token."""
        return EnsembleState(tuple(each.start(source) for each in self._steppers()))

    def step(
        self, tokens: Int[Tensor, "B"], state: EnsembleState
    ) -> tuple[Float[Tensor, "B V"], EnsembleState]:
        """Log-probabilities of the next token, which are logits too, and the states after it."""
        steps = [
            each.step(tokens, own) for each, own in zip(self._steppers(), state.states, strict=True)
        ]
        every = torch.stack([logits.float().log_softmax(-1) for logits, _ in steps])  # [M,B,V]
        mean = every.logsumexp(0) - log(len(steps))
        return mean, EnsembleState(tuple(after for _, after in steps))

    def _steppers(self) -> list[Stepper[Selectable]]:
        return [each for each in self.models if isinstance(each, Stepper)]
