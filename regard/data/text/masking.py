"""Masking: words hidden from a model that learns to guess them (Devlin et al. 2019, section 3.1).

Of each row 15 % of the tokens are chosen, marks never. In the place of a chosen token the model
reads [MASK] in 80 % of cases, a token drawn from the vocabulary in 10 %, and itself in 10 %. Only
chosen tokens are targets. With `continues`, whole words are chosen: each that still fits into the
15 %, and at least one.

Everything is drawn by the caller, [B,T,3], so that a row can have the same draws whatever its
batch.

>>> from regard.data.batch import random_integers
>>> marks = torch.tensor([True] * 5 + [False] * 95)
>>> row = torch.tensor([[2, *range(10, 30), 3]])
>>> hidden = Masking(mask=4, special=marks).apply(row, random_integers(66, 1).view(1, 22, 3))
>>> int((hidden.targets != IGNORE).sum()), hidden.targets[hidden.targets != IGNORE].tolist()
(3, [15, 22, 29])
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core.errors import UserError, fraction
from regard.data.batch import IGNORE

_LAST = 2**63 - 1
"""Sorts behind everything that is drawn."""


class MaskedTokens(NamedTuple):
    """A batch with words hidden."""

    tokens: Int[Tensor, "B T"]
    """What the model reads."""
    targets: Int[Tensor, "B T"]
    """What stood there, where a token was chosen; IGNORE elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Masking:
    """How words are hidden."""

    mask: int
    """The number of [MASK]."""
    special: Bool[Tensor, "V"]
    """Which tokens are marks: never chosen, and never put in the place of another."""
    continues: Bool[Tensor, "V"] | None = None
    """Which tokens go on within a word, to choose whole words; None chooses tokens."""
    share: float = 0.15
    """How many of the tokens are chosen."""
    masked: float = 0.8
    """How many of those become [MASK]."""
    swapped: float = 0.1
    """How many become another token; the rest stay."""

    def __post_init__(self) -> None:
        for name in ("share", "swapped"):
            fraction(name, getattr(self, name))
        if not 0 <= self.masked <= 1 - self.swapped + 1e-9:
            raise UserError(
                f"masked={self.masked} and swapped={self.swapped} are shares of the chosen tokens: "
                "together at most 1"
            )
        if bool(self.special.all()):
            raise UserError("every token of this vocabulary is a mark; there are no words to hide")

    @cached_property
    def _plain(self) -> Int[Tensor, "N"]:
        return (~self.special).nonzero().squeeze(1)

    def apply(self, tokens: Int[Tensor, "B T"], drawn: Int[Tensor, "B T C"]) -> MaskedTokens:
        """Hide some of the tokens; what is drawn says which, how, and behind what."""
        chosen = self.chosen(tokens, drawn[..., 0])
        how = drawn[..., 1].double() / 2.0**63  # [B,T] from 0 to 1
        other = self._plain[drawn[..., 2] % len(self._plain)]
        read = torch.where(how < self.masked + self.swapped, other, tokens)
        read = torch.where(how < self.masked, self.mask, read)
        return MaskedTokens(
            tokens=torch.where(chosen, read, tokens),
            targets=torch.where(chosen, tokens, IGNORE),
        )

    def chosen(self, tokens: Int[Tensor, "B T"], keys: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """Those with the smallest keys, as many as the share says and one at least."""
        plain = ~self.special[tokens]
        words = plain.sum(1, keepdim=True)  # [B,1]
        due = (words * self.share).round().long().clamp_min(1)
        places = torch.arange(tokens.shape[1])
        if self.continues is None:
            order = torch.where(plain, keys, _LAST).argsort(dim=1, stable=True)
            fits = (places < due).expand_as(order)
            return torch.zeros_like(plain).scatter(1, order, fits) & plain
        follows = torch.zeros_like(plain)
        follows[:, 1:] = plain[:, :-1]
        begins = ~(self.continues[tokens] & plain & follows)
        first = torch.where(begins, places, 0).cummax(1).values  # of each token's word
        sizes = torch.zeros_like(tokens).scatter_add(1, first, torch.ones_like(tokens))
        # All tokens of a word have the key of its first one, so that sorting keeps them together.
        order = torch.where(plain, keys.gather(1, first), _LAST).argsort(dim=1, stable=True)
        heads = torch.where(begins.gather(1, order), places, 0).cummax(1).values  # [B,T]
        size = sizes.gather(1, first).gather(1, order)
        fits = _filled(size, heads, due, plain.gather(1, order))
        return torch.zeros_like(plain).scatter(1, order, fits)


def _filled(
    size: Int[Tensor, "B T"],
    heads: Int[Tensor, "B T"],
    due: Int[Tensor, "B 1"],
    plain: Bool[Tensor, "B T"],
) -> Bool[Tensor, "B T"]:
    """Words from left to right, each that still fits into what is due; if none does, the first.

    Of each token, the size of its word and where that begins. A word that is too large is passed
    over and smaller ones after it are taken, as BERT's own script does. Every turn settles the
    words that are larger than what is left where the first of them stands, so there are no more
    turns than tokens in the longest word.
    """
    fits = plain
    while True:
        before = fits.long().cumsum(1).gather(1, heads) - 1
        over = fits & (before + size > due)
        if not bool(over.any()):
            break
        left = due - torch.where(over, before, _LAST).amin(1, keepdim=True)
        fits = fits & ~((over.cumsum(1) > 0) & (size > left))
    return fits | (plain & (heads == 0) & ~fits.any(1, keepdim=True))
