"""REINFORCE for hard attention: from samples to a loss with their gradient (Xu et al. 2015).

    Σ_t (R_t - b_t) ∇ log α_t(s_t) + λ Σ_t ∇ H(α_t)

R_t is the log-probability of the targets from step t on, since a sample cannot change earlier
words, or that of step t alone, which varies less but leaves out the effect on later steps. b_t is a
baseline of R_t: the paper's moving average, b ← 0.9 b + 0.1 log p(y|s, x), or a linear unit over
the state before the sample. Neither changes the expectation.

Baselines are those of one target token, times the number of tokens to come, so that short and long
sentences can share one; they start at -log V, the value of a uniform prediction.
"""

from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.padding import IGNORE

_DECAY = 0.9
"""The decay of the moving average at each batch."""


class ReinforceConfig(Config):
    """What a recipe may choose of the samples."""

    reward: Literal["future", "step"] = "future"
    """The reward of a sample: all targets from its step on, or that of its step."""
    baseline: Literal["none", "average", "learned"] = "average"
    """The baseline: none, a moving average, or a linear unit over the state."""
    entropy: float = Field(0.01, ge=0)
    """λ: the weight of the entropy of attention."""
    expectation: float = Field(0.5, ge=0, le=1)
    """The share of sentences with soft attention in training."""


@dataclass(frozen=True)
class SampledAttention:
    """The samples of attention over a target, as REINFORCE needs them."""

    states: Float[Tensor, "B T D"]
    """The states before each sample."""
    log_probability: Float[Tensor, "B T"]
    """Of each sample; zero in sentences with soft attention."""
    entropy: Float[Tensor, "B T"]
    """Of each distribution that was sampled from."""


class ReinforcedAttention(nn.Module):
    """The baseline and the loss of samples; a model adds where they come from."""

    average: Tensor
    """The moving average, where that is the baseline: a buffer, saved with the weights."""

    def __init__(self, config: ReinforceConfig, width: int, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.value = nn.Linear(width, 1) if config.baseline == "learned" else None
        if self.value is not None:
            nn.init.constant_(self.value.bias, -log(vocabulary))
        if config.baseline == "average":
            self.register_buffer("average", torch.tensor(-log(vocabulary)))

    def choose_soft_rows(self, sentences: int, device: torch.device) -> Bool[Tensor, "B"]:
        """Which sentences have soft attention this time."""
        return torch.rand(sentences, device=device) < self.config.expectation

    def surrogate(
        self, logs: Float[Tensor, "B T"], samples: SampledAttention, targets: Int[Tensor, "B T"]
    ) -> Float[Tensor, ""]:
        """A loss whose gradient is that of the samples, from the log p of the targets."""
        real, logs = (targets != IGNORE).to(logs.dtype), logs.detach()
        if self.config.reward == "future":
            reward, counted = to_come(logs), to_come(real)
        else:
            reward, counted = logs, real
        expected = self.baseline(samples)  # [B,T], of one token
        advantage = reward - counted * expected.detach()
        loss = -(advantage * samples.log_probability + self.config.entropy * samples.entropy * real)
        if self.value is not None:
            loss = loss + (reward / counted.clamp_min(1) - expected).square() * real
        if self.config.baseline == "average" and bool(real.any()):
            self.average.mul_(_DECAY).add_((1 - _DECAY) * logs.sum() / real.sum())
        return loss.sum()

    def baseline(self, samples: SampledAttention) -> Float[Tensor, "B T"]:
        """b: the expected log-probability of a target token."""
        if self.value is not None:
            # The baseline must not change the states.
            value: Tensor = self.value(samples.states.detach()).squeeze(2)
            return value
        if self.config.baseline == "none":
            return torch.zeros_like(samples.entropy)
        return self.average.to(samples.entropy, copy=True).expand_as(samples.entropy)


def to_come(each: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The sum from each step on.

    >>> to_come(torch.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[6.0, 5.0, 3.0]]
    """
    return each.flip(1).cumsum(1).flip(1)
