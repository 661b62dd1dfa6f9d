"""Entities found and missed, counted as conlleval counts them (Tjong Kim Sang and Buchholz 2000).

A chunk is right if its first word, its last word and its kind are. Precision, recall and F1 are
over the chunks of all sentences. Tags that break their scheme are read as conlleval reads them: a
chunk begins where the kind changes, or after a tag that ends one.

>>> counted = Counted.of([["B-PER", "I-PER", "O"]], [["B-PER", "I-PER", "B-LOC"]], "iob2")
>>> counted.total.precision, counted.total.recall, round(counted.accuracy, 2)
(0.5, 1.0, 0.67)
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regard.core.errors import UserError
from regard.data.text.conll import to_chunks
from regard.tasks.confusion import Rates, lines_of, means


@dataclass(frozen=True)
class Counted:
    """Chunks by kind, and words."""

    kinds: dict[str, Rates]
    words_right: int
    words: int

    @staticmethod
    def of(true: Sequence[Sequence[str]], said: Sequence[Sequence[str]], scheme: str) -> "Counted":
        """Counted over sentences; both sides have tags of one scheme."""
        right, found, there = Counter[str](), Counter[str](), Counter[str]()
        words_right = words = 0
        for ours, theirs in zip(true, said, strict=True):
            if len(ours) != len(theirs):
                raise UserError(f"{len(theirs)} tags were given for {len(ours)} words")
            gold, guess = set(to_chunks(ours, scheme)), set(to_chunks(theirs, scheme))
            there.update(chunk.kind for chunk in gold)
            found.update(chunk.kind for chunk in guess)
            right.update(chunk.kind for chunk in gold & guess)
            words += len(ours)
            words_right += sum(a == b for a, b in zip(ours, theirs, strict=True))
        kinds = {
            kind: Rates(right[kind], found[kind], there[kind]) for kind in sorted(there | found)
        }
        return Counted(kinds, words_right, words)

    @property
    def total(self) -> Rates:
        """All kinds together: what conlleval calls overall."""
        return sum(self.kinds.values(), Rates(0, 0, 0))

    @property
    def accuracy(self) -> float:
        """The share of words with the right tag."""
        return self.words_right / self.words if self.words else 0.0

    def table(self) -> str:
        """A row for each kind, their means, and all together."""
        rows: dict[str, tuple[int | float, ...]] = {
            name: (*each.row(), each.there) for name, each in self.kinds.items()
        }
        total = self.total
        if self.kinds:
            rows["macro"] = (*means(self.kinds.values()), total.there)
        return lines_of({**rows, "overall": (*total.row(), total.there)}, "chunks")
