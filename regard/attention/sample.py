"""Hard attention that is sampled, with what REINFORCE needs (Xu et al. 2015, section 4.1)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.attend import Attend, Memory, repeat_heads
from regard.attention.mask import Mask
from regard.attention.past import START, Past
from regard.attention.read import gather_chosen
from regard.core.precision import in_float32


@dataclass(frozen=True)
class SampledRead:
    """The value of one sampled key for each query, and the probability of the sample."""

    read: Float[Tensor, "B H Q W"]
    """The value of the chosen key; zeros where a query had nothing to choose from."""
    choice: Int[Tensor, "B H Q"]
    """The chosen key."""
    log_probability: Float[Tensor, "B H Q"]
    """log α of the choice; REINFORCE multiplies it by the detached advantage."""
    entropy: Float[Tensor, "B H Q"]
    """H(α): a small share of it in the reward keeps the choice from settling too soon."""
    past: Past
    """For the next step."""


class Sample(nn.Module):
    """Attend to one key, sampled with the probability of the soft attention."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend

    def remember(self, key: Float[Tensor, "B H K E"], value: Float[Tensor, "B H K W"]) -> Memory:
        """Prepare keys and values."""
        return self.attend.remember(key, value)

    def forward(
        self,
        query: Float[Tensor, "B H Q E"],
        memory: Memory,
        mask: Mask | None = None,
        past: Past = START,
        *,
        generator: torch.Generator | None = None,
    ) -> SampledRead:
        """One sample for every query."""
        weights = self.attend.weights(query, memory, mask, past)  # [B,H,Q,K]
        some = (weights.detach().sum(-1, keepdim=True) > 0).to(weights.dtype)  # [B,H,Q,1]
        chances = weights.detach() + (1 - some)
        samples = torch.multinomial(chances.flatten(0, 2), 1, generator=generator)
        return self._read_choice(query, weights, samples.view(weights.shape[:3]), memory, past)

    def best(
        self,
        query: Float[Tensor, "B H Q E"],
        memory: Memory,
        mask: Mask | None = None,
        past: Past = START,
    ) -> SampledRead:
        """The most probable key for every query, for use after training."""
        weights = self.attend.weights(query, memory, mask, past)
        return self._read_choice(query, weights, weights.argmax(-1), memory, past)

    def _read_choice(
        self, query: Tensor, weights: Tensor, choice: Tensor, memory: Memory, past: Past
    ) -> SampledRead:
        some = weights.detach().sum(-1) > 0  # [B,H,Q]
        past = self.attend.after(query, weights, past)
        weights = in_float32(weights)
        chance = weights.gather(-1, choice.unsqueeze(-1)).squeeze(-1)
        logs = torch.where(weights > 0, weights, 1.0).log()  # 0 log 0 is 0, in the gradient too
        value = repeat_heads(memory.value, query.shape[1])
        return SampledRead(
            read=gather_chosen(value, choice) * some.unsqueeze(-1),
            choice=choice,
            log_probability=torch.where(some, chance, 1.0).log(),
            entropy=-(weights * logs).sum(-1),
            past=past,
        )
