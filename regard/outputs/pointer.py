"""A mixture of an output layer and a pointer: words may also be said by pointing at where they are.

p(w) = share · p_words(w) + Σ pointed, summed over all keys that hold w. Sums are taken in log
space, in float32, and a word that no key holds adds nothing there: -∞, not the logarithm of a
rounding error. A target that neither side can produce has log p = -∞, without a gradient; the loss
counts it as the smallest positive number of its dtype (about 87 nats in float32), so that one such
target leaves a batch its finite loss and its gradient.

Keys may hold words beyond the vocabulary of the output layer, which `Extended` makes room for.

>>> import torch
>>> from regard.outputs.next_token import Vocabulary
>>> words = Vocabulary(torch.zeros(1, 1, 4), torch.zeros(8, 4))             # 1/8 for each of 8
>>> share, pointed = torch.full((1, 1), 0.4), torch.tensor([[[0.1, 0.2, 0.3]]])
>>> mixture = PointerMixture(words, share, pointed, held=torch.tensor([[5, 2, 5]]))
>>> round(mixture.log_probability(torch.tensor([[5]])).exp().item(), 4)     # 0.4/8 + 0.1 + 0.3
0.45
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import copied
from regard.core.precision import in_float32
from regard.outputs.next_token import IGNORED, Prediction, Vocabulary


@dataclass(frozen=True)
class Extended(Prediction):
    """An output layer, and after its vocabulary some words that it cannot say."""

    words: Vocabulary
    extra: int
    """How many it cannot say."""

    def surprise(
        self, targets: Int[Tensor, "B T"], *, smoothing: float = 0.0, never: int | None = None
    ) -> Float[Tensor, ""]:
        """That of the output layer; infinite if there is any other target."""
        beyond = targets >= len(self.words.weight)
        sayable = torch.where(beyond, IGNORED, targets)
        said = self.words.surprise(sayable, smoothing=smoothing, never=never)
        return torch.where(beyond.any(), torch.inf, said)

    def log_probability(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """That of the output layer; -∞ for what it cannot say."""
        beyond = targets >= len(self.words.weight)
        said = self.words.log_probability(torch.where(beyond, IGNORED, targets))
        return torch.where(beyond, -torch.inf, said)

    def logits(self) -> Float[Tensor, "B T V"]:
        """Those of the output layer, and -∞ for the others."""
        return F.pad(self.words.logits(), (0, self.extra), value=-torch.inf)


@dataclass(frozen=True)
class PointerMixture(Prediction):
    """What an output layer says, and where a pointer points."""

    words: Prediction
    """What the output layer says."""
    share: Float[Tensor, "B T"]
    """How much of the probability is the output layer's."""
    pointed: Float[Tensor, "B T K"]
    """How much is at each key; with `share` this sums to one."""
    held: Int[Tensor, "B K"]
    """The token that each key holds."""

    def surprise(
        self, targets: Int[Tensor, "B T"], *, smoothing: float = 0.0, never: int | None = None
    ) -> Float[Tensor, ""]:
        """-log p; only smoothing, which speaks of every word, needs the table of all words.

        It is spread over the words that can be said at all.
        """
        right = self.log_probability(targets)
        smallest = math.log(torch.finfo(right.dtype).tiny)
        right = torch.where(right == -torch.inf, smallest, right)
        if smoothing == 0.0:
            return -right.sum()
        every = self.logits()
        possible = every > -torch.inf
        if never is not None:
            possible = possible & (torch.arange(every.shape[2], device=every.device) != never)
        spread = torch.where(possible, every, 0.0).sum(2) / possible.sum(2)  # [B,T]
        spread = torch.where(targets == IGNORED, 0.0, spread)
        return -((1 - smoothing) * right + smoothing * spread).sum()

    def log_probability(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """The weights of the keys that hold the target, and the output layer's part."""
        found = self.held.unsqueeze(1) == targets.unsqueeze(2)  # [B,T,K]
        share, pointed = in_float32(self.share), in_float32(self.pointed)
        from_words = _log_or_none(share) + self.words.log_probability(targets)  # [B,T]
        from_keys = _log_or_none((pointed * found).sum(2))
        return torch.where(targets == IGNORED, 0.0, _log_sum(from_words, from_keys))

    def logits(self) -> Float[Tensor, "B T V"]:
        """Log p of every word."""
        share, pointed = in_float32(self.share), in_float32(self.pointed)
        words = in_float32(self.words.logits()).log_softmax(2)  # [B,T,V]
        total = copied(pointed.unsqueeze(1), self.held.unsqueeze(1), words.shape[2]).squeeze(1)
        return _log_sum(_log_or_none(share).unsqueeze(2) + words, _log_or_none(total))


def _log_sum(first: Tensor, second: Tensor) -> Tensor:
    """log(e^first + e^second); where both are -∞ it is -∞ with a gradient of zero, not NaN.

    >>> _log_sum(torch.tensor([0.0, -torch.inf]), torch.tensor([-torch.inf, -torch.inf])).tolist()
    [0.0, -inf]
    """
    neither = (first == -torch.inf) & (second == -torch.inf)
    zero = first.new_zeros(())
    some = torch.logaddexp(*(torch.where(neither, zero, each) for each in (first, second)))
    return torch.where(neither, -torch.inf, some)


def _log_or_none(mass: Tensor) -> Tensor:
    """The logarithm; -∞ where there is nothing, with a gradient of zero there instead of NaN.

    >>> _log_or_none(torch.tensor([1.0, 0.0])).tolist()
    [0.0, -inf]
    """
    smallest = torch.finfo(mass.dtype).tiny
    return torch.where(mass > 0, mass.clamp_min(smallest).log(), -torch.inf)
