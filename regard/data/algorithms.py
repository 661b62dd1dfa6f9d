"""Algorithmic tasks on random bits, drawn on the spot as a function of (seed, index).

Each draws `inputs` [B,T,C], the `bits` [B,T,C] to answer with, and which steps are `scored` [B,T].
All rows of a batch have one length, so no step is padding. They are the tasks of Graves et al. 2014
(section 4); repeat copy has the end mark of Graves et al. 2016.

>>> batch = CopyBits(bits=2).draw(1, 2, 7)
>>> batch["inputs"][0, 2].tolist()                      # two vectors, then the mark that ends them
[0.0, 0.0, 1.0]
>>> torch.equal(batch["bits"][0, 3:], batch["inputs"][0, :2, :2])
True
>>> batch["scored"].tolist()
[[False, False, False, True, True]]
"""

from abc import ABC, abstractmethod
from math import pi
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.data.batch import ShardableBatches, check_index, random_integers

_WORD = 48
"""Random bits that are taken of one random integer."""


def random_bits(rows: int, length: int, width: int, *place: int) -> Float[Tensor, "B T C"]:
    """Zeros and ones, determined by `place`."""
    words = -(-width // _WORD)
    drawn = random_integers(rows * length * words, *place)[:, None]
    bits = ((drawn >> torch.arange(_WORD)) & 1).float()
    return bits.view(rows, length, words * _WORD)[:, :, :width].contiguous()


def random_shares(rows: int, count: int, *place: int) -> Float[Tensor, "B N"]:
    """Numbers from 0 to 1, determined by `place`."""
    return (random_integers(rows * count, *place) >> 40).float().view(rows, count) / 2**23


class Algorithm(Config, ABC):
    """A task on sequences of bits."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """The width of an input."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of bits of an output."""

    @property
    def shortest(self) -> int:
        """The least length there is."""
        return 1

    @abstractmethod
    def draw(self, rows: int, length: int, *place: int) -> Batch:
        """A batch of this length, determined by `place`."""

    @abstractmethod
    def label(self, length: int, steps: int) -> tuple[str, ...]:
        """A short name for each of so many steps, for pictures."""


def _sequence(inputs: Tensor, answer: Tensor) -> Batch:
    """Steps that are read, then as many empty ones as the answer has."""
    rows, read, width = inputs.shape
    written, bits = answer.shape[1:]
    return {
        "inputs": torch.cat((inputs, inputs.new_zeros(rows, written, width)), 1),
        "bits": torch.cat((answer.new_zeros(rows, read, bits), answer), 1),
        "scored": (torch.arange(read + written) >= read).expand(rows, -1),
    }


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name} {each + 1}" for each in range(count)]


class CopyBits(Algorithm):
    """Random vectors, then a mark; the answer is the vectors again. The length counts them."""

    name: Literal["copy"] = "copy"
    bits: PositiveInt = 8

    @property
    def inputs(self) -> int:
        """The bits and the mark."""
        return self.bits + 1

    @property
    def outputs(self) -> int:
        """The bits."""
        return self.bits

    def draw(self, rows: int, length: int, *place: int) -> Batch:
        """2 L + 1 steps."""
        vectors = random_bits(rows, length, self.bits, *place)
        read = torch.zeros(rows, length + 1, self.inputs)
        read[:, :length, : self.bits] = vectors
        read[:, length, self.bits] = 1
        return _sequence(read, vectors)

    def label(self, length: int, steps: int) -> tuple[str, ...]:
        """Vectors in, the mark, vectors out."""
        return (*_numbered("in", length), "end", *_numbered("out", length))


class RepeatCopy(Algorithm):
    """A start mark, random vectors and a number; the answer is the vectors that often, and an end.

    The number is an input of its own, divided by `largest`. All rows of a batch have one number.
    """

    name: Literal["repeat_copy"] = "repeat_copy"
    bits: PositiveInt = 4
    repeats: tuple[PositiveInt, PositiveInt] = (1, 2)
    """The least and the largest number."""
    largest: PositiveInt = 10
    """What the number is divided by."""

    @property
    def inputs(self) -> int:
        """The bits, the start mark and the number."""
        return self.bits + 2

    @property
    def outputs(self) -> int:
        """The bits and the end mark."""
        return self.bits + 1

    def times(self, *place: int) -> int:
        """How often the vectors of a batch are repeated."""
        least, most = self.repeats
        if least > most:
            raise UserError(f"data.algorithm.repeats={[least, most]}: the least is above the most")
        return least + int(random_integers(1, *place, 1)) % (most - least + 1)

    def draw(self, rows: int, length: int, *place: int) -> Batch:
        """L (R + 1) + 3 steps."""
        times = self.times(*place)
        vectors = random_bits(rows, length, self.bits, *place, 2)
        read = torch.zeros(rows, length + 2, self.inputs)
        read[:, 0, self.bits] = 1
        read[:, 1:-1, : self.bits] = vectors
        read[:, -1, self.bits + 1] = times / self.largest
        answer = torch.zeros(rows, length * times + 1, self.outputs)
        answer[:, :-1, : self.bits] = vectors.repeat(1, times, 1)
        answer[:, -1, self.bits] = 1
        return _sequence(read, answer)

    def label(self, length: int, steps: int) -> tuple[str, ...]:
        """The marks, vectors in, and every copy of them."""
        times = (steps - 3) // length - 1
        copies = [f"out {each + 1}.{i + 1}" for i in range(times) for each in range(length)]
        return ("start", *_numbered("in", length), "times", *copies, "end")


class AssociativeRecall(Algorithm):
    """Items of some vectors each, then one of them again; the answer is the item after it.

    The length counts items. A mark goes before each item, another before and after the query.
    """

    name: Literal["associative_recall"] = "associative_recall"
    bits: PositiveInt = 6
    vectors: PositiveInt = 3
    """The vectors of an item."""

    @property
    def inputs(self) -> int:
        """The bits and two marks."""
        return self.bits + 2

    @property
    def outputs(self) -> int:
        """The bits."""
        return self.bits

    @property
    def shortest(self) -> int:
        """Something must follow the item of the query."""
        return 2

    def draw(self, rows: int, length: int, *place: int) -> Batch:
        """Items of `vectors` + 1 steps, the query, and the answer."""
        size, bits = self.vectors, self.bits
        items = random_bits(rows, length * size, bits, *place, 1).unflatten(1, (length, size))
        chosen = random_integers(rows, *place, 2) % (length - 1)
        row = torch.arange(rows)
        marked = torch.zeros(rows, length, size + 1, self.inputs)
        marked[:, :, 0, bits] = 1
        marked[:, :, 1:, :bits] = items
        query = torch.zeros(rows, size + 2, self.inputs)
        query[:, [0, -1], bits + 1] = 1
        query[:, 1:-1, :bits] = items[row, chosen]
        return _sequence(torch.cat((marked.flatten(1, 2), query), 1), items[row, chosen + 1])

    def label(self, length: int, steps: int) -> tuple[str, ...]:
        """The marks and the vectors of each item, the query, the answer."""
        items = [
            "mark" if each == 0 else f"item {item + 1}.{each}"
            for item in range(length)
            for each in range(self.vectors + 1)
        ]
        asked = _numbered("query", self.vectors)
        return (*items, "ask", *asked, "answer", *_numbered("out", self.vectors))


class DynamicNGrams(Algorithm):
    """Bits that depend on those before by a table of chances, drawn anew for each sequence.

    After each bit the answer is the next one. The chances are Beta(½, ½). `optimal` [B,T,1] has the
    best possible guess, (n₁ + ½) / (n₁ + n₀ + 1) of the counts so far. The length counts bits.
    """

    name: Literal["dynamic_ngrams"] = "dynamic_ngrams"
    order: int = Field(6, ge=2, le=12)
    """A bit depends on the `order` - 1 before it."""

    @property
    def inputs(self) -> int:
        """One bit."""
        return 1

    @property
    def outputs(self) -> int:
        """One bit."""
        return 1

    @property
    def shortest(self) -> int:
        """There must be a bit to predict."""
        return self.order

    def draw(self, rows: int, length: int, *place: int) -> Batch:
        """L - 1 steps, scored from the first whole context on."""
        before, contexts = self.order - 1, 2 ** (self.order - 1)
        chances = torch.sin(random_shares(rows, contexts, *place, 1) * (pi / 2)).square()
        drawn = random_shares(rows, length, *place, 2)
        bits = (drawn < 0.5).long()
        optimal = torch.full((rows, length - 1, 1), 0.5)
        counts = torch.full((rows, contexts, 2), 0.5)
        row, powers = torch.arange(rows), 2 ** torch.arange(before)
        for at in range(before, length):
            context = (bits[:, at - before : at] * powers).sum(1)
            bits[:, at] = (drawn[:, at] < chances[row, context]).long()
            seen = counts[row, context]
            optimal[:, at - 1, 0] = seen[:, 1] / seen.sum(1)
            counts[row, context, bits[:, at]] += 1
        return {
            "inputs": bits[:, :-1, None].float(),
            "bits": bits[:, 1:, None].float(),
            "scored": (torch.arange(length - 1) >= before - 1).expand(rows, -1),
            "optimal": optimal,
        }

    def label(self, length: int, steps: int) -> tuple[str, ...]:
        """The bits by number."""
        return tuple(_numbered("bit", steps))


class PrioritySort(Algorithm):
    """Vectors, each with a priority from -1 to 1; the answer is the highest ones in order."""

    name: Literal["priority_sort"] = "priority_sort"
    bits: PositiveInt = 8
    kept: PositiveInt = 16
    """How many of the vectors are asked for, at most."""

    @property
    def inputs(self) -> int:
        """The bits, the priority and the mark."""
        return self.bits + 2

    @property
    def outputs(self) -> int:
        """The bits."""
        return self.bits

    def draw(self, rows: int, length: int, *place: int) -> Batch:
        """L + 1 steps, and one for each vector of the answer."""
        vectors = random_bits(rows, length, self.bits, *place, 1)
        priorities = random_shares(rows, length, *place, 2) * 2 - 1
        read = torch.zeros(rows, length + 1, self.inputs)
        read[:, :length, : self.bits] = vectors
        read[:, :length, self.bits] = priorities
        read[:, length, self.bits + 1] = 1
        order = priorities.argsort(stable=True, dim=1, descending=True)[:, : self.kept]
        return _sequence(read, vectors[torch.arange(rows)[:, None], order])

    def label(self, length: int, steps: int) -> tuple[str, ...]:
        """Vectors in, the mark, vectors out."""
        return (*_numbered("in", length), "end", *_numbered("out", steps - length - 1))


AnyAlgorithm = Annotated[
    CopyBits | RepeatCopy | AssociativeRecall | DynamicNGrams | PrioritySort,
    Field(discriminator="name"),
]
"""Any of them, as a key of a recipe: `algorithm = { name = "copy", bits = 8 }`."""


class AlgorithmBatches(ShardableBatches):
    """Batches of an algorithmic task, each of one length from the least to the largest.

    >>> batches = AlgorithmBatches(CopyBits(bits=2), (1, 3), rows=2, count=5, place=(1,))
    >>> {batches.batch(0, index)["inputs"].shape[1] for index in range(5)} <= {3, 5, 7}
    True
    """

    def __init__(
        self,
        algorithm: Algorithm,
        lengths: tuple[int, int],
        *,
        rows: int,
        count: int,
        place: tuple[int, ...],
    ) -> None:
        super().__init__(rows)
        least, most = lengths
        if least > most or least < algorithm.shortest:
            raise UserError(
                f"lengths from {least} to {most}: they must be in order, and the least at least "
                f"{algorithm.shortest}"
            )
        self.algorithm, self.lengths, self.count, self.place = algorithm, lengths, count, place

    def __len__(self) -> int:
        return self.count

    def length(self, epoch: int, index: int) -> int:
        """The length of a batch."""
        least, most = self.lengths
        return least + int(random_integers(1, *self.place, epoch, index)) % (most - least + 1)

    def batch(self, epoch: int, index: int) -> Batch:
        """Drawn for this epoch and index."""
        length = self.length(epoch, check_index(index, self.count))
        return self.algorithm.draw(self.rows, length, *self.place, epoch, index, 0)
