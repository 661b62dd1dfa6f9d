"""How SentencePiece cleans a text before it looks for pieces (Kudo & Richardson 2018), exactly.

A model of SentencePiece carries its own rules: a trie from runs of bytes to what is written in
their place, NFKC and more. At each character the longest rule counts. The `Precompiled` normaliser
of the `tokenizers` library looks rules up by grapheme instead and misses some (half-width kana with
their marks, loose Hangul), so texts go through this one first, and the library only finds pieces.

Then blanks become ▁, one in front of each word, none at the end.

>>> Charsmap(b"").normalise(" two  words ").text
'▁two▁words'
"""

import base64
import json
import struct
from dataclasses import dataclass

from regard.core.errors import UserError

SPACE_SYMBOL = "▁"
"""How SentencePiece writes a blank."""

RESERVED = "\ufdd0"
"""Before a piece that no text may hold: a special token, or a piece of the other language.

It is no character (Unicode has set it aside), so that no text has it by accident. By itself it
stands in a vocabulary behind the last real number: pieces after it are cut from texts as any other,
but the model has no number for them, so they are unknown.
"""


@dataclass(frozen=True)
class NormalisedText:
    """A text as SentencePiece sees it."""

    text: str
    origins: tuple[tuple[int, int], ...]
    """Where each character comes from: begin and end in the text that was given."""

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Where a part of it stands in the text that was given; the blank in front does not count.

        >>> Charsmap(b"").normalise(" two  words ").span(4, 10)
        (6, 11)
        """
        while begin < end - 1 and self.text[begin] == SPACE_SYMBOL:
            begin += 1
        if begin >= end:
            return (0, 0)
        return self.origins[begin][0], self.origins[end - 1][1]


class Charsmap:
    """The rules of one model; none of them if there are no bytes."""

    def __init__(self, rules: bytes) -> None:
        self.data = rules
        """As the file of a model has them."""
        self._trie: tuple[int, ...] = ()
        self._written = b""
        self._first: dict[str, tuple[int, int | None] | None] = {}
        self._next: dict[tuple[int, str], tuple[int, int | None] | None] = {}
        if rules:
            size = int.from_bytes(rules[:4], "little")
            if size % 4 or size == 0 or 4 + size > len(rules):
                raise UserError("the rules of this SentencePiece model are torn")
            self._trie = struct.unpack(f"<{size // 4}I", rules[4 : 4 + size])
            self._written = rules[4 + size :]

    @classmethod
    def of(cls, tokenizer: str) -> "Charsmap":
        """The rules in the text of a tokenizer.json; it may have none."""
        held = json.loads(tokenizer)["normalizer"] or {}
        return cls(base64.b64decode(held.get("precompiled_charsmap") or ""))

    def normalise(self, text: str) -> NormalisedText:
        """The text with every rule applied and its blanks written as ▁."""
        out: list[str] = []
        origins: list[tuple[int, int]] = []
        place, blank, first = 0, True, self._first
        while place < len(text):
            char = text[place]
            if char not in first:
                first[char] = self._step(self._root(), char) if self._trie else None
            # Most characters begin no rule at all.
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
        """What is written for the longest rule that begins here, and how many characters it is."""
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
        """The node after a character's bytes, and the rule that ends there, if any."""
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
    """Where the children of a unit of a double array are, relative to it (darts-clone)."""
    return unit >> 10 << ((unit & 0x200) >> 6)
