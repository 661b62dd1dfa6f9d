"""Errors for people: what was given, what is allowed, and what to do.

`UserError` is raised for anything a user can put right. `assert` is left for our own bugs.
"""

import shlex
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

_Row = TypeVar("_Row")


class UserError(ValueError):
    """An error that the caller can correct; the message states how."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is spelled most like the given one, if any comes close.

    >>> nearest("addtive", ["dot", "additive"])
    'additive'
    """
    matches = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None


def unknown(what: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in a table: the nearest one first, then all of them.

    >>> print(unknown("score", "dto", ["dot", "cosine"]))
    unknown score 'dto': did you mean 'dot'? Known: cosine, dot
    """
    names = sorted(known)
    guess = nearest(name, names)
    hint = f" did you mean {guess!r}?" if guess else ""
    return UserError(f"unknown {what} {name!r}:{hint} Known: {', '.join(names) or '(none)'}")


def command(verb: str, *words: object) -> str:
    """A command of regard that can be copied into a shell, whatever its paths are.

    >>> command("resume", "runs/my run")
    "regard resume 'runs/my run'"
    """
    return shlex.join(["regard", verb, *map(str, words)])


def choose(what: str, name: str, table: Mapping[str, _Row]) -> _Row:
    """The row of a table, or an error that names the nearest row.

    >>> choose("score", "dot", {"dot": 1})
    1
    """
    if name not in table:
        raise unknown(what, name, table)
    return table[name]


def positive(name: str, value: int) -> int:
    """The value, if it is a whole number above zero.

    >>> positive("heads", 0)
    Traceback (most recent call last):
    regard.core.errors.UserError: heads=0 must be a whole number above zero
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{name}={value!r} must be a whole number above zero")
    return value


def divides(name: str, value: int, by_name: str, by: int) -> int:
    """The quotient, if the division leaves no rest.

    >>> divides("width", 10, "heads", 3)
    Traceback (most recent call last):
    regard.core.errors.UserError: width=10 is not divisible by heads=3
    """
    if positive(name, value) % positive(by_name, by):
        raise UserError(f"{name}={value} is not divisible by {by_name}={by}")
    return value // by


def fraction(name: str, value: float) -> float:
    """The value, if it is at least zero and below one.

    >>> fraction("dropout", 1.5)
    Traceback (most recent call last):
    regard.core.errors.UserError: dropout=1.5 must be at least 0 and below 1
    """
    if not 0.0 <= value < 1.0:
        raise UserError(f"{name}={value} must be at least 0 and below 1")
    return value


def above_zero(name: str, value: float) -> float:
    """The value, if it is a finite number above zero.

    >>> above_zero("temperature", 0.0)
    Traceback (most recent call last):
    regard.core.errors.UserError: temperature=0.0 must be a finite number above zero
    """
    if not 0.0 < value < float("inf"):
        raise UserError(f"{name}={value} must be a finite number above zero")
    return value
