"""Bandits: a policy learns to explore by a plain policy gradient (Mishra et al. 2018, section 4.2).

The model pulls the arms of a batch of bandits (data/bandits.py) step by step, then its policy is
computed once more over the whole episode, with a gradient. A model has `step(observation, state)`
and returns a `ActionPolicy` (outputs/policy.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Carry, Loss
from regard.data.bandits import BanditBatches, observation, rewards_to_go, thompson
from regard.outputs.policy import ActionPolicy
from regard.tasks.task import OpenTask, Split


@runtime_checkable
class Acts(Protocol):
    """A model that acts step by step."""

    def step(self, observation: Tensor, state: object | None) -> tuple[Tensor, object]:
        """The logits of the next action, and the state after it."""
        ...


class BanditData(Config):
    """The `[data]` table of a recipe: which bandits."""

    arms: PositiveInt = 5
    """The arms of a bandit."""
    pulls: PositiveInt = 10
    """The steps of an episode."""
    discount: float = Field(0.99, gt=0, le=1)
    """Of later rewards."""
    batch: PositiveInt = 128
    """Bandits to a batch."""
    steps: PositiveInt = 100
    """Batches to an epoch."""
    evaluate_episodes: PositiveInt = 2048
    """How many bandits measure a policy."""
    seed: int = 0


@dataclass(frozen=True)
class Bandits(OpenTask):
    """The policy gradient of the total reward."""

    Data = BanditData
    usage = "regard eval {run} --split test"

    data: BanditData

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "Bandits":
        """The task; there are no files."""
        assert isinstance(data, BanditData)
        return cls(data)

    def save(self, folder: Path) -> None:
        """There is nothing to keep but the recipe."""

    @property
    def sizes(self) -> dict[str, int]:
        """How many arms and steps there are."""
        return {"arms": self.data.arms, "steps": self.data.pulls}

    @property
    def splits(self) -> tuple[Split, ...]:
        """Bandits that are never drawn in training."""
        return ("train", "validation", "test")

    def batches(self) -> BanditBatches:
        """Other bandits in every batch."""
        return self._bandits(self.data.steps, self.data.seed)

    def evaluation(self, split: Split) -> BanditBatches:
        """The same bandits each time."""
        steps = -(-self.data.evaluate_episodes // self.data.batch)
        apart = {"train": 0, "validation": 1, "test": 2}[split]
        return self._bandits(steps, self.data.seed + apart)

    def _bandits(self, steps: int, seed: int) -> BanditBatches:
        data = self.data
        return BanditBatches(
            arms=data.arms, pulls=data.pulls, batch=data.batch, steps=steps, seed=seed
        )

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """An episode of every bandit, then the policy gradient over all steps."""
        played = self.play(model, batch)
        total = ActionPolicy.of(model, played).loss(played)
        rewards = played["rewards"]
        best = batch["chances"].amax(1).sum() * self.data.pulls
        counts = {
            "reward": float(rewards.sum()) * self.data.pulls,
            "regret": float(best - rewards.sum()) * self.data.pulls,
        }
        if not model.training:
            reference = thompson(batch, self.data.seed) * len(rewards)
            counts["thompson"] = reference * self.data.pulls
        return Loss(total=total, items=rewards.numel(), counts=counts)

    def play(self, model: nn.Module, batch: Batch) -> Batch:
        """Pull the arms: what was seen, done and paid in each step."""
        if not isinstance(model, Acts):
            raise UserError(
                f"this task needs a model that acts step by step; {type(model).__name__} has no "
                "step(observation, state)"
            )
        seen, done, paid = [], [], []
        now = observation(None, None, batch["draws"], self.data.arms)
        state: object | None = None
        with eval_mode(model), torch.no_grad():
            for step, draw in enumerate(batch["draws"].unbind(1)):
                logits, state = model.step(now, state)
                below = logits.softmax(1).cumsum(1) < draw[:, None]
                actions = below.sum(1).clamp_max(self.data.arms - 1)
                rewards = batch["payoffs"][:, step].gather(1, actions[:, None])[:, 0]
                seen.append(now)
                done.append(actions)
                paid.append(rewards)
                now = observation(actions, rewards, batch["draws"], self.data.arms)
        rewards = torch.stack(paid, 1)
        return {
            "observations": torch.stack(seen, 1),
            "actions": torch.stack(done, 1),
            "rewards": rewards,
            "returns": rewards_to_go(rewards, self.data.discount),
        }

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The mean total reward of an episode, its distance from always pulling the best arm, and
        the total reward of Thompson sampling on the same bandits."""
        names = ("loss", "reward", "regret", "thompson")
        return {name: totals[name] for name in names if name in totals}

    def notes(self) -> list[str]:
        """What rewards can be expected."""
        return [
            f"reward: the mean sum over {self.data.pulls} pulls of {self.data.arms} arms; "
            f"{self.data.pulls / 2:g} by chance"
        ]
