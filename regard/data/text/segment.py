"""From running text to words, and from words to sentences, by a few plain rules.

For text that nobody has tokenised. Words are runs of letters and digits, with what an apostrophe
joins; every other sign stands alone. Mark-up of the kind of <br /> ends a sentence and is no word.

>>> plain_words("Don't miss it!<br /><br />Mr. Bean rules...")
["don't", 'miss', 'it', '!', '\\n', 'mr', '.', 'bean', 'rules', '.', '.', '.']
>>> [" ".join(each) for each in split_sentences(plain_words("It's Mr. Bean. He rules... Go!"))]
["it's mr . bean .", 'he rules . . .', 'go !']
"""

import re
from collections.abc import Iterable

LINE_BREAK = "\n"
"""Stands among words where a line or a paragraph ends."""

_ENDS = frozenset(".!?")
_CLOSES = frozenset("\"')]}”’")
"""What may follow the end of a sentence and still belong to it."""

_TITLES = frozenset(["mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs"])
"""Words whose full stop ends no sentence; neither does that of a single letter."""

_MARKUP = re.compile(r"<[a-zA-Z/][^<>]{0,80}>")
_WORD = re.compile(r"\w+(?:['’]\w+)*|\n|[^\w\s]")
_BREAKS = re.compile(r"\s*\n\s*")


def plain_words(text: str, *, lowercase: bool = True) -> list[str]:
    """The words and signs of a text; BREAK where a line ends."""
    text = _BREAKS.sub(LINE_BREAK, _MARKUP.sub(LINE_BREAK, text.lower() if lowercase else text))
    return _WORD.findall(text.strip())


def split_sentences(words: Iterable[str]) -> list[list[str]]:
    """Sentences of words: up to . ! or ? and what closes behind them, or to a BREAK."""
    found: list[list[str]] = []
    held: list[str] = []
    ended = False
    for word in words:
        if word == LINE_BREAK or (ended and word not in _ENDS and word not in _CLOSES):
            if held:
                found.append(held)
            held, ended = [], False
        if word == LINE_BREAK:
            continue
        if word in _ENDS:
            short = word == "." and held and (held[-1] in _TITLES or len(held[-1]) == 1)
            ended = ended or not (short and held[-1].isalpha())
        held.append(word)
    return [*found, held] if held else found
