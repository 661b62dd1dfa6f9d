"""Would the model say the same if it had looked elsewhere?

Permutation shuffles the weights; the adversary looks for the weights that are farthest away and yet
leave the prediction as it was (Jain and Wallace 2019, section 4.2). All texts of a batch and all
starts of the search go through the model together.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.weigh import masked_softmax
from regard.core.protocols import Batch
from regard.explain.importance import moved
from regard.explain.reader import Reader

_Told = Callable[[str], None]

_NOISE = 3.0
"""The spread of the logits that a search starts from, as in the paper's code."""


@torch.no_grad()
def permuted(
    reader: Reader, batch: Batch, *, times: int = 100, seed: int = 0
) -> Float[Tensor, "B"]:
    """The median change of the prediction over shuffles of the judged weights."""
    own, judged, groups = reader.read(batch), reader.judged(batch), reader.groups(batch)
    draws = torch.Generator().manual_seed(seed)
    changes = []
    with reader.still(batch):
        for _ in range(times):
            keys = groups + torch.rand(judged.shape, generator=draws).to(groups.device)
            shuffled = among(own.weights, judged, keys)
            said = reader.read(batch, weights=shuffled).probabilities
            changes.append(moved(own.probabilities, said))
    return torch.stack(changes).median(0).values


def among(weights: Tensor, judged: Tensor, keys: Tensor) -> Tensor:
    """The judged weights of each row in the order of the keys, at the judged places."""
    first = keys.to(weights.device).masked_fill(~judged, torch.inf).argsort(1)
    places = (~judged).to(torch.uint8).argsort(dim=1, stable=True)  # judged places, in order
    return weights.scatter(1, places, weights.gather(1, first))


@torch.no_grad()
def even(reader: Reader, batch: Batch) -> Float[Tensor, "B T"]:
    """The same for all judged tokens of a group; what they have together stays as it was."""
    own = reader.read(batch).weights
    return Room.of(reader, batch, own).filled(torch.zeros_like(own))


@dataclass(frozen=True)
class Room:
    """What other weights may be: the mass of each group of tokens, and what is left alone."""

    members: Bool[Tensor, "B G T"]
    """Which judged tokens are in which group."""
    mass: Float[Tensor, "B G"]
    rest: Float[Tensor, "B T"]
    """The weights of tokens that are not judged, which stay."""

    @staticmethod
    def of(reader: Reader, batch: Batch, weights: Float[Tensor, "B T"]) -> "Room":
        """As the model's own weights have it."""
        judged, groups = reader.judged(batch), reader.groups(batch)
        numbers = torch.arange(int(groups.max()) + 1, device=groups.device)
        members = (groups[:, None] == numbers[:, None]) & judged[:, None]  # [B,G,T]
        mass = (weights[:, None] * members).sum(2)
        return Room(members, mass, weights.masked_fill(judged, 0.0))

    def filled(self, logits: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Weights from logits: a softmax in each group, of its mass."""
        shares = masked_softmax(logits[:, None].expand(self.members.shape), self.members)  # [B,G,T]
        return (shares * self.mass[:, :, None]).sum(1) + self.rest

    def repeated(self, times: int) -> "Room":
        """Each row so many times."""
        return Room(*(each.repeat_interleave(times, 0) for each in
                      (self.members, self.mass, self.rest)))  # fmt: skip


@dataclass(frozen=True)
class Found:
    """The farthest weights that were found for each text."""

    weights: Float[Tensor, "B T"]
    divergence: Float[Tensor, "B"]
    """Jensen-Shannon, in nats: at most ln 2. Zero where nothing else kept the prediction."""
    change: Float[Tensor, "B"]
    """Of the prediction."""


def adversary(
    reader: Reader,
    batch: Batch,
    *,
    epsilon: float = 0.01,
    starts: int = 10,
    steps: int = 500,
    rate: float = 0.01,
    seed: int = 0,
    told: _Told = lambda text: None,
) -> Found:
    """Adam on logits of weights: away from the model's own, the prediction within epsilon."""
    with torch.no_grad():
        own = reader.read(batch)
    room = Room.of(reader, batch, own.weights).repeated(starts)
    many = {name: value.repeat_interleave(starts, 0) for name, value in batch.items()}
    said = own.probabilities.repeat_interleave(starts, 0)  # [B·S,C]
    looked = own.weights.repeat_interleave(starts, 0)  # [B·S,T]
    draws = torch.Generator().manual_seed(seed)
    logits = (_NOISE * torch.randn(looked.shape, generator=draws)).to(looked).requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=rate, amsgrad=True)
    best = Kept(looked)
    with reader.still(many):
        for step in range(steps):
            with torch.enable_grad():
                weights = room.filled(logits)
                change = moved(said, reader.read(many, weights=weights).probabilities)
                apart = divergence(weights, looked)
                loss = (-apart + 500 * (change - epsilon).relu()).sum()
                (logits.grad,) = torch.autograd.grad(loss, logits)
            best.note(weights, apart, change, epsilon)
            optimiser.step()
            if step % 100 == 99:
                told(f"adversary, step {step + 1} of {steps}")
    return best.of(len(own.weights), starts)


class Kept:
    """The farthest weights so far, of every start."""

    def __init__(self, own: Tensor) -> None:
        self.weights = own.clone()
        self.apart = torch.zeros(len(own), dtype=own.dtype, device=own.device)
        self.change = torch.zeros_like(self.apart)

    def note(self, weights: Tensor, apart: Tensor, change: Tensor, epsilon: float) -> None:
        """Keep what is farther and still within epsilon."""
        better = (change.detach() <= epsilon) & (apart.detach() > self.apart)
        self.weights = torch.where(better[:, None], weights.detach(), self.weights)
        self.apart = torch.where(better, apart.detach(), self.apart)
        self.change = torch.where(better, change.detach(), self.change)

    def of(self, texts: int, starts: int) -> Found:
        """The best start of each text."""
        apart = self.apart.view(texts, starts)
        rows = torch.arange(texts, device=apart.device) * starts + apart.argmax(1)
        return Found(self.weights[rows], self.apart[rows], self.change[rows])


def divergence(first: Float[Tensor, "B T"], second: Float[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """Jensen-Shannon divergence in nats: 0 of the same weights, ln 2 of weights with none shared.

    >>> round(float(divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))), 4)
    0.6931
    """
    middle = (first + second) / 2
    return (_entropy(middle) - (_entropy(first) + _entropy(second)) / 2).clamp_min(0.0)


def _entropy(weights: Tensor) -> Tensor:
    """Of each row; a weight of nothing adds nothing, also to the gradient."""
    there = weights > 0
    safe = torch.where(there, weights, torch.ones_like(weights))
    return -(safe * safe.log() * there).sum(1)
