"""Constraints of a search: minimum and maximum lengths, prefixes, banned and repeated tokens.

>>> from regard.decode.beam import Beam
>>> limits = DecodingLimits(Beam(max_length=2), range(2), np.array([3, 1]), [[7], []], room=4)
>>> limits.most.tolist()
[4, 3]
>>> limits.forced_tokens(0)
(array([0]), array([7]))
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from regard.core.errors import UserError
from regard.core.protocols import Batch, Bounded
from regard.decode.beam import Beam

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_NOWHERE = 2**62
"""Larger than any length: no limit."""


class DecodingLimits:
    """The limits of the sentences in a batch, in its order."""

    def __init__(
        self,
        beam: Beam,
        numbers: Sequence[int],
        lengths: Ints,
        prefixes: Sequence[Sequence[int]] | None,
        room: int,
    ) -> None:
        longest = np.array([beam.longest(length) for length in lengths.tolist()], dtype=np.int64)
        fewest = np.ceil(beam.min_per_source * lengths).astype(np.int64) + beam.min_length
        self.most: Ints = np.minimum(longest, room)
        """The maximum number of tokens of each sentence `[N]`."""
        self._fewest: Ints = np.minimum(fewest, self.most)
        self._beam, self._numbers = beam, numbers
        self._prefixes = [[] for _ in numbers] if prefixes is None else [list(p) for p in prefixes]
        self._forced: Ints = np.array([len(each) for each in self._prefixes], dtype=np.int64)
        self._check_prefixes()
        self._bounds()

    def _bounds(self) -> None:
        """Update the steps between which a limit can apply to any sentence."""
        self._last_short = int(self._fewest.max(initial=0))
        self._first_full = int(self.most.min(initial=_NOWHERE))
        self._last_forced = int(self._forced.max(initial=0))

    def keep(self, kept: Bools) -> None:
        """Keep only these sentences."""
        self.most, self._fewest = self.most[kept], self._fewest[kept]
        if self._last_forced:
            self._prefixes = [self._prefixes[place] for place in kept.nonzero()[0]]
            self._forced = self._forced[kept]
        self._bounds()

    def must_end(self, count: int) -> Ints | None:
        """The indices of sentences that must end after `count` tokens, or None."""
        return None if count < self._first_full else (self.most <= count).nonzero()[0]

    def forced_tokens(self, count: int) -> tuple[Ints, Ints] | None:
        """The indices of sentences whose next token is in their prefix, and these tokens."""
        if count >= self._last_forced:
            return None
        places = (self._forced > count).nonzero()[0]
        return places, np.array([self._prefixes[each][count] for each in places], dtype=np.int64)

    def banned_tokens(
        self, count: int, written: Ints | None, width: int
    ) -> tuple[Ints, Ints] | None:
        """Rows and the tokens that are banned in them; a sentence has `width` rows.

        The end token is banned before the minimum length. Beyond the prefix, the tokens of
        `beam.banned` and those that would repeat an n-gram are banned too.
        """
        found: list[tuple[Ints, Ints]] = []
        for token in self._beam.banned:
            rows = np.arange(width * len(self.most))
            if count < self._last_forced:
                rows = rows[np.repeat(self._forced <= count, width)]
            found.append((rows, np.full(len(rows), token)))
        if count < self._last_short:
            rows = np.repeat(self._fewest > count, width).nonzero()[0]
            found.append((rows, np.full(len(rows), self._beam.eos)))
        if written is not None:
            rows, tokens = _repeats(written, self._beam.no_repeat)
            free = np.repeat(self._forced <= count, width)[rows]
            found.append((rows[free], tokens[free]))
        if not found:
            return None
        return np.concatenate([r for r, _ in found]), np.concatenate([t for _, t in found])

    def check_vocabulary(self, size: int) -> None:
        """Raise a UserError for tokens outside the vocabulary, whose size the logits show."""
        named = [("bos", self._beam.bos), ("eos", self._beam.eos)]
        named += [("banned", token) for token in self._beam.banned]
        for number, prefix in zip(self._numbers, self._prefixes, strict=True):
            named += [(f"the prefix of sentence {number}:", token) for token in prefix]
        for what, token in named:
            if not 0 <= token < size:
                raise UserError(
                    f"{what} {token} is not in the vocabulary, which goes from 0 to {size - 1}"
                )

    def _check_prefixes(self) -> None:
        if len(self._prefixes) != len(self._numbers):
            raise UserError(
                f"{len(self._prefixes)} prefixes were given for {len(self._numbers)} sentences"
            )
        for number, prefix, most in zip(self._numbers, self._prefixes, self.most, strict=True):
            if len(prefix) > most:
                raise UserError(
                    f"the prefix of sentence {number} has {len(prefix)} tokens, "
                    f"but only {most} are allowed: raise max_length"
                )
            if self._beam.eos in prefix:
                raise UserError(
                    f"the prefix of sentence {number} contains token {self._beam.eos}, "
                    "which ends a sentence"
                )


def ban_tokens(logs: Float[Tensor, "B V"], banned: tuple[Ints, Ints]) -> None:
    """Set these tokens of these rows to -inf, in place."""
    rows, tokens = (from_numpy(each).to(logs.device) for each in banned)
    logs[rows, tokens] = -torch.inf


def source_lengths(source: Batch, beam: Beam) -> Ints:
    """The lengths of the sources; zeros if the batch has none and no setting needs them."""
    if "source_lengths" in source:
        return source["source_lengths"].cpu().numpy().astype(np.int64)
    if beam.max_per_source or beam.min_per_source or beam.coverage:
        raise UserError(
            f"max_per_source={beam.max_per_source}, min_per_source={beam.min_per_source} and "
            f"coverage={beam.coverage} need source_lengths in the batch, which has "
            f"{', '.join(source)}; set them to 0 or add the lengths"
        )
    return np.zeros(len(next(iter(source.values()))), dtype=np.int64)


def max_target_tokens(stepper: object) -> int:
    """The number of tokens that fit into the model's context after the first one.

    >>> max_target_tokens(object()) > 10**9
    True
    """
    return stepper.context_limit - 1 if isinstance(stepper, Bounded) else _NOWHERE


def no_token_error(what: str, count: int) -> UserError:
    """The error for a sentence that can neither continue nor end."""
    return UserError(
        f"{what}: every token that is allowed after {count} tokens has probability 0; "
        "allow repeats, a shorter text or another prefix"
    )


def _repeats(written: Ints, size: int) -> tuple[Ints, Ints]:
    """Rows and the tokens that would complete an n-gram of that size for the second time.

    >>> _repeats(np.array([[1, 2, 3, 1, 2], [4, 4, 4, 5, 6]]), 3)
    (array([0]), array([3]))
    """
    count = max(0, written.shape[1] - size + 1)  # n-grams so far
    same = np.ones((len(written), count), dtype=np.bool_)  # [B,T]
    for offset in range(size - 1 if count else 0):
        same &= written[:, offset : offset + count] == written[:, count + offset, None]
    rows, places = same.nonzero()
    return rows, written[rows, places + size - 1]
