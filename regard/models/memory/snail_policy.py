"""SNAIL as a policy: it sees its own actions and their rewards (Mishra et al. 2018, section 4.2).

Each step reads the last action, its reward and whether the episode has just begun; causal
convolutions and attention over all steps so far (layers/snail.py) give the logits of the next
action and the expected reward, the baseline of the policy gradient.

>>> config = SnailPolicy.Config(width=8, filters=4, attention=((8, 4),))
>>> model = SnailPolicy(config, arms=3, steps=5)
>>> batch = {"observations": torch.zeros(2, 5, 5)}
>>> model(batch).logits.shape
torch.Size([2, 5, 3])
"""

import torch as torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config as Settings
from regard.core.protocols import Batch, Carry
from regard.layers.snail import SnailBlocks, SnailState
from regard.outputs.policy import ActionPolicy


class SnailPolicy(nn.Module):
    """A policy over the arms of a bandit."""

    class Config(Settings):
        """What a recipe may choose."""

        width: PositiveInt = 32
        """Of an embedded observation."""
        layout: str = "TTA"
        """The order of attention (A) and temporal convolution (T) blocks."""
        filters: PositiveInt = 16
        """Of each dense block."""
        attention: tuple[tuple[PositiveInt, PositiveInt], ...] = ((16, 16),)
        """The widths of keys and values of each attention block."""
        entropy_weight: float = Field(0.01, ge=0)
        """Of the entropy bonus in the loss."""

    def __init__(self, config: Config, arms: int, steps: int) -> None:
        super().__init__()
        self.config = config
        self.arms = arms
        self.embed = nn.Linear(arms + 2, config.width)
        self.blocks = SnailBlocks(
            config.width,
            length=steps,
            layout=config.layout,
            filters=config.filters,
            attention=config.attention,
        )
        self.output = nn.Linear(self.blocks.width, arms)
        self.value = nn.Linear(self.blocks.width, 1)

    def forward(self, batch: Batch, carry: Carry | None = None) -> ActionPolicy:
        """The policy at every step, given all observations up to it."""
        features = self.blocks(self.embed(batch["observations"]))  # [B,T,W]
        values: Tensor = self.value(features)
        return ActionPolicy(self.output(features), values[..., 0], self.config.entropy_weight)

    def step(
        self, observation: Float[Tensor, "B D"], state: SnailState | None = None
    ) -> tuple[Float[Tensor, "B A"], SnailState]:
        """The logits of the next action, and the state after it."""
        features, state = self.blocks.step(self.embed(observation), state)
        logits: Tensor = self.output(features)
        return logits, state
