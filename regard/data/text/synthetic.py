"""Synthetic sentence pairs: any number of them, with known answers and nothing to download.

`dates` are dates as people write them in two dozen languages, and the same dates in ISO 8601, the
task on which attention is easiest to see. Every date is unambiguous: in digits only, dots and
dashes have the day first, slashes the month, and years of two digits are 1970 to 2069. No day is in
two splits. The names of months and days are those of the Unicode CLDR, from the `babel` package.

`copy` are short messages full of names and numbers, and their summaries. The other words are few;
the names and numbers are too many for any vocabulary, so that they can only be copied, as a
pointer-generator does (See et al. 2017).

`reverse` are strings of 3 to 20 letters and the same letters from the end: nothing in them can be
guessed, so that what a model forgets of a long string is seen at once.

`echo` are short strings of random letters, each beside itself: what the simplest alignment can do.

A pair depends only on generator, seed, split and index.

>>> synthetic_pairs("copy", 1, seed=3, split="test")
[('let Klasaineith and Feklais know that the code is 57615', 'Klasaineith , Feklais : code 57615')]
"""

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import cache
from typing import Literal

from regard.core.errors import choose, positive
from regard.data.batch import random_integers, random_permutation

_Split = Literal["train", "validation", "test"]
TextPair = tuple[str, str]

SPLIT_BOUNDS: dict[_Split, tuple[float, float]] = {
    "train": (0.0, 0.8),
    "validation": (0.8, 0.9),
    "test": (0.9, 1.0),
}
"""The bounds of each split, as fractions of the shuffled days."""

FIRST_DAY, DAY_COUNT = date(1970, 1, 1), 36525
"""A hundred years, so that two digits of a year are unambiguous."""

LOCALES = (
    *("en_US", "en_GB", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "fi", "pl", "cs"),
    *("hu", "ro", "tr", "ru", "uk", "el", "id", "ca", "ja", "zh", "ko"),
)
_STYLES = ("short", "medium", "long", "full")

_PEOPLE: dict[str, tuple[str, ...]] = {
    "en_US": (
        *("@ 'of' MMMM, yy", "'the' @ 'of' MMMM y", "EEEE 'the' @ 'of' MMMM, y", "@ MMMM y"),
        *("MMM d y", "MMMM d y", "MMMM @, y", "MMMM d, yy", "EEE, d MMM y", "d-MMM-yy", "d/MMM/y"),
        *("yyyyMMdd", "y.MM.dd", "y-M-d", "M/d/y", "MM/dd/yy", "y MMM d"),
    ),
    "de": ("d.M.yy", "d. M. yy", "d. MMM yy", "'den' d. MMMM y", "EEEE, 'den' d.M.y"),
    "fr": ("'le' d MMMM y", "EEEE d MMMM yy"),
    "es": ("'el' d 'de' MMMM 'de' y", "d-MMM-y"),
    "it": ("'il' d MMMM y",),
    "nl": ("d-M-yy",),
    "pl": ("d.#.y", "d # y"),
    "ru": ("d MMMM y 'года'",),
    "ja": ("y年MM月dd日", "yy年M月d日"),
    "zh": ("y年M月d号",),
    "ko": ("yy년 M월 d일",),
}
"""Patterns that are common but not in the CLDR: @ is an English ordinal (3rd) and # a month in
Roman numerals."""

_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")

_CASES: tuple[Callable[[str], str], ...] = (str, str, str, str.lower, str.upper)
"""Three in five dates have their normal case."""

_Form = Callable[[date], str]
"""A way to write a date."""


def _ordinal(number: int) -> str:
    """An English ordinal number.

    >>> [_ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '22nd', '23rd']
    """
    teen = 10 < number % 100 < 14
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def is_unambiguous(pattern: str) -> bool:
    """Is it clear which number of a CLDR pattern is the day, in any language?

    It is if the month is spelled out. In digits only, the year may come first with four digits;
    otherwise the day is first with dots and dashes, and the month with slashes.

    >>> [is_unambiguous(each) for each in ("d MMM y", "y/M/d", "dd.MM.yy", "dd-MM-y", "M/d/yy")]
    [True, True, True, True, True]
    >>> [is_unambiguous(each) for each in ("dd/MM/y", "yy. M. d.", "M.d.y")]
    [False, False, False]
    """
    if "MMM" in pattern:
        return True
    order = "".join(dict.fromkeys(letter for letter in pattern if letter in "yMd"))
    if order == "yMd":
        return "yy" not in pattern
    return order == ("Mdy" if "/" in pattern else "dMy")


@cache
def date_forms() -> tuple[_Form, ...]:
    """All formats of dates: unambiguous styles of each locale, and common patterns."""
    from babel import Locale
    from babel.dates import format_date

    def form(pattern: str, locale: Locale) -> _Form:
        def written(day: date) -> str:
            text = format_date(day, pattern, locale)
            text = text.replace("@", _ordinal(day.day)).replace("#", _ROMAN[day.month - 1])
            return text.replace("\u202f", " ").replace("\xa0", " ")

        return written

    made: list[_Form] = []
    for name in LOCALES:
        locale = Locale.parse(name)
        styles = [str(locale.date_formats[style].pattern) for style in _STYLES]
        patterns = [*filter(is_unambiguous, styles), *_PEOPLE.get(name, ())]
        made += [form(pattern, locale) for pattern in dict.fromkeys(patterns)]
    return tuple(made)


def days_of_split(split: _Split) -> list[date]:
    """The days of a split; they do not depend on the seed, so that no split leaks into another."""
    first, last = (round(share * DAY_COUNT) for share in SPLIT_BOUNDS[split])
    return [
        FIRST_DAY + timedelta(days=after)
        for after in random_permutation(DAY_COUNT, 0)[first:last].tolist()
    ]


def date_pairs(count: int, seed: int, split: _Split) -> list[TextPair]:
    """Dates as people write them, and in ISO 8601; days repeat only after all others."""
    chosen, place = days_of_split(split), list(SPLIT_BOUNDS).index(split)
    order = random_permutation(len(chosen), seed, place).tolist()
    rolls = random_integers(2 * count, seed, place, 1).unflatten(0, (count, 2)).tolist()
    made: list[TextPair] = []
    for number, (form, case) in enumerate(rolls):
        day = chosen[order[number % len(order)]]
        text = date_forms()[form % len(date_forms())](day)
        made.append((_CASES[case % len(_CASES)](text), day.isoformat()))
    return made


_MESSAGES: tuple[TextPair, ...] = (
    ("please tell {a} that {number} is ready", "{a} : {number} ready"),
    ("could you ask {a} to bring {code} to {b} ?", "{a} : bring {code} to {b}"),
    ("{a} called about {code} and wants {b} to call back", "{b} : call {a} about {code}"),
    ("the meeting with {a} was moved to room {number}", "meeting {a} : room {number}"),
    ("order {code} for {a} was shipped from {b} today", "{code} : {b} to {a}"),
    ("do not forget that {a} still owes {b} {number} crowns", "{a} owes {b} {number}"),
    ("i heard from {b} that {a} has lost the key {code}", "{a} : lost {code} ( {b} )"),
    ("let {a} and {b} know that the code is {number}", "{a} , {b} : code {number}"),
    ("{number} people came to see {a} in {b}", "{a} in {b} : {number}"),
    ("who gave {code} to {a} ?", "{code} : who to {a} ?"),
    ("nobody but {a} may open {code} before {number}", "{code} : {a} after {number}"),
    ("{a} and not {b} wrote {code}", "{code} : by {a}"),
)
"""Messages and their summaries; {a} and {b} are names."""

_ONSETS = ("b", "br", "d", "dr", "f", "g", "h", "j", "k", "kl", "l", "m", "n", "p", "r", "s", "st")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ei")
_CODAS = ("n", "r", "l", "s", "th", "k", "x", "m")
_LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")


class _Dice:
    """A sequence of random choices."""

    def __init__(self, *place: int) -> None:
        self._rolls: Iterator[int] = iter(random_integers(32, *place).tolist())

    def of(self, several: tuple[str, ...]) -> str:
        """One of several strings."""
        return several[next(self._rolls) % len(several)]

    def between(self, least: int, most: int) -> int:
        """An integer, with both ends included."""
        return least + next(self._rolls) % (most - least + 1)

    def name(self) -> str:
        """A name of two or three syllables; there are about thirteen million."""
        syllables = (self.of(_ONSETS) + self.of(_VOWELS) for _ in range(self.between(2, 3)))
        return ("".join(syllables) + self.of(_CODAS)).capitalize()


def _copy(count: int, seed: int, split: _Split) -> list[TextPair]:
    """Messages full of names and numbers, and their summaries."""
    made: list[TextPair] = []
    for number in range(count):
        dice = _Dice(seed, list(SPLIT_BOUNDS).index(split), number, 2)
        message, summary = _MESSAGES[dice.between(0, len(_MESSAGES) - 1)]
        values = {
            "a": dice.name(),
            "b": dice.name(),
            "number": str(dice.between(10_000, 99_999)),
            "code": f"{dice.of(_CODAS)}{dice.of(_ONSETS)}-{dice.between(100, 9999)}",
        }
        made.append((message.format_map(values), summary.format_map(values)))
    return made


def _reverse(count: int, seed: int, split: _Split) -> list[TextPair]:
    """Strings of letters, and the same from the end."""
    made: list[TextPair] = []
    for number in range(count):
        dice = _Dice(seed, list(SPLIT_BOUNDS).index(split), number, 3)
        letters = [dice.of(_LETTERS) for _ in range(dice.between(3, 20))]
        made.append((" ".join(letters), " ".join(reversed(letters))))
    return made


def _echo(count: int, seed: int, split: _Split) -> list[TextPair]:
    """Strings of four to twelve letters, each beside itself."""
    made: list[TextPair] = []
    for number in range(count):
        dice = _Dice(seed, list(SPLIT_BOUNDS).index(split), number, 3)
        text = "".join(dice.of(_LETTERS) for _ in range(dice.between(4, 12)))
        made.append((text, text))
    return made


_Generator = Callable[[int, int, _Split], list[TextPair]]

GENERATORS: dict[str, _Generator] = {
    "dates": date_pairs,
    "copy": _copy,
    "reverse": _reverse,
    "echo": _echo,
}
"""Functions that return a number of pairs for a seed and a split."""


def synthetic_pairs(name: str, count: int, *, seed: int, split: _Split) -> list[TextPair]:
    """Pairs of a generator.

    >>> synthetic_pairs("dates", 2, seed=1, split="test")
    [('8/14/26', '2026-08-14'), ('22 de gener del 2005', '2005-01-22')]
    """
    return choose("generator", name, GENERATORS)(positive("count", count), seed, split)
