"""What is written for a token: short, on one line, with nothing in it that cannot be seen.

>>> visible(" "), visible("the end"), visible("line\\n"), visible("")
('␣', 'the end', 'line↵', '∅')
>>> visible("zero\\u200bwidth"), visible("x" * 10_000)
('zero\\\\u{200b}width', 'xxxxxxxxxxxxx…xxxxxx')
"""

import unicodedata
from collections.abc import Callable

LONGEST = 20
"""Signs of a label; of a longer one the middle is left out, since both ends tell words apart."""
_TAIL = 6
"""Signs that are kept of its end."""

SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "←"}
"""White space that has a sign of its own."""


def visible(token: str, drawable: Callable[[str], bool] = lambda letter: True) -> str:
    """The token as it can be read on paper; `drawable` is True for a character that a font has.

    A space between other letters stays one.
    """
    if not token:
        return "∅"
    start = len(token) - len(token.lstrip(" "))
    end = len(token.rstrip(" "))
    # No more than can be shown: a token may be a whole book.
    places = [place for place in range(len(token)) if min(place, len(token) - 1 - place) <= LONGEST]
    signs = [
        token[place] if start <= place < end and token[place] == " " else sign(token[place])
        for place in places
    ]
    signs = [
        "".join(each if drawable(each) else escape_letter(each) for each in text) for text in signs
    ]
    # A mark that would sit on the letter before it gets the circle that stands for any letter.
    circle = "◌" if unicodedata.combining(token[0]) else ""
    return circle + shorten_label(signs)


def sign(letter: str) -> str:
    """The letter itself, or what stands for one that has no ink of its own."""
    if letter in SIGNS:
        return SIGNS[letter]
    # Separators, controls, marks of direction, halves of surrogate pairs.
    return escape_letter(letter) if unicodedata.category(letter)[0] in "ZC" else letter


def escape_letter(letter: str) -> str:
    """The number of a letter that cannot be drawn.

    >>> escape_letter("中")
    '\\\\u{4e2d}'
    """
    return f"\\u{{{ord(letter):x}}}"


def shorten_label(signs: list[str]) -> str:
    """The signs as one text, without the middle if it is too long; no sign is cut in two."""
    if sum(map(len, signs)) <= LONGEST:
        return "".join(signs)
    head = _fitting(signs, LONGEST - _TAIL - 1) or signs[:1]
    tail = _fitting(signs[: len(head) - 1 : -1], _TAIL)
    return "".join([*head, "…", *reversed(tail)])


def _fitting(signs: list[str], room: int) -> list[str]:
    """As many of the first signs as there is room for."""
    count = 0
    while count < len(signs) and len(signs[count]) <= room:
        room -= len(signs[count])
        count += 1
    return signs[:count]
