"""Answers beside those that people gave: exact match and F1 of words, as SQuAD's scripts have them.

Case, punctuation, articles and blanks do not count. Of several answers the best one counts. Where
one of the two is empty, as no answer in SQuAD 2.0 is, both must be.

>>> exact_match("The cat.", "cat"), round(f1("the black cat", "a cat"), 3), f1("", "cat")
(1.0, 0.667, 0.0)
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _plain(answer: str) -> list[str]:
    """The words of an answer that count.

    >>> _plain("The U.S.A.,  an  answer")
    ['usa', 'answer']
    """
    return _ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split()


def exact_match(said: str, gold: str) -> float:
    """Are they the same?"""
    return float(_plain(said) == _plain(gold))


def f1(said: str, gold: str) -> float:
    """The harmonic mean of how many of the words said are right, and how many of the right said."""
    ours, theirs = _plain(said), _plain(gold)
    if not ours or not theirs:
        return float(ours == theirs)
    same = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * same / (len(ours) + len(theirs))


def over_all(
    measure: Callable[[str, str], float], said: Sequence[str], golds: Sequence[Sequence[str]]
) -> float:
    """The mean over questions of the best over their answers, in per cent.

    Answers of which no word counts are left out, as in the script of SQuAD 2.0; if none is left,
    the right answer is none.
    """
    best = [
        max(measure(one, gold) for gold in [each for each in many if _plain(each)] or [""])
        for one, many in zip(said, golds, strict=True)
    ]
    return 100 * sum(best) / len(best) if best else 0.0
