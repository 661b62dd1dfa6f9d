"""Hypotheses of a search, the backpointers to reconstruct them, and the finished beams."""

from bisect import insort
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Hypothesis:
    """A possible target of a sentence."""

    tokens: list[int]
    """Without the begin and end tokens."""
    score: float
    """Its log-probability after the penalties."""
    log_probability: float
    """Of the tokens and the end token, by the model; nan if it was not computed."""
    rows: list[int]
    """The row of the batch at every step: token t was chosen in row `rows[t]`, and the end token in
    the last row.
    """


SentenceHypotheses = tuple[int, list[Hypothesis]]
"""The number of a sentence, and its hypotheses with the best first."""


class Backpointers:
    """For every row of every step, its row in the previous step and its token.

    Nothing is copied when beams are reordered; a hypothesis is reconstructed at the end.

    >>> backpointers = Backpointers()
    >>> backpointers.add(np.array([0, 0]), np.array([7, 8]))
    >>> backpointers.add(np.array([1, 0]), np.array([5, 6]))
    >>> backpointers.trace(0)
    ([8, 5], [0, 1, 0])
    """

    def __init__(self) -> None:
        self._origins: list[NDArray[np.int64]] = []
        self._tokens: list[NDArray[np.int64]] = []

    def add(self, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        """Add a step: the previous row and the input token of each row."""
        self._origins.append(rows)
        self._tokens.append(tokens)

    def trace(self, row: int, step: int | None = None) -> tuple[list[int], list[int]]:
        """The tokens before a row of a step (by default the newest), and its row in each step."""
        step = len(self._origins) if step is None else step
        tokens, rows = [], [row]
        for each in range(step - 1, -1, -1):
            tokens.append(int(self._tokens[each][row]))
            row = int(self._origins[each][row])
            rows.append(row)
        return tokens[::-1], rows[::-1]


class FinishedBeam(NamedTuple):
    """A hypothesis with an end token; `row` and `step` are where its backpointers start."""

    score: float
    log_probability: float
    row: int
    step: int


class FinishedBeams:
    """The best finished hypotheses of each sentence; all arrays are `[sentences, groups]`.

    Each group of beams has its own list, or the first groups would fill all lists.

    >>> finished = FinishedBeams(sentences=1, groups=1, size=2)
    >>> for score in (-3.0, -1.0, -2.0):
    ...     finished.add(0, 0, FinishedBeam(score, score, row=0, step=4))
    >>> [each.score for each in finished.best(0)]
    [-1.0, -2.0]
    >>> finished.worst, finished.counts
    (array([[-2.]]), array([[3]]))
    """

    def __init__(self, sentences: int, groups: int, size: int) -> None:
        self._lists: list[list[list[FinishedBeam]]] = [
            [[] for _ in range(groups)] for _ in range(sentences)
        ]
        self._size = size
        self.any = False
        """Has any hypothesis finished?"""
        self.worst: NDArray[np.float64] = np.full((sentences, groups), -np.inf)
        """The score that a further hypothesis must exceed; -inf until a list is full."""
        self.counts: NDArray[np.int64] = np.zeros((sentences, groups), dtype=np.int64)
        """The number of finished hypotheses, including those that are not in a list."""

    def add(self, sentence: int, group: int, end: FinishedBeam) -> None:
        """Add a finished hypothesis; of equal scores the first ranks higher."""
        ends = self._lists[sentence][group]
        insort(ends, end, key=lambda each: -each.score)
        del ends[self._size :]
        if len(ends) == self._size:
            self.worst[sentence, group] = ends[-1].score
        self.counts[sentence, group] += 1
        self.any = True

    def best(self, sentence: int) -> list[FinishedBeam]:
        """The hypotheses of all groups, the best first."""
        ends = [end for group in self._lists[sentence] for end in group]
        return sorted(ends, key=lambda each: -each.score)

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Keep only these sentences."""
        self._lists = [self._lists[place] for place in kept.nonzero()[0]]
        self.worst, self.counts = self.worst[kept], self.counts[kept]
