"""Bernoulli bandits: arms that pay 0 or 1 with chances that nobody knows, as functions of a seed.

A batch has the chances of the arms [B,A], uniform between 0 and 1, what each arm would pay in each
step [B,T,A], and random numbers [B,T] with which a policy draws its actions; so an episode repeats
exactly.

>>> batch = BanditBatches(arms=2, pulls=3, batch=4, steps=1, seed=0).batch(0, 0)
>>> batch["payoffs"].shape, round(thompson(batch, seed=1), 1) <= 3
(torch.Size([4, 3, 2]), True)
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import UserError, positive
from regard.core.protocols import Batch
from regard.data.batch import ShardableBatches, check_index, random_integers, tensor_digest


class BanditBatches(ShardableBatches):
    """Bandits with so many arms, each pulled so many times."""

    def __init__(self, *, arms: int, pulls: int, batch: int, steps: int, seed: int) -> None:
        super().__init__(batch)
        if arms < 2:
            raise UserError(f"a bandit needs two arms to choose from, not arms={arms}")
        self._arms, self._pulls = arms, positive("pulls", pulls)
        self._steps, self._seed = steps, seed

    def __len__(self) -> int:
        return self._steps

    @property
    def digest(self) -> str:
        """The digest of the sizes: all else follows from the seed."""
        return tensor_digest(torch.tensor([self._arms, self._pulls, self.rows, self._seed]))

    def batch(self, epoch: int, index: int) -> Batch:
        """The bandits of one batch."""
        check_index(index, len(self))
        sizes = [self.rows * self._arms, self.rows * self._pulls * self._arms]
        sizes.append(self.rows * self._pulls)
        drawn = random_integers(sum(sizes), self._seed, epoch, index).double() / 2**63
        chances, payoffs, draws = drawn.float().split(sizes)
        chances = chances.view(self.rows, self._arms)
        uniform = payoffs.view(self.rows, self._pulls, self._arms)
        return {
            "chances": chances,
            "payoffs": (uniform < chances[:, None]).float(),
            "draws": draws.view(self.rows, self._pulls),
        }


def observation(
    actions: Int[Tensor, "B"] | None, rewards: Float[Tensor, "B"] | None, like: Tensor, arms: int
) -> Float[Tensor, "B D"]:
    """What a policy sees: the last action, its reward, and whether there was none before."""
    seen = like.new_zeros(len(like), arms + 2)
    if actions is None or rewards is None:
        seen[:, -1] = 1
        return seen
    seen.scatter_(1, actions[:, None], 1.0)
    seen[:, arms] = rewards
    return seen


def rewards_to_go(rewards: Float[Tensor, "B T"], discount: float) -> Float[Tensor, "B T"]:
    """The discounted sum of this and all later rewards.

    >>> rewards_to_go(torch.tensor([[1.0, 0.0, 1.0]]), 0.5).tolist()
    [[1.25, 0.5, 1.0]]
    """
    total, found = torch.zeros_like(rewards[:, 0]), []
    for each in reversed(rewards.unbind(1)):
        total = each + discount * total
        found.append(total)
    return torch.stack(found[::-1], 1)


def thompson(batch: Batch, seed: int) -> float:
    """The mean total reward of Thompson sampling with a uniform prior, to compare with."""
    generator = torch.Generator().manual_seed(seed)
    payoffs = batch["payoffs"].cpu()
    rows, pulls, arms = payoffs.shape
    wins, losses = torch.ones(rows, arms), torch.ones(rows, arms)
    total = 0.0
    for step in range(pulls):
        first, second = (_gamma(each, generator) for each in (wins, losses))
        chosen = (first / (first + second)).argmax(1, keepdim=True)
        paid = payoffs[:, step].gather(1, chosen)
        wins.scatter_add_(1, chosen, paid)
        losses.scatter_add_(1, chosen, 1 - paid)
        total += float(paid.sum())
    return total / rows


def _gamma(shape: Float[Tensor, "B A"], generator: torch.Generator) -> Float[Tensor, "B A"]:
    """Gamma variates of whole shapes: sums of exponential ones."""
    most = int(shape.max())
    draws = torch.rand(*shape.shape, most, generator=generator).clamp_min(1e-12).log().neg()
    return (draws * (torch.arange(most) < shape[..., None])).sum(2)
