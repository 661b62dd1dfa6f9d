"""Policies that choose the next token: Greedy and Sampling.

In Sampling every row has its own random numbers: SHAKE-128 of seed, prompt, sample and step, the
same on every machine and in every version of every library. What a row samples does not depend on
the other rows of the batch, on the number of samples or on the maximum length.

>>> Greedy().begin([]).choose(torch.tensor([[0.1, 0.7, 0.2]])).tolist()
[1]
>>> half = torch.tensor([[0.5, 0.0, 0.5]]).log()
>>> sampler = Sampling(seed=1).begin([SampleId(0)])
>>> [sampler.choose(half).item() for _ in range(8)]
[2, 2, 0, 2, 2, 2, 2, 0]
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, from_numpy

from regard.decode.rules import RULES, BoundRule, Number, active_rules, check_rules
from regard.decode.top_k import max_per_row


class SampleId(NamedTuple):
    """Identifies a generated text: the number of the prompt, and of the sample for this prompt."""

    prompt: int
    sample: int = 0


@runtime_checkable
class TokenChooser(Protocol):
    """Chooses the tokens of some rows, step by step."""

    def choose(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        """The next token of each row."""
        ...

    def keep(self, places: Sequence[int]) -> None:
        """Keep only the rows at these positions."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Rules that change the logits, and a way to choose from the result."""

    @property
    def rules(self) -> tuple[BoundRule, ...]:
        """The active rules, in the order of RULES."""
        ...

    def begin(self, rows: Sequence[SampleId]) -> TokenChooser:
        """A chooser for these rows, before their first token."""
        ...


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """Chooses the most likely token; of ties, the first."""

    repetition_penalty: Number = 1.0
    """Above one, tokens that were there before become less likely; 1 is off."""

    def __post_init__(self) -> None:
        check_rules({"repetition_penalty": self.repetition_penalty})

    @cached_property
    def rules(self) -> tuple[BoundRule, ...]:
        """The repetition penalty if active; no other rule changes which token is most likely."""
        return active_rules({"repetition_penalty": self.repetition_penalty})

    def begin(self, rows: Sequence[SampleId]) -> "Greedy":
        """Itself: there is no state."""
        return self

    def choose(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        """The index of the largest logit."""
        return from_numpy(max_per_row(logits)[1]).to(logits.device)

    def keep(self, places: Sequence[int]) -> None:
        """Does nothing: there is no state."""


_AHEAD = 64
"""The number of random numbers that are computed for each row at a time."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Samples from the distribution after the rules, which apply in the order of the fields."""

    seed: int = 0
    """The same seed gives the same text."""
    repetition_penalty: Number = 1.0
    """Above one, tokens that were there before become less likely; 1 is off."""
    temperature: Number = 1.0
    """Below one, likely tokens become more likely; above one, less; 1 is off."""
    top_k: int = 0
    """Sample from this many of the most likely tokens; 0 is off."""
    top_p: Number = 1.0
    """Sample from the smallest set of most likely tokens with this total probability; 1 is off."""
    min_p: Number = 0.0
    """Sample from tokens with at least this fraction of the largest probability; 0 is off."""

    def __post_init__(self) -> None:
        check_rules(self._values())

    @cached_property
    def rules(self) -> tuple[BoundRule, ...]:
        """The active rules."""
        return active_rules(self._values())

    def _values(self) -> dict[str, Number]:
        return {name: getattr(self, name) for name in RULES}

    def begin(self, rows: Sequence[SampleId]) -> "Sampler":
        """A sampler for these rows, before their first token."""
        return Sampler(self.seed, rows)


class Sampler:
    """Samples the tokens of some rows, each with its own random numbers."""

    def __init__(self, seed: int, rows: Sequence[SampleId]) -> None:
        self._seed = seed
        self._rows = list(rows)
        self._turn = 0
        self._ready = torch.empty(len(self._rows), 0)  # [B,T]
        self._used = 0

    def choose(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        """One sampled token for each row."""
        return sample_tokens(logits, self.next(logits.device))

    def next(self, device: torch.device) -> Float[Tensor, "B"]:
        """The next random number of each row."""
        if self._used == self._ready.shape[1]:
            self._ready, self._used = self._more(device), 0
            self._turn += 1
        self._used += 1
        return self._ready[:, self._used - 1]

    def keep(self, places: Sequence[int]) -> None:
        """Keep only the rows at these positions; their random numbers stay the same."""
        self._rows = [self._rows[place] for place in places]
        self._ready = self._ready[list(places)]

    def _more(self, device: torch.device) -> Float[Tensor, "B T"]:
        """The next random numbers of each row, in [0, 1)."""
        names = (f"{self._seed},{prompt},{sample},{self._turn}" for prompt, sample in self._rows)
        digests = b"".join(hashlib.shake_128(name.encode()).digest(8 * _AHEAD) for name in names)
        whole = torch.frombuffer(bytearray(digests), dtype=torch.int64).unflatten(0, (-1, _AHEAD))
        uniform: Tensor = ((whole >> 11) & (2**53 - 1)).double() * 2.0**-53  # [B,T]
        if device.type == "mps":  # has no float64, and rounding must not give 1
            uniform = uniform.float().clamp_max(1 - 2.0**-24)
        return uniform.to(device)


def sample_tokens(logits: Float[Tensor, "B V"], uniform: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    """The token at which the cumulative probability passes a uniform number in [0, 1).

    This takes one pass over the vocabulary and one random number per row; torch.multinomial takes
    one per token. The sums have the precision of `uniform`, so that rounding does not lose rare
    tokens. A token of probability 0 does not increase the sum and is never chosen.

    >>> sample_tokens(torch.tensor([[0.25, 0.0, 0.75]]).log(), torch.tensor([0.25])).tolist()
    [2]
    """
    sums = logits.softmax(-1).cumsum(-1, dtype=uniform.dtype)  # [B,V]
    passed = uniform[:, None] * sums[:, -1:]  # [B,1]
    return torch.searchsorted(sums, passed, right=True).squeeze(1)
