"""How often each class was taken for which, and all that follows from it.

>>> counted = Confusion.of(["cat", "dog"], [0, 0, 1], [0, 1, 1])
>>> counted.accuracy, counted.macro_f1
(0.6666666666666666, 0.6666666666666666)
>>> print(counted.table())
       precision  recall      f1  texts
cat       1.0000  0.5000  0.6667      2
dog       0.5000  1.0000  0.6667      1
macro     0.7500  0.7500  0.6667      3
micro     0.6667  0.6667  0.6667      3
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from regard.core.errors import UserError


@dataclass(frozen=True)
class Rates:
    """Precision and recall of something that was looked for."""

    right: int | float
    """Found, and there."""
    found: int | float
    there: int | float

    @property
    def precision(self) -> float:
        """How much of what was found was there; 0 if nothing was found."""
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """How much of what was there was found; 0 if nothing was there."""
        return self.right / self.there if self.there else 0.0

    @property
    def f1(self) -> float:
        """Their harmonic mean; 0 where nothing is right."""
        total = self.found + self.there
        return 2 * self.right / total if total else 0.0

    def __add__(self, other: "Rates") -> "Rates":
        return Rates(self.right + other.right, self.found + other.found, self.there + other.there)

    def row(self) -> list[float]:
        """Precision, recall and F1."""
        return [self.precision, self.recall, self.f1]


def as_counts(rates: Mapping[str, Rates]) -> dict[str, float]:
    """Rates as counts with names, which batches add up; `rates_in` has them back.

    >>> as_counts({"cat": Rates(1, 2, 3)})
    {'right cat': 1.0, 'found cat': 2.0, 'there cat': 3.0}
    """
    return {
        f"{what} {name}": float(getattr(each, what))
        for name, each in rates.items()
        for what in ("right", "found", "there")
    }


def rates_in(totals: Mapping[str, float], names: Iterable[str]) -> dict[str, Rates]:
    """The rates of these names; of one that was never there nor found, all are 0."""
    return {
        name: Rates(*(totals.get(f"{what} {name}", 0.0) for what in ("right", "found", "there")))
        for name in names
    }


def macro(rates: Iterable[Rates]) -> float:
    """The mean of several F1, each counting alike."""
    held = [each.f1 for each in rates]
    return sum(held) / len(held) if held else 0.0


@dataclass(frozen=True)
class Confusion:
    """`counts[i][j]`: how many texts of class i were taken for class j."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(labels: Sequence[str], true: Sequence[int], said: Sequence[int]) -> "Confusion":
        """Counted from the classes of some texts and what was said of them."""
        if not true:
            raise UserError("there is nothing to count: no texts")
        table = [[0] * len(labels) for _ in labels]
        for ours, theirs in zip(true, said, strict=True):
            table[ours][theirs] += 1
        return Confusion(tuple(labels), tuple(tuple(row) for row in table))

    @property
    def texts(self) -> int:
        """How many were counted."""
        return sum(sum(row) for row in self.counts)

    @property
    def classes(self) -> dict[str, Rates]:
        """Each class for itself."""
        found = [sum(column) for column in zip(*self.counts, strict=True)]
        return {
            label: Rates(self.counts[place][place], found[place], sum(self.counts[place]))
            for place, label in enumerate(self.labels)
        }

    @property
    def accuracy(self) -> float:
        """The share that was right."""
        return sum(each.right for each in self.classes.values()) / self.texts

    @property
    def macro_f1(self) -> float:
        """The mean of the classes' F1, each class counting alike; 0 for one never found."""
        return macro(self.classes.values())

    @property
    def micro_f1(self) -> float:
        """F1 over all decisions; where every text has one class this is the accuracy."""
        return sum(self.classes.values(), Rates(0, 0, 0)).f1

    def table(self) -> str:
        """A row for each class, and the means."""
        rows = {label: (*each.row(), each.there) for label, each in self.classes.items()}
        total = sum(self.classes.values(), Rates(0, 0, 0))
        mean = (*means(self.classes.values()), self.texts)
        rows = {**rows, "macro": mean, "micro": (*total.row(), self.texts)}
        return lines_of(rows, "texts")


def means(rates: Iterable[Rates]) -> list[float]:
    """The mean precision, recall and F1 of several."""
    columns = zip(*(each.row() for each in rates), strict=True)
    return [sum(column) / len(column) for column in columns]


def lines_of(rows: dict[str, tuple[int | float, ...]], counted: str) -> str:
    """A table of precision, recall and F1 in plain letters."""
    wide = max(map(len, rows))
    head = f"{'':{wide}}  precision  recall      f1  {counted}"
    body = [
        f"{name:{wide}}  {values[0]:9.4f}  {values[1]:6.4f}  {values[2]:6.4f}  "
        f"{int(values[3]):{len(counted)}d}"
        for name, values in rows.items()
    ]
    return "\n".join((head, *body))
