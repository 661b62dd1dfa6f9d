"""Masking for masked language modelling (Devlin et al. 2019, section 3.1).

15 % of the tokens of each row are selected, special tokens never. A selected token is replaced by
[MASK] in 80 % of cases, by a random token in 10 %, and kept in 10 %. Only selected tokens are
targets. With `continues`, whole words are selected: each that still fits into the 15 %, and at
least one.

The caller provides the random numbers [B,T,3], so that a row has the same ones in any batch.

>>> from regard.data.batch import random_integers
>>> special = torch.tensor([True] * 5 + [False] * 95)
>>> row = torch.tensor([[2, *range(10, 30), 3]])
>>> masked = Masking(mask=4, special=special).apply(row, random_integers(66, 1).view(1, 22, 3))
>>> int((masked.targets != IGNORE).sum()), masked.targets[masked.targets != IGNORE].tolist()
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
"""Larger than every random number: sorts last."""


class MaskedTokens(NamedTuple):
    """The inputs and targets of masked language modelling."""

    tokens: Int[Tensor, "B T"]
    """The input of the model."""
    targets: Int[Tensor, "B T"]
    """The original tokens where they were selected; IGNORE elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Masking:
    """The settings of masking."""

    mask: int
    """The id of [MASK]."""
    special: Bool[Tensor, "V"]
    """Which tokens are special: never selected, and never a replacement."""
    continues: Bool[Tensor, "V"] | None = None
    """Which tokens continue a word, for whole-word masking; None selects single tokens."""
    share: float = 0.15
    """The fraction of tokens that are selected."""
    masked: float = 0.8
    """The fraction of selected tokens that become [MASK]."""
    swapped: float = 0.1
    """The fraction that become a random token; the rest stay."""

    def __post_init__(self) -> None:
        for name in ("share", "swapped"):
            fraction(name, getattr(self, name))
        if not 0 <= self.masked <= 1 - self.swapped + 1e-9:
            raise UserError(
                f"masked={self.masked} and swapped={self.swapped} are fractions of the selected "
                "tokens: together at most 1"
            )
        if bool(self.special.all()):
            raise UserError("every token of this vocabulary is special; there are none to mask")

    @cached_property
    def _plain(self) -> Int[Tensor, "N"]:
        return (~self.special).nonzero().squeeze(1)

    def apply(self, tokens: Int[Tensor, "B T"], drawn: Int[Tensor, "B T C"]) -> MaskedTokens:
        """Mask some tokens; the random numbers determine which ones, how, and by what."""
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
        """Select the tokens with the smallest keys: the fraction `share`, but at least one."""
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
        # All tokens of a word get the key of its first one, so that sorting keeps them together.
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
    """Select words from left to right that fit into `due` tokens; if none fits, the first.

    `size` and `heads` are the size of the word of each token and its first position. A word that is
    too large is skipped and smaller ones after it are selected, as in BERT's script. Each iteration
    decides about all words larger than the space left at the first of them, so there are at most as
    many iterations as tokens in the longest word.
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
