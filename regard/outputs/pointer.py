"""A mixture of an output layer and a pointer: a token is generated, or copied from where it stands.

p(w) = share · p_generated(w) + Σ pointer, summed over all keys with token w. Sums are taken in log
space, in float32, and a token of no key adds nothing there: -∞, not the logarithm of a rounding
error. A target that neither side can produce has log p = -∞, without a gradient; the loss counts it
as the smallest positive number of its dtype (about 87 nats in float32), so that one such target
leaves a batch its finite loss and its gradient.

Keys may have tokens beyond the vocabulary of the output layer; `ExtendedSoftmax` makes room for
them.

>>> import torch
>>> from regard.outputs.next_token import SoftmaxOutput
>>> generated = SoftmaxOutput(torch.zeros(1, 1, 4), torch.zeros(8, 4))      # 1/8 for each of 8
>>> share, pointer = torch.full((1, 1), 0.4), torch.tensor([[[0.1, 0.2, 0.3]]])
>>> mixture = PointerMixture(generated, share, pointer, key_tokens=torch.tensor([[5, 2, 5]]))
>>> round(mixture.log_probability(torch.tensor([[5]])).exp().item(), 4)     # 0.4/8 + 0.1 + 0.3
0.45
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import sum_by_token
from regard.core.padding import IGNORE
from regard.core.precision import in_float32
from regard.outputs.next_token import NextTokens, SoftmaxOutput


@dataclass(frozen=True)
class ExtendedSoftmax(NextTokens):
    """An output layer, and after its vocabulary some tokens that it cannot generate."""

    generated: SoftmaxOutput
    extra: int
    """How many it cannot generate."""

    def nll(
        self, targets: Int[Tensor, "B T"], *, smoothing: float = 0.0, excluded: int | None = None
    ) -> Float[Tensor, ""]:
        """That of the output layer; infinite if there is any other target."""
        beyond = targets >= len(self.generated.weight)
        known = torch.where(beyond, IGNORE, targets)
        nll = self.generated.nll(known, smoothing=smoothing, excluded=excluded)
        return torch.where(beyond.any(), torch.inf, nll)

    def log_probability(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """That of the output layer; -∞ for tokens that it cannot generate."""
        beyond = targets >= len(self.generated.weight)
        logs = self.generated.log_probability(torch.where(beyond, IGNORE, targets))
        return torch.where(beyond, -torch.inf, logs)

    def logits(self) -> Float[Tensor, "B T V"]:
        """Those of the output layer, and -∞ for the others."""
        return F.pad(self.generated.logits(), (0, self.extra), value=-torch.inf)


@dataclass(frozen=True)
class PointerMixture(NextTokens):
    """The distribution of an output layer, and that of a pointer over keys."""

    generated: NextTokens
    """The distribution of the output layer."""
    share: Float[Tensor, "B T"]
    """How much of the probability is the output layer's."""
    pointer: Float[Tensor, "B T K"]
    """How much is at each key; with `share` this sums to one."""
    key_tokens: Int[Tensor, "B K"]
    """The token of each key."""

    def nll(
        self, targets: Int[Tensor, "B T"], *, smoothing: float = 0.0, excluded: int | None = None
    ) -> Float[Tensor, ""]:
        """-log p; only smoothing, a mean over all tokens, needs the table of all of them.

        That mean is over the tokens with a probability above zero.
        """
        right = self.log_probability(targets)
        smallest = math.log(torch.finfo(right.dtype).tiny)
        right = torch.where(right == -torch.inf, smallest, right)
        if smoothing == 0.0:
            return -right.sum()
        every = self.logits()
        possible = every > -torch.inf
        if excluded is not None:
            possible = possible & (torch.arange(every.shape[2], device=every.device) != excluded)
        mean = torch.where(possible, every, 0.0).sum(2) / possible.sum(2)  # [B,T]
        mean = torch.where(targets == IGNORE, 0.0, mean)
        return -((1 - smoothing) * right + smoothing * mean).sum()

    def log_probability(self, targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """The weights of the keys with the target, and the output layer's part."""
        same = self.key_tokens.unsqueeze(1) == targets.unsqueeze(2)  # [B,T,K]
        share, pointer = in_float32(self.share), in_float32(self.pointer)
        generated = _log_or_none(share) + self.generated.log_probability(targets)  # [B,T]
        from_keys = _log_or_none((pointer * same).sum(2))
        return torch.where(targets == IGNORE, 0.0, _log_sum(generated, from_keys))

    def logits(self) -> Float[Tensor, "B T V"]:
        """Log p of every token."""
        share, pointer = in_float32(self.share), in_float32(self.pointer)
        logs = in_float32(self.generated.logits()).log_softmax(2)  # [B,T,V]
        total = sum_by_token(
            pointer.unsqueeze(1), self.key_tokens.unsqueeze(1), logs.shape[2]
        ).squeeze(1)
        return _log_sum(_log_or_none(share).unsqueeze(2) + logs, _log_or_none(total))


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
