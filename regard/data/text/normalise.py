"""SentencePiece's text normalisation (Kudo & Richardson 2018), exactly.

A SentencePiece model contains its own rules: a trie from byte sequences to their replacements, NFKC
and more. At each position the longest rule applies. The `Precompiled` normaliser of the
`tokenizers` library looks rules up by grapheme instead and misses some (half-width kana with
diacritics, decomposed Hangul). Texts are therefore normalised here, and the library only splits
them into pieces. Afterwards spaces become ▁, one before each word, none at the end.

>>> Charsmap(b"").normalise(" two  words ").text
'▁two▁words'
"""

import base64
import json
import struct
from dataclasses import dataclass

from regard.core.errors import UserError

SPACE_SYMBOL = "▁"
"""SentencePiece's symbol for a space."""

RESERVED = "\ufdd0"
"""The prefix of pieces that must not match a text: special tokens, or pieces of the other language.

It is a Unicode noncharacter, which no text contains by accident. As an entry of a vocabulary it
follows the last real id: pieces after it are matched like any other, but the model has no id for
them, so they are unknown.
"""


@dataclass(frozen=True)
class NormalisedText:
    """A normalised text, with the origin of each character."""

    text: str
    origins: tuple[tuple[int, int], ...]
    """The begin and end of each character in the original text."""

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """The span of a part in the original text, without a leading space.

        >>> Charsmap(b"").normalise(" two  words ").span(4, 10)
        (6, 11)
        """
        while begin < end - 1 and self.text[begin] == SPACE_SYMBOL:
            begin += 1
        if begin >= end:
            return (0, 0)
        return self.origins[begin][0], self.origins[end - 1][1]


class Charsmap:
    """The normalisation rules of a model; empty bytes are no rules."""

    def __init__(self, rules: bytes) -> None:
        self.data = rules
        """The rules as in the file of the model."""
        self._trie: tuple[int, ...] = ()
        self._written = b""
        self._first: dict[str, tuple[int, int | None] | None] = {}
        self._next: dict[tuple[int, str], tuple[int, int | None] | None] = {}
        if rules:
            size = int.from_bytes(rules[:4], "little")
            if size % 4 or size == 0 or 4 + size > len(rules):
                raise UserError("the normalisation rules of this SentencePiece model are damaged")
            self._trie = struct.unpack(f"<{size // 4}I", rules[4 : 4 + size])
            self._written = rules[4 + size :]

    @classmethod
    def of(cls, tokenizer: str) -> "Charsmap":
        """The rules in a tokenizer.json, which may have none."""
        held = json.loads(tokenizer)["normalizer"] or {}
        return cls(base64.b64decode(held.get("precompiled_charsmap") or ""))

    def normalise(self, text: str) -> NormalisedText:
        """The text with all rules applied, and ▁ for spaces."""
        out: list[str] = []
        origins: list[tuple[int, int]] = []
        place, blank, first = 0, True, self._first
        while place < len(text):
            char = text[place]
            if char not in first:
                first[char] = self._step(self._root(), char) if self._trie else None
            # Most characters do not begin a rule.
            written, size = (char, 1) if first[char] is None else self._replaced(text, place)
            for each in written:
                if each != " ":
                    if not out:
                        out.append(SPACE_SYMBOL)
                        origins.append((place, place))
                    out.append(each)
                    origins.append((place, place + size))
                elif out and not blank:
                    out.append(SPACE_SYMBOL)
                    origins.append((place, place + size))
                blank = each == " "
            place += size
        while out and out[-1] == SPACE_SYMBOL:
            out.pop()
        return NormalisedText("".join(out), tuple(origins[: len(out)]))

    def _replaced(self, text: str, place: int) -> tuple[str, int]:
        """The replacement by the longest rule at this position, and the length of its match."""
        found, last = self._first[text[place]], place + 1
        best: tuple[int, int] | None = None
        while found is not None:
            node, value = found
            if value is not None:
                best = (value, last - place)
            if last == len(text):
                break
            step = (node, text[last])
            if step not in self._next:
                self._next[step] = self._step(*step)
            found, last = self._next[step], last + 1
        return (text[place], 1) if best is None else (self._string(best[0]), best[1])

    def _root(self) -> int:
        return _offset(self._trie[0])

    def _step(self, node: int, char: str) -> tuple[int, int | None] | None:
        """The node after the bytes of a character, and the rule that ends there, if any."""
        value = None
        for byte in char.encode():
            node ^= byte
            if node >= len(self._trie):
                return None
            unit = self._trie[node]
            if unit & 0x800000FF != byte:
                return None
            node ^= _offset(unit)
            ends = unit >> 8 & 1 and node < len(self._trie)
            value = self._trie[node] & 0x7FFFFFFF if ends else None
        return node, value

    def _string(self, begin: int) -> str:
        end = self._written.find(b"\0", begin)
        return self._written[begin : end if end >= 0 else None].decode("utf-8", "replace")


def _offset(unit: int) -> int:
    """The offset of the children of a unit of a double array (darts-clone)."""
    return unit >> 10 << ((unit & 0x200) >> 6)
