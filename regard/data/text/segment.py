"""Rule-based splitting of raw text into words, and of words into sentences.

Words are runs of letters and digits, possibly joined by apostrophes; every other character is a
word of its own. Markup such as <br /> ends a sentence and is dropped.

>>> plain_words("Don't miss it!<br /><br />Mr. Bean rules...")
["don't", 'miss', 'it', '!', '\\n', 'mr', '.', 'bean', 'rules', '.', '.', '.']
>>> [" ".join(each) for each in split_sentences(plain_words("It's Mr. Bean. He rules... Go!"))]
["it's mr . bean .", 'he rules . . .', 'go !']
"""

import re
from collections.abc import Iterable

LINE_BREAK = "\n"
"""The word at the end of a line or paragraph."""

_ENDS = frozenset(".!?")
_CLOSES = frozenset("\"')]}”’")
"""Characters after the end of a sentence that still belong to it."""

_TITLES = frozenset(["mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs"])
"""Abbreviations whose full stop does not end a sentence, as after a single letter."""

_MARKUP = re.compile(r"<[a-zA-Z/][^<>]{0,80}>")
_WORD = re.compile(r"\w+(?:['’]\w+)*|\n|[^\w\s]")
_BREAKS = re.compile(r"\s*\n\s*")


def plain_words(text: str, *, lowercase: bool = True) -> list[str]:
    """The words and punctuation of a text, with LINE_BREAK at the end of a line."""
    text = _BREAKS.sub(LINE_BREAK, _MARKUP.sub(LINE_BREAK, text.lower() if lowercase else text))
    return _WORD.findall(text.strip())


_BLANKS = re.compile(r"[\S\x1c-\x1f]+")
_NUMBER = r"\d+(?:[.,:/]\d+)+"
_ABBREVIATION = r"(?:[^\W\d_]\.){2,}"
_HYPHENATED = r"\w+(?:[-]\w+)*"
_APOSTROPHE = r"['’]\w+"
_RAW = re.compile(rf"{_NUMBER}|{_ABBREVIATION}|{_APOSTROPHE}|{_HYPHENATED}|[^\w\s]")


def blank_spans(text: str) -> list[tuple[int, int]]:
    """The place of each word between blanks.

    >>> blank_spans("so it  is")
    [(0, 2), (3, 5), (7, 9)]
    """
    return [found.span() for found in _BLANKS.finditer(text)]


def word_spans(text: str) -> list[tuple[int, int]]:
    """The place of each word and sign of raw text, as taggers' files divide it.

    Numbers, abbreviations with full stops and hyphenated words are whole; an apostrophe begins a
    word, as in the corpora of the CoNLL shared tasks.

    >>> text = "Anna's U.S. visa (10,000 well-spent dollars)."
    >>> [text[first:last] for first, last in word_spans(text)]
    ['Anna', "'s", 'U.S.', 'visa', '(', '10,000', 'well-spent', 'dollars', ')', '.']
    """
    return [found.span() for found in _RAW.finditer(text)]


def split_sentences(words: Iterable[str]) -> list[list[str]]:
    """Sentences of words: up to . ! or ? and closing quotes or brackets, or to a LINE_BREAK."""
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
