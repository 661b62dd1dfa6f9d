"""Characters and character n-grams of words as ids, without a vocabulary to learn or save.

The ids of characters are those of ELMo's character encoder (Peters et al. 2018, in its code):
bytes of UTF-8 are 1 to 256, then come <bos> and <eos> of sentences, <bow> and <eow> of words; 0 is
padding. No character is unknown, and a model of characters takes any language.

>>> character_ids("ab")
[259, 98, 99, 260]
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import UserError, positive

CHARACTER_COUNT = 262
"""The number of ids; the last one is ELMo's padding of words."""

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, FILL = 257, 258, 259, 260, 261
LONGEST_WORD = 50
"""The maximum number of ids of a word, with its begin and end; the rest is dropped."""


def character_ids(word: str, longest: int = LONGEST_WORD) -> list[int]:
    """The character ids of a word."""
    characters = [byte + 1 for byte in word.encode("utf-8", "surrogatepass")[: longest - 2]]
    return [BEGIN_WORD, *characters, END_WORD]


class WordCharacters:
    """The character ids of many words, stored once per word and looked up by word id.

    >>> words = WordCharacters()
    >>> numbers = words.numbers(["a", "bc", "a"])
    >>> numbers, words.rows(torch.tensor([numbers]))[0].tolist()
    ([1, 2, 1], [[259, 98, 260, 0], [259, 99, 100, 260], [259, 98, 260, 0]])
    """

    def __init__(self, longest: int = LONGEST_WORD) -> None:
        self._known: dict[str, int] = {}
        self._spelled: list[list[int]] = [[]]
        self._longest = longest
        self._table: Tensor | None = None

    def numbers(self, words: Sequence[str]) -> list[int]:
        """An id for each word, from 1; 0 is no word."""
        found = []
        for word in words:
            number = self._known.get(word)
            if number is None:
                number = self._known[word] = len(self._spelled)
                self._spelled.append(character_ids(word, self._longest))
                self._table = None
            found.append(number)
        return found

    def rows(self, numbers: Int[Tensor, "B T"]) -> Int[Tensor, "B T C"]:
        """The character ids of words, padded with 0 to the longest."""
        if self._table is None:
            table = torch.zeros(len(self._spelled), self._longest, dtype=torch.int16)
            for row, word in enumerate(self._spelled):
                table[row, : len(word)] = torch.tensor(word, dtype=torch.int16)
            self._table = table
        found = self._table[numbers]  # [B,T,C]
        width = int((found != 0).flatten(0, 1).any(0).sum())
        return found[..., : max(1, width)].long()


_MOST = 60
"""The maximum number of n-grams of a word: words of more than 18 characters have more."""


def _grams(word: str, shortest: int, longest: int) -> list[str]:
    """The n-grams of a word in < and >, short ones first.

    >>> _grams("was", shortest=3, longest=6)
    ['<wa', 'was', 'as>', '<was', 'was>', '<was>']
    """
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


def ngram_buckets(
    words: Sequence[str], *, buckets: int, shortest: int = 3, longest: int = 6
) -> Int[Tensor, "V C"]:
    """The buckets of each word's character n-grams, from 1; 0 is padding.

    As in fastText, a word is put in < and >, and each n-gram of `shortest` to `longest` characters
    is hashed into a bucket (Bojanowski et al. 2017, section 3.2) with FNV-1a over signed bytes.
    N-grams in the same bucket share a vector.

    >>> ngram_buckets(["a", ""], buckets=20, shortest=3, longest=3).tolist()
    [[1], [0]]
    """
    positive("buckets", buckets)
    if not 1 <= shortest <= longest:
        raise UserError(f"there are no n-grams from shortest={shortest} to longest={longest}")
    rows = [
        [_hashed(gram) % buckets + 1 for gram in _grams(word, shortest, longest)[:_MOST]]
        for word in words
    ]
    table = torch.zeros(len(rows), max(1, *(len(row) for row in rows), 1), dtype=torch.int32)
    for place, row in enumerate(rows):
        table[place, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return table
