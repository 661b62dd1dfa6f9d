"""Hypothesis: what a search found, and the trail that leads back to where it came from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Hypothesis:
    """One way to write the target of a sentence."""

    tokens: list[int]
    """Without the token that begins and the one that ends it."""
    score: float
    """What it was ranked by: its log-probability after the penalties."""
    log_probability: float
    """By the model alone, with the token that ends it; nan if it was not asked for."""
    rows: list[int]
    """For every step the row of that step's batch in which it was written: `rows[t]` said token t,
    and the last row, which is one more than there are tokens, said the end.
    """


Found = tuple[int, list[Hypothesis]]
"""The number of a sentence and its hypotheses, the best first."""


class Trail:
    """For every step, which row of the step before each row came from, and what it was told.

    Nothing is copied as beams are reordered; a hypothesis is read backwards when it is wanted.

    >>> trail = Trail()
    >>> trail.add(np.array([0, 0]), np.array([7, 8]))
    >>> trail.add(np.array([1, 0]), np.array([5, 6]))
    >>> trail.back(0)
    ([8, 5], [0, 1, 0])
    """

    def __init__(self) -> None:
        self._origins: list[NDArray[np.int64]] = []
        self._tokens: list[NDArray[np.int64]] = []

    def add(self, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        """The rows of the next step: where each was before, and the token it reads."""
        self._origins.append(rows)
        self._tokens.append(tokens)

    def back(self, row: int, step: int | None = None) -> tuple[list[int], list[int]]:
        """The tokens before a row of a step, the newest if none is given, and all its rows."""
        step = len(self._origins) if step is None else step
        tokens, rows = [], [row]
        for each in range(step - 1, -1, -1):
            tokens.append(int(self._tokens[each][row]))
            row = int(self._origins[each][row])
            rows.append(row)
        return tokens[::-1], rows[::-1]
