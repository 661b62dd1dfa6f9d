"""Sums: losses and counts added up over batches, accumulation steps and processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, inf

from regard.core.protocols import Loss


@dataclass(frozen=True, kw_only=True)
class Sums:
    """A loss and further counts, summed over items.

    >>> sums = Sums(total=6.0, items=2, counts={"right": 1.0})
    >>> sums.loss, sums.rates()
    (3.0, {'right': 0.5})
    """

    total: float = 0.0
    items: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: "Sums") -> "Sums":
        names = {**self.counts, **other.counts}
        return Sums(
            total=self.total + other.total,
            items=self.items + other.items,
            counts={
                name: self.counts.get(name, 0.0) + other.counts.get(name, 0.0) for name in names
            },
        )

    @property
    def loss(self) -> float:
        """The mean over all items; not a mean of the batches' means."""
        return self.total / self.items

    @property
    def perplexity(self) -> float:
        """e to the loss; infinity where that is beyond what a float can hold."""
        return exp(self.loss) if self.loss < 709 else inf

    def rates(self) -> dict[str, float]:
        """Each count per item."""
        return {name: count / self.items for name, count in self.counts.items()}

    def metrics(self) -> dict[str, float]:
        """Loss, perplexity and rates: what a validation gives."""
        return {"loss": self.loss, "perplexity": self.perplexity, **self.rates()}


def sums_of(loss: Loss) -> Sums:
    """The sums of one batch."""
    counts = {name: float(count) for name, count in loss.counts.items()}
    return Sums(total=loss.total.item(), items=loss.items, counts=counts)
