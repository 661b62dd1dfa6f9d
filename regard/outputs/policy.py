"""A policy over actions at every step of an episode, and its policy gradient.

The loss is REINFORCE (Williams 1992) with a learned baseline: -Σ_t (R_t - V_t) log π(a_t), with R_t
the reward from step t on, plus the squared error of V_t, minus a bonus for entropy.

>>> output = ActionPolicy(torch.zeros(1, 2, 3), torch.zeros(1, 2))
>>> batch = {"actions": torch.tensor([[0, 1]]), "returns": torch.tensor([[2.0, 1.0]])}
>>> round(output.loss(batch).item(), 4)                     # 3 log 3 + (4 + 1) / 2
5.7958
"""

from dataclasses import dataclass

import torch as torch
from jaxtyping import Float
from torch import Tensor

from regard.core.protocols import Batch
from regard.outputs.output import ModelOutput


@dataclass(frozen=True)
class ActionPolicy(ModelOutput):
    """The logits of actions and the expected reward from each step on."""

    logits: Float[Tensor, "B T A"]
    values: Float[Tensor, "B T"]
    entropy_weight: float = 0.0

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Against `actions` [B,T] and `returns` [B,T], summed."""
        logs = self.logits.log_softmax(2)  # [B,T,A]
        chosen = logs.gather(2, batch["actions"][..., None])[..., 0]
        advantage = batch["returns"] - self.values
        gradient = -(advantage.detach() * chosen).sum() + 0.5 * advantage.square().sum()
        entropy = -(logs.exp() * logs).sum()
        return self.with_auxiliary(gradient - self.entropy_weight * entropy)
