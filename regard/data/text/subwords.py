"""The n-grams of letters in a word, as numbers of buckets: what fastText makes words of.

A word is put in < and >, cut into all runs of `shortest` to `longest` characters, and each run is
hashed into one of so many buckets (Bojanowski et al. 2017, section 3.2) with the hash of fastText's
code, FNV-1a over signed bytes. Runs in the same bucket share a vector. Bucket 0 is no n-gram.

>>> _grams("was", shortest=3, longest=6)
['<wa', 'was', 'as>', '<was', 'was>', '<was>']
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import UserError, positive

_MOST = 60
"""How many n-grams of a word are used, the first ones: words of more than 18 letters have more."""


def _grams(word: str, shortest: int, longest: int) -> list[str]:
    """The n-grams of a word, short ones first."""
    marked = f"<{word}>"
    return [
        marked[first : first + size]
        for size in range(shortest, longest + 1)
        for first in range(len(marked) - size + 1)
    ]


@lru_cache(maxsize=1 << 20)
def _hashed(gram: str) -> int:
    """FNV-1a of 32 bits, each byte taken as signed, as fastText's Dictionary::hash does.

    >>> _hashed("<wa"), _hashed("é")
    (930724319, 1023043777)
    """
    state = 2166136261
    for byte in gram.encode():
        signed = byte | 0xFFFFFF00 if byte > 127 else byte
        state = ((state ^ signed) * 16777619) & 0xFFFFFFFF
    return state


def subwords(
    words: Sequence[str], *, buckets: int, shortest: int = 3, longest: int = 6
) -> Int[Tensor, "V C"]:
    """The buckets of each word's n-grams, from 1; 0 where there is none.

    >>> subwords(["a", ""], buckets=20, shortest=3, longest=3).tolist()
    [[1], [0]]
    """
    positive("buckets", buckets)
    if not 1 <= shortest <= longest:
        raise UserError(f"n-grams from shortest={shortest} to longest={longest} letters are none")
    rows = [
        [_hashed(gram) % buckets + 1 for gram in _grams(word, shortest, longest)[:_MOST]]
        for word in words
    ]
    table = torch.zeros(len(rows), max(1, *(len(row) for row in rows), 1), dtype=torch.int32)
    for place, row in enumerate(rows):
        table[place, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return table
