"""Hard attention that is sampled, with what REINFORCE needs (Xu et al. 2015, section 4.1)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.attend import Attend, Memory, spread
from regard.attention.mask import Mask
from regard.attention.past import START, Past
from regard.attention.read import gathered
from regard.core.precision import in_float32


@dataclass(frozen=True)
class Drawn:
    """What one look brought home, and how likely that look was."""

    read: Float[Tensor, "B H Q W"]
    """The value of the chosen key; zeros where a query had nothing to choose from."""
    choice: Int[Tensor, "B H Q"]
    """The chosen key."""
    log_probability: Float[Tensor, "B H Q"]
    """log α of the choice: multiply by the (detached) advantage and climb."""
    entropy: Float[Tensor, "B H Q"]
    """H(α): add a little of it to the reward, or the choice settles too soon."""
    past: Past
    """To be given to the next step."""


class Sample(nn.Module):
    """Look at one key, drawn with the probability that the soft attention gives it."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend

    def remember(self, key: Float[Tensor, "B H K E"], value: Float[Tensor, "B H K W"]) -> Memory:
        """Prepare a source to be looked at."""
        return self.attend.remember(key, value)

    def forward(
        self,
        query: Float[Tensor, "B H Q E"],
        memory: Memory,
        mask: Mask | None = None,
        past: Past = START,
        *,
        generator: torch.Generator | None = None,
    ) -> Drawn:
        """One draw for every query."""
        weights = self.attend.weights(query, memory, mask, past)  # [B,H,Q,K]
        some = (weights.detach().sum(-1, keepdim=True) > 0).to(weights.dtype)  # [B,H,Q,1]
        chances = weights.detach() + (1 - some)
        drawn = torch.multinomial(chances.flatten(0, 2), 1, generator=generator)
        return self._drawn(query, weights, drawn.view(weights.shape[:3]), memory, past)

    def best(
        self,
        query: Float[Tensor, "B H Q E"],
        memory: Memory,
        mask: Mask | None = None,
        past: Past = START,
    ) -> Drawn:
        """The likeliest key for every query: what to do once trained."""
        weights = self.attend.weights(query, memory, mask, past)
        return self._drawn(query, weights, weights.argmax(-1), memory, past)

    def _drawn(
        self, query: Tensor, weights: Tensor, choice: Tensor, memory: Memory, past: Past
    ) -> Drawn:
        some = weights.detach().sum(-1) > 0  # [B,H,Q]
        past = self.attend.after(query, weights, past)
        weights = in_float32(weights)
        chance = weights.gather(-1, choice.unsqueeze(-1)).squeeze(-1)
        logs = torch.where(weights > 0, weights, 1.0).log()  # 0 log 0 is 0, in the gradient too
        value = spread(memory.value, query.shape[1])
        return Drawn(
            read=gathered(value, choice) * some.unsqueeze(-1),
            choice=choice,
            log_probability=torch.where(some, chance, 1.0).log(),
            entropy=-(weights * logs).sum(-1),
            past=past,
        )
