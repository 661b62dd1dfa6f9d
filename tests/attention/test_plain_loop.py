"""Every mechanism trains in a plain torch loop: nothing of regard's own training is needed."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from regard.attention import SCORES, WEIGHS, Attend, Sample, causal, score_named, weigh_named

WIDTH, LENGTH = 8, 6
WITHOUT = {
    "even": ("query", "key"),
    "location": ("key",),
    "mixture_window": ("key",),
    "argmax": ("query", "key"),
}
"""Projections that no gradient reaches, since the mechanism does not depend on them smoothly."""


class Reader(nn.Module):
    """One attention between two projections."""

    def __init__(self, score: str, weigh: str) -> None:
        super().__init__()
        self.attend = Attend(score_named(score, WIDTH), weigh_named(weigh, WIDTH))
        self.query, self.key, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        query, key = self.query(x)[:, None], self.key(x)[:, None]  # [B,1,T,D]
        read: Tensor = self.attend(query, self.attend.remember(key, x[:, None]), causal())
        result: Tensor = self.output(read[:, 0])
        return result


def train(model: nn.Module) -> list[float]:
    """The losses of a few epochs with torch's own tools: predict the mean of all before."""
    x = torch.randn(32, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0))
    y = x.cumsum(1) / torch.arange(1, LENGTH + 1)[:, None]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        total = 0.0
        for inputs, targets in DataLoader(TensorDataset(x, y), batch_size=16):
            loss = F.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total)
    return losses


PAIRS = [*((score, "softmax") for score in SCORES), *(("scaled_dot", weigh) for weigh in WEIGHS)]


@pytest.mark.parametrize(("score", "weigh"), PAIRS)
def test_a_mechanism_learns_with_optimizer_step(score: str, weigh: str) -> None:
    model = Reader(score, weigh)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    losses = train(model)
    assert losses[-1] < 0.9 * losses[0]
    still = {*WITHOUT.get(score, ()), *WITHOUT.get(weigh, ())}
    for name, each in model.named_parameters():
        assert each.isfinite().all(), name
        if name.endswith("weight") and name.split(".")[0] not in still:
            assert not torch.equal(before[name], each), name


def test_sampled_attention_learns_with_optimizer_step() -> None:
    sample, key = Sample(Attend(score_named("bilinear", WIDTH))), torch.eye(WIDTH)[None, None]
    optimizer = torch.optim.SGD(sample.parameters(), lr=2.0)
    query = torch.ones(1, 1, 1, WIDTH).expand(1, 1, 64, WIDTH)
    for _ in range(30):  # reward for the third key, by REINFORCE
        read = sample(query, sample.remember(key, key))
        reward = (read.choice == 2).float()
        optimizer.zero_grad()
        (-(reward - reward.mean()) * read.log_probability).mean().backward()
        optimizer.step()
    chance = sample.attend.weights(query, sample.remember(key, key))[0, 0, 0, 2]
    assert chance > 0.5
