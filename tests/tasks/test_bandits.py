"""Bandits: episodes repeat exactly, a policy sees its past, and a policy gradient learns."""

import pytest
import torch
from torch import nn

from regard.core.errors import UserError
from regard.data.bandits import BanditBatches, thompson
from regard.models.memory.snail_policy import SnailPolicy
from regard.tasks.bandits import BanditData, Bandits


def policy(arms: int = 2, steps: int = 4) -> SnailPolicy:
    torch.manual_seed(0)
    config = SnailPolicy.Config(width=8, filters=4, layout="TA", attention=((8, 4),))
    return SnailPolicy(config, arms=arms, steps=steps)


def test_episodes_depend_on_seed_epoch_and_index_alone() -> None:
    made = [BanditBatches(arms=3, pulls=4, batch=5, steps=2, seed=s) for s in (1, 1, 2)]
    one, same, other = (each.batch(0, 1) for each in made)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["chances"], other["chances"])
    assert not torch.equal(one["chances"], made[0].batch(1, 1)["chances"])
    shares = BanditBatches(arms=2, pulls=500, batch=2, steps=1, seed=0).batch(0, 0)
    torch.testing.assert_close(shares["payoffs"].mean(1), shares["chances"], atol=0.08, rtol=0.0)


def test_a_policy_sees_its_actions_and_rewards() -> None:
    task = Bandits(BanditData(arms=2, pulls=4, batch=8, steps=1))
    batch = task.batches().batch(0, 0)
    played = task.play(policy(), batch)
    assert played["observations"][:, 0].tolist() == [[0, 0, 0, 1]] * 8
    for step in range(1, 4):
        seen = played["observations"][:, step]
        assert torch.equal(seen[:, :2].argmax(1), played["actions"][:, step - 1])
        assert torch.equal(seen[:, 2], played["rewards"][:, step - 1])
    paid = batch["payoffs"].gather(2, played["actions"][..., None])[..., 0]
    assert torch.equal(paid, played["rewards"])


def test_a_policy_gradient_finds_the_arm_that_pays() -> None:
    task = Bandits(BanditData(arms=2, pulls=3, batch=64, steps=30, evaluate_episodes=640))
    model, batches = policy(steps=3), task.batches()
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    rewards = []
    for index in range(30):
        batch = dict(batches.batch(0, index))
        batch["payoffs"] = torch.tensor([1.0, 0.0]).expand(64, 3, 2)  # the first always, only it
        optimiser.zero_grad()
        loss = task.loss(model.train(), batch, None)
        (loss.total / loss.items).backward()
        optimiser.step()
        rewards.append(loss.counts["reward"] / loss.items)
    assert rewards[0] < 2 < 2.8 < rewards[-1] <= 3
    measured = task.loss(model.eval(), task.evaluation("test").batch(0, 0), None)
    means = {name: each / measured.items for name, each in measured.counts.items()}
    assert set(task.metrics({"loss": 0.0, **means})) == {"loss", "reward", "regret", "thompson"}
    assert 0 <= means["reward"] <= 3


def test_thompson_sampling_beats_chance() -> None:
    batch = BanditBatches(arms=5, pulls=50, batch=100, steps=1, seed=3).batch(0, 0)
    assert thompson(batch, seed=1) > 30


def test_what_is_no_bandit_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="a bandit needs two arms"):
        BanditBatches(arms=1, pulls=4, batch=5, steps=2, seed=0)
    task = Bandits(BanditData(arms=2, pulls=2, batch=2, steps=1))
    with pytest.raises(UserError, match="needs a model that acts step by step; Linear has no"):
        task.loss(nn.Linear(2, 2), task.batches().batch(0, 0), None)
