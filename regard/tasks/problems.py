"""What the scores of a classifier stand for: one class of several, several labels, or numbers.

A text has one class (a softmax, cross-entropy), any number of labels (a sigmoid for each, binary
cross-entropy), or numbers (the scores themselves, squared error). `PROBLEMS` has them by the name
that `data.problem` calls them.

>>> problem = PROBLEMS["multi_label"]
>>> problem.target(["sad", "long"], ("funny", "long", "sad"), "f.tsv:1")
[0.0, 1.0, 1.0]
>>> problem.prediction("A film.", [0.1, 0.9, 0.7], ("funny", "long", "sad")).text
'long, sad\\t0.9000, 0.7000'
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.errors import UserError, nearest
from regard.core.padding import IGNORE
from regard.outputs.classes import Classes
from regard.tasks.abilities import Choice, Prediction
from regard.tasks.confusion import Rates, as_counts, macro, rates_in

Label = str | float | Sequence[str] | Sequence[float]
"""What a text is labelled with: a class, some labels, a number, or some numbers."""

_Shown = str | list[str]
"""A text, or the two of a pair."""

THRESHOLD = 0.5
"""A label is predicted from this probability on."""


class Problem(ABC):
    """The targets, the loss, the figures and the predictions of one kind of label."""

    @abstractmethod
    def target(self, label: Label, labels: Sequence[str], where: str) -> int | list[float]:
        """A label as numbers; `where` is its place in a file, for error messages."""

    @abstractmethod
    def stack(
        self, targets: Sequence[int | list[float]]
    ) -> Int[Tensor, "N"] | Float[Tensor, "N C"]:
        """Targets as a tensor."""

    @abstractmethod
    def without(
        self, targets: Int[Tensor, "B"] | Float[Tensor, "B C"], empty: Bool[Tensor, "B"]
    ) -> Int[Tensor, "B"] | Float[Tensor, "B C"]:
        """Targets of a batch in which some rows are empty."""

    @abstractmethod
    def real(self, targets: Int[Tensor, "B"] | Float[Tensor, "B C"]) -> Bool[Tensor, "B"]:
        """Which rows have a target."""

    @abstractmethod
    def loss(
        self, output: Classes, targets: Int[Tensor, "B"] | Float[Tensor, "B C"]
    ) -> Float[Tensor, ""]:
        """The loss, summed over texts."""

    @abstractmethod
    def values(self, logits: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """What the scores stand for: probabilities, or numbers."""

    @abstractmethod
    def counts(
        self,
        logits: Float[Tensor, "B C"],
        targets: Int[Tensor, "B"] | Float[Tensor, "B C"],
        labels: Sequence[str],
        *,
        detailed: bool,
    ) -> dict[str, float]:
        """Sums over a batch without empty rows; `metrics` makes figures of them."""

    @abstractmethod
    def metrics(self, totals: Mapping[str, float], labels: Sequence[str]) -> dict[str, float]:
        """Figures, from counts per text."""

    @abstractmethod
    def prediction(self, text: _Shown, row: Sequence[float], labels: Sequence[str]) -> Prediction:
        """What is predicted for a text, from its values."""

    @abstractmethod
    def title(self, row: Sequence[float], labels: Sequence[str]) -> str:
        """The same in a few words."""


class _OneClass(Problem):
    """One class of several."""

    def target(self, label: Label, labels: Sequence[str], where: str) -> int:
        """The number of the class."""
        return _number_of(str(label), labels, where)

    def stack(self, targets: Sequence[int | list[float]]) -> Int[Tensor, "N"]:
        """Whole numbers."""
        return torch.tensor(targets, dtype=torch.int64)

    def without(self, targets: Tensor, empty: Bool[Tensor, "B"]) -> Int[Tensor, "B"]:
        """An empty row has no class."""
        return torch.where(empty, IGNORE, targets)

    def real(self, targets: Tensor) -> Bool[Tensor, "B"]:
        """Those that have a class."""
        return targets != IGNORE

    def loss(self, output: Classes, targets: Tensor) -> Float[Tensor, ""]:
        """-log p of the classes."""
        return output.nll(targets)

    def values(self, logits: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """Probabilities, whose sum is one."""
        return logits.softmax(1)

    def counts(
        self,
        logits: Float[Tensor, "B C"],
        targets: Tensor,
        labels: Sequence[str],
        *,
        detailed: bool,
    ) -> dict[str, float]:
        """How many are right; in detail, how often each class was there, found and right."""
        found = logits.argmax(1)
        counts = {"accuracy": float((found == targets).sum())}
        held = (targets[found == targets], found, targets)
        each = [of.bincount(minlength=len(labels)).tolist() for of in held]
        return counts | (_rate_counts(labels, each) if detailed else {})

    def metrics(self, totals: Mapping[str, float], labels: Sequence[str]) -> dict[str, float]:
        """The share that was right, and F1 over classes and over texts."""
        return {"accuracy": totals["accuracy"], **_f1(totals, labels)}

    def prediction(self, text: _Shown, row: Sequence[float], labels: Sequence[str]) -> Prediction:
        """The most likely class, with the probability of each."""
        named, choices = _choices(row, labels)
        return Prediction(
            text=f"{choices[0].text}\t{choices[0].probability:.4f}",
            fields={"text": text, "label": choices[0].text, "probabilities": named},
            choices=choices,
        )

    def title(self, row: Sequence[float], labels: Sequence[str]) -> str:
        """The most likely class."""
        best = max(range(len(row)), key=lambda number: row[number])
        return f"{labels[best]} {row[best]:.4f}"


class _Rows(Problem):
    """Targets with a number for each label; those of empty rows are not numbers (NaN)."""

    def stack(self, targets: Sequence[int | list[float]]) -> Float[Tensor, "N C"]:
        """A row for each text."""
        return torch.tensor(targets, dtype=torch.float32)

    def without(self, targets: Tensor, empty: Bool[Tensor, "B"]) -> Float[Tensor, "B C"]:
        """An empty row has no numbers."""
        return torch.where(empty[:, None], torch.nan, targets)

    def real(self, targets: Tensor) -> Bool[Tensor, "B"]:
        """Those that have numbers."""
        return ~targets.isnan().any(1)


class _SeveralLabels(_Rows):
    """Any number of labels, each independent of the others."""

    def target(self, label: Label, labels: Sequence[str], where: str) -> list[float]:
        """One for each label that a text has, and zero for the others."""
        given = [label] if isinstance(label, str | float | int) else label
        held = {_number_of(str(each), labels, where) for each in given}
        return [float(number in held) for number in range(len(labels))]

    def loss(self, output: Classes, targets: Tensor) -> Float[Tensor, ""]:
        """Binary cross-entropy, averaged over labels."""
        return output.binary_nll(targets)

    def values(self, logits: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """A probability for each label."""
        return logits.sigmoid()

    def counts(
        self,
        logits: Float[Tensor, "B C"],
        targets: Tensor,
        labels: Sequence[str],
        *,
        detailed: bool,
    ) -> dict[str, float]:
        """How many texts have exactly their labels; in detail, how often each was found."""
        found, there = logits.sigmoid() >= THRESHOLD, targets >= THRESHOLD
        counts = {"accuracy": float((found == there).all(1).sum())}
        each = [of.sum(0).tolist() for of in (found & there, found, there)]
        return counts | (_rate_counts(labels, each) if detailed else {})

    def metrics(self, totals: Mapping[str, float], labels: Sequence[str]) -> dict[str, float]:
        """The share of texts with exactly their labels, and F1 over labels and over decisions."""
        return {"accuracy": totals["accuracy"], **_f1(totals, labels)}

    def prediction(self, text: _Shown, row: Sequence[float], labels: Sequence[str]) -> Prediction:
        """The labels that are likelier than not, with the probability of each."""
        named, choices = _choices(row, labels)
        likely = [each for each in choices if each.probability >= THRESHOLD]
        names, numbers = [c.text for c in likely], [f"{c.probability:.4f}" for c in likely]
        return Prediction(
            text=f"{', '.join(names)}\t{', '.join(numbers)}",
            fields={"text": text, "labels": names, "probabilities": named},
            choices=choices,
        )

    def title(self, row: Sequence[float], labels: Sequence[str]) -> str:
        """The labels that are likelier than not."""
        likely = [f"{name} {p:.4f}" for name, p in zip(labels, row, strict=True) if p >= THRESHOLD]
        return ", ".join(likely) or "no label"


class _Numbers(_Rows):
    """Numbers, such as a grade or a similarity; usually one."""

    def target(self, label: Label, labels: Sequence[str], where: str) -> list[float]:
        """The numbers."""
        given = [label] if isinstance(label, str | float | int) else label
        try:
            found = [float(each) for each in given]
        except ValueError:
            found = [math.nan]
        if not all(map(math.isfinite, found)) or len(found) != len(labels):
            raise UserError(
                f"{where}: the label {label!r} must be {len(labels)} finite number"
                f"{'s' * (len(labels) > 1)}, since data.problem is regression"
            )
        return found

    def loss(self, output: Classes, targets: Tensor) -> Float[Tensor, ""]:
        """The squared error, averaged over the numbers of a text."""
        return output.squared_error(targets)

    def values(self, logits: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """The scores are the numbers."""
        return logits

    def counts(
        self,
        logits: Float[Tensor, "B C"],
        targets: Tensor,
        labels: Sequence[str],
        *,
        detailed: bool,
    ) -> dict[str, float]:
        """The absolute error; in detail, the sums that a correlation is made of."""
        x, y = logits.detach().double(), targets.double()
        counts = {"mean_absolute_error": float((x - y).abs().mean(1).sum())}
        sums = {"x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y}
        every = {
            f"sum {name} {label}": float(each[:, place].sum())
            for name, each in sums.items()
            for place, label in enumerate(labels)
        }
        return counts | (every if detailed else {})

    def metrics(self, totals: Mapping[str, float], labels: Sequence[str]) -> dict[str, float]:
        """The mean absolute error, and Pearson's correlation, averaged over the numbers."""
        found = {"mean_absolute_error": totals["mean_absolute_error"]}
        if f"sum x {labels[0]}" not in totals:
            return found
        return {**found, "pearson": sum(_pearson(totals, each) for each in labels) / len(labels)}

    def prediction(self, text: _Shown, row: Sequence[float], labels: Sequence[str]) -> Prediction:
        """The number, or all of them by name."""
        named = {label: round(number, 6) for label, number in zip(labels, row, strict=True)}
        more = {"values": named} if len(row) > 1 else {}
        return Prediction(
            text="\t".join(f"{number:.4f}" for number in row),
            fields={"text": text, "value": round(row[0], 6), **more},
        )

    def title(self, row: Sequence[float], labels: Sequence[str]) -> str:
        """The numbers."""
        return ", ".join(f"{number:.4f}" for number in row)


def _pearson(totals: Mapping[str, float], label: str) -> float:
    """Pearson's correlation, from means per text; 0 where either side is constant."""
    x, y, xx, yy, xy = (totals[f"sum {name} {label}"] for name in ("x", "y", "xx", "yy", "xy"))
    spread = (xx - x * x) * (yy - y * y)
    return (xy - x * y) / math.sqrt(spread) if spread > 1e-24 else 0.0


def _number_of(label: str, labels: Sequence[str], where: str) -> int:
    """The number of a label."""
    if label not in labels:
        near = nearest(label, labels)
        hint = f"; did you mean {near!r}?" if near else ""
        raise UserError(
            f"{where}: the label {label!r} is not among those of the training data: "
            f"{', '.join(labels[:12])}{hint}"
        )
    return list(labels).index(label)


def _rate_counts(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> dict[str, float]:
    """Right, found and there, of each label that was found or there."""
    every = zip(labels, *counts, strict=True)
    return as_counts({label: Rates(*each) for label, *each in every if any(each)})


def _f1(totals: Mapping[str, float], labels: Sequence[str]) -> dict[str, float]:
    """F1 over labels, each counting alike, and over decisions; nothing if they were not counted."""
    rates = rates_in(totals, labels).values()
    if not any(each.there for each in rates):
        return {}
    return {"macro_f1": macro(rates), "micro_f1": sum(rates, Rates(0, 0, 0)).f1}


def _choices(
    row: Sequence[float], labels: Sequence[str]
) -> tuple[dict[str, float], tuple[Choice, ...]]:
    """The probability of each label by name, and as choices, the likeliest first."""
    named = {label: round(p, 6) for label, p in zip(labels, row, strict=True)}
    choices = [Choice(label, p) for label, p in named.items()]
    return named, tuple(sorted(choices, key=lambda choice: -choice.probability))


PROBLEMS: dict[str, Problem] = {
    "single_label": _OneClass(),
    "multi_label": _SeveralLabels(),
    "regression": _Numbers(),
}
"""The kinds of labels by name."""
