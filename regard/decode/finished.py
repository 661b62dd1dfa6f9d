"""Ended: the best hypotheses of each sentence that have ended, and the worst of those.

A group of beams has a list of its own, or the groups that come first would fill the lists of all.

>>> ended = Ended(sentences=1, groups=1, size=2)
>>> for score in (-3.0, -1.0, -2.0):
...     ended.add(0, 0, End(score, score, row=0, step=4))
>>> [end.score for end in ended.best(0)]
[-1.0, -2.0]
>>> ended.worst, ended.counts
(array([[-2.]]), array([[3]]))
"""

from bisect import insort
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class End(NamedTuple):
    """A hypothesis that ended: what it is worth, and where its trail begins."""

    score: float
    log_probability: float
    row: int
    step: int


class Ended:
    """Lists for all sentences of a batch and their groups; all arrays are `[sentences, groups]`."""

    def __init__(self, sentences: int, groups: int, size: int) -> None:
        self._lists: list[list[list[End]]] = [[[] for _ in range(groups)] for _ in range(sentences)]
        self._size = size
        self.any = False
        """Has any hypothesis ended?"""
        self.worst: NDArray[np.float64] = np.full((sentences, groups), -np.inf)
        """What a further one has to be better than; anything is while a list is not full."""
        self.counts: NDArray[np.int64] = np.zeros((sentences, groups), dtype=np.int64)
        """How many have ended, also those that were not among the best."""

    def add(self, sentence: int, group: int, end: End) -> None:
        """One more that ended; of those that tie, the first is the better."""
        ends = self._lists[sentence][group]
        insort(ends, end, key=lambda each: -each.score)
        del ends[self._size :]
        if len(ends) == self._size:
            self.worst[sentence, group] = ends[-1].score
        self.counts[sentence, group] += 1
        self.any = True

    def best(self, sentence: int) -> list[End]:
        """Those of all groups, the best first."""
        ends = [end for group in self._lists[sentence] for end in group]
        return sorted(ends, key=lambda each: -each.score)

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Go on with these sentences alone."""
        self._lists = [self._lists[place] for place in kept.nonzero()[0]]
        self.worst, self.counts = self.worst[kept], self.counts[kept]
