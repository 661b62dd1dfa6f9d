"""Would the prediction be the same with other attention weights?

Permutation shuffles the weights. The adversary searches for the weights that are farthest from the
model's own and leave the prediction unchanged (Jain and Wallace 2019, section 4.2); all examples of
a batch and all starts of the search are computed together.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.weigh import masked_softmax
from regard.core.protocols import Batch, ProgressCallback, no_progress
from regard.explain.audited_model import AuditedModel
from regard.explain.importance import total_variation

_START_STD = 3.0
"""The standard deviation of the logits at the start of a search, as in the code of the paper."""


@torch.no_grad()
def permutation_change(
    model: AuditedModel, batch: Batch, *, times: int = 100, seed: int = 0
) -> Float[Tensor, "B"]:
    """The median change of the prediction over permutations of the judged weights."""
    own, positions, groups = model.predict(batch), model.positions(batch), model.groups(batch)
    generator = torch.Generator().manual_seed(seed)
    changes = []
    with model.reuse(batch):
        for _ in range(times):
            keys = groups + torch.rand(positions.shape, generator=generator).to(groups.device)
            weights = permute_weights(own.weights, positions, keys)
            other = model.predict(batch, weights=weights).probabilities
            changes.append(total_variation(own.probabilities, other))
    return torch.stack(changes).median(0).values


def permute_weights(weights: Tensor, positions: Tensor, keys: Tensor) -> Tensor:
    """The judged weights of each row in the order of their keys, at the judged positions."""
    first = keys.to(weights.device).masked_fill(~positions, torch.inf).argsort(1)
    places = (~positions).to(torch.uint8).argsort(dim=1, stable=True)  # judged ones, in order
    return weights.scatter(1, places, weights.gather(1, first))


@torch.no_grad()
def uniform_weights(model: AuditedModel, batch: Batch) -> Float[Tensor, "B T"]:
    """Equal weights for the judged positions of a group, with the same sum as before."""
    own = model.predict(batch).weights
    return WeightConstraint.of(model, batch, own).to_weights(torch.zeros_like(own))


@dataclass(frozen=True)
class WeightConstraint:
    """What other weights must share with the model's own: the sum of each group of positions, and
    the weights of positions that are not judged."""

    members: Bool[Tensor, "B G T"]
    """The judged positions of each group."""
    sums: Float[Tensor, "B G"]
    rest: Float[Tensor, "B T"]
    """The weights of positions that are not judged; zero at the others."""

    @staticmethod
    def of(model: AuditedModel, batch: Batch, weights: Float[Tensor, "B T"]) -> "WeightConstraint":
        """The constraint that these weights fulfil."""
        positions, groups = model.positions(batch), model.groups(batch)
        numbers = torch.arange(int(groups.max()) + 1, device=groups.device)
        members = (groups[:, None] == numbers[:, None]) & positions[:, None]  # [B,G,T]
        sums = (weights[:, None] * members).sum(2)
        return WeightConstraint(members, sums, weights.masked_fill(positions, 0.0))

    def to_weights(self, logits: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Weights from logits: a softmax in each group, times its sum."""
        shares = masked_softmax(logits[:, None].expand(self.members.shape), self.members)  # [B,G,T]
        return (shares * self.sums[:, :, None]).sum(1) + self.rest

    def repeat(self, times: int) -> "WeightConstraint":
        """Each row several times."""
        return WeightConstraint(
            *(each.repeat_interleave(times, 0) for each in (self.members, self.sums, self.rest))
        )


@dataclass(frozen=True)
class Counterfactual:
    """The farthest weights for each example that leave its prediction unchanged."""

    weights: Float[Tensor, "B T"]
    divergence: Float[Tensor, "B"]
    """Jensen-Shannon divergence from the model's own weights in nats, at most ln 2. Zero where no
    other weights leave the prediction unchanged."""
    change: Float[Tensor, "B"]
    """Of the prediction."""


def find_adversary(
    model: AuditedModel,
    batch: Batch,
    *,
    epsilon: float = 0.01,
    starts: int = 10,
    steps: int = 500,
    rate: float = 0.01,
    seed: int = 0,
    progress: ProgressCallback = no_progress,
) -> Counterfactual:
    """Adam on the logits of weights: away from the model's own, with a change within epsilon."""
    with torch.no_grad():
        own = model.predict(batch)
    constraint = WeightConstraint.of(model, batch, own.weights).repeat(starts)
    many = {name: value.repeat_interleave(starts, 0) for name, value in batch.items()}
    probabilities = own.probabilities.repeat_interleave(starts, 0)  # [B·S,C]
    own_weights = own.weights.repeat_interleave(starts, 0)  # [B·S,T]
    noise = torch.randn(own_weights.shape, generator=torch.Generator().manual_seed(seed))
    logits = (_START_STD * noise).to(own_weights).requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=rate, amsgrad=True)
    best = _Farthest(own_weights)
    with model.reuse(many):
        for step in range(steps):
            with torch.enable_grad():
                weights = constraint.to_weights(logits)
                other = model.predict(many, weights=weights).probabilities
                change = total_variation(probabilities, other)
                divergence = jensen_shannon(weights, own_weights)
                loss = (-divergence + 500 * (change - epsilon).relu()).sum()
                (logits.grad,) = torch.autograd.grad(loss, logits)
            best.update(weights, divergence, change, epsilon)
            optimiser.step()
            if step % 100 == 99:
                progress(f"adversary, step {step + 1} of {steps}")
    return best.of_each_example(len(own.weights), starts)


class _Farthest:
    """The farthest weights so far, of every start."""

    def __init__(self, own: Tensor) -> None:
        self.weights = own.clone()
        self.divergence = torch.zeros(len(own), dtype=own.dtype, device=own.device)
        self.change = torch.zeros_like(self.divergence)

    def update(self, weights: Tensor, divergence: Tensor, change: Tensor, epsilon: float) -> None:
        """Take what is farther and still within epsilon."""
        better = (change.detach() <= epsilon) & (divergence.detach() > self.divergence)
        self.weights = torch.where(better[:, None], weights.detach(), self.weights)
        self.divergence = torch.where(better, divergence.detach(), self.divergence)
        self.change = torch.where(better, change.detach(), self.change)

    def of_each_example(self, examples: int, starts: int) -> Counterfactual:
        """The best start of each example."""
        divergence = self.divergence.view(examples, starts)
        rows = torch.arange(examples, device=divergence.device) * starts + divergence.argmax(1)
        return Counterfactual(self.weights[rows], self.divergence[rows], self.change[rows])


def jensen_shannon(first: Float[Tensor, "B T"], second: Float[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """Jensen-Shannon divergence in nats: 0 for equal weights, ln 2 for disjoint ones.

    >>> round(float(jensen_shannon(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))), 4)
    0.6931
    """
    mean = (first + second) / 2
    return (_entropy(mean) - (_entropy(first) + _entropy(second)) / 2).clamp_min(0.0)


def _entropy(weights: Tensor) -> Tensor:
    """Of each row; a weight of zero adds nothing, and no gradient."""
    positive = weights > 0
    safe = torch.where(positive, weights, torch.ones_like(weights))
    return -(safe * safe.log() * positive).sum(1)
