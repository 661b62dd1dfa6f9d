"""Sample: draw the next token with the chance that the model, after the rules, gives it.

Every row has random numbers of its own: SHAKE-128 of seed, prompt, sample and step, the same on
every machine and in every version of every library. What a row draws does therefore not depend on
what else is in the batch, on how many samples were asked for or on how long it may become.

>>> import torch
>>> half = torch.tensor([[0.5, 0.0, 0.5]]).log()
>>> draws = Sampling(seed=1).begin([Row(0)])
>>> [draws.choose(half).item() for _ in range(8)]
[2, 2, 0, 2, 2, 2, 2, 0]
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.policy import Row
from regard.decode.rules import RULES, Bound, Number, bound, check

_AHEAD = 64
"""Random numbers that are made ready for each row at a time."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Draw from what the rules leave; they are applied in the order in which they stand here."""

    seed: int = 0
    """The same seed gives the same text."""
    repetition_penalty: Number = 1.0
    """Above one, tokens that were there before become less likely; 1 is off."""
    temperature: Number = 1.0
    """Below one, likely tokens become more likely; above one, less; 1 is off."""
    top_k: int = 0
    """Draw from so many of the likeliest tokens; 0 is off."""
    top_p: Number = 1.0
    """Draw from the fewest likeliest tokens that have this share of all chances; 1 is off."""
    min_p: Number = 0.0
    """Draw from tokens with at least this share of the likeliest one's chance; 0 is off."""

    def __post_init__(self) -> None:
        check(self._values())

    @cached_property
    def rules(self) -> tuple[Bound, ...]:
        """Those that are on."""
        return bound(self._values())

    def _values(self) -> dict[str, Number]:
        return {name: getattr(self, name) for name in RULES}

    def begin(self, rows: Sequence[Row]) -> "Draws":
        """The random numbers of these rows, from the first on."""
        return Draws(self.seed, rows)


class Draws:
    """Draws for some rows, each with random numbers of its own."""

    def __init__(self, seed: int, rows: Sequence[Row]) -> None:
        self._seed = seed
        self._rows = list(rows)
        self._turn = 0
        self._ready = torch.empty(len(self._rows), 0)  # [B,T]
        self._used = 0

    def choose(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        """One draw for each row."""
        return drawn(logits, self.next(logits.device))

    def next(self, device: torch.device) -> Float[Tensor, "B"]:
        """The next random number of each row."""
        if self._used == self._ready.shape[1]:
            self._ready, self._used = self._more(device), 0
            self._turn += 1
        self._used += 1
        return self._ready[:, self._used - 1]

    def keep(self, places: Sequence[int]) -> None:
        """Go on with the rows at these places; what they draw is what they would have drawn."""
        self._rows = [self._rows[place] for place in places]
        self._ready = self._ready[list(places)]

    def _more(self, device: torch.device) -> Float[Tensor, "B T"]:
        """The next random numbers of each row, from 0 to just below 1."""
        names = (f"{self._seed},{prompt},{sample},{self._turn}" for prompt, sample in self._rows)
        digests = b"".join(hashlib.shake_128(name.encode()).digest(8 * _AHEAD) for name in names)
        whole = torch.frombuffer(bytearray(digests), dtype=torch.int64).unflatten(0, (-1, _AHEAD))
        uniform: Tensor = ((whole >> 11) & (2**53 - 1)).double() * 2.0**-53  # [B,T]
        if device.type == "mps":  # has no float64, and rounding must not give 1
            uniform = uniform.float().clamp_max(1 - 2.0**-24)
        return uniform.to(device)


def drawn(logits: Float[Tensor, "B V"], uniform: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    """The token at which the running sum of chances passes a number from 0 to just below 1.

    One pass over the vocabulary and one number per row, where torch.multinomial takes one number
    per token. Sums are those of the uniform's precision, or rare tokens would be lost in rounding.
    A token without a chance does not move the sum, so it is never the one that passes.

    >>> drawn(torch.tensor([[0.25, 0.0, 0.75]]).log(), torch.tensor([0.25])).tolist()
    [2]
    """
    sums = logits.softmax(-1).cumsum(-1, dtype=uniform.dtype)  # [B,V]
    passed = uniform[:, None] * sums[:, -1:]  # [B,1]
    return torch.searchsorted(sums, passed, right=True).squeeze(1)
