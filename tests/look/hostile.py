"""Tokens that have broken other people's pictures."""

import random

TOKENS: dict[str, str] = {
    "mathtext": "$x_{",
    "mathtext that ends": r"$\frac{a}{$",
    "markup": "<script>alert(1)</script>",
    "entity": "&amp;",
    "end of comment": "-->",
    "new line": "two\nlines",
    "only a new line": "\n",
    "tab": "\t",
    "space": " ",
    "spaces around": " a b ",
    "nothing": "",
    "zero width": "a\u200bb",
    "only zero width": "\u200d",
    "null": "\x00",
    "bell": "\x07",
    "Arabic": "مرحبا",
    "Hebrew": "שלום",
    "right to left override": "\u202egnp.exe",
    "Chinese": "中文",
    "Korean": "한국어",
    "Thai": "ภาษาไทย",
    "emoji": "😀",
    "family": "👩‍👩‍👧‍👦",
    "flag": "🇫🇷",
    "mark alone": "\u0301",
    "many marks": "a" + "\u0301" * 40,
    "half a letter": "\ud83d",
    "private": "\ue000",
    "no character": "\uffff",
    "beyond": "\U0010ffff",
    "long": "x" * 10_000,
    "long Chinese": "中" * 10_000,
    "backslash": "\\",
    "percent": "%s %(x)d",
    "braces": "{}",
    "underscore": "_nolegend_",
}


def letters(seed: int, count: int) -> list[str]:
    """Short texts of letters from all over Unicode, the same for a seed."""
    draw = random.Random(seed)
    return ["".join(chr(draw.randrange(0x110000)) for _ in range(3)) for _ in range(count)]
