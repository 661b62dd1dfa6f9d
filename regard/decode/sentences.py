"""Sentences: targets for any number of sources, a batch of like lengths at a time.

>>> import torch
>>> class Count:                              # a model: writes 5 as often as its source is long
...     def __init__(self, left=None): self.left = left
...     def select(self, rows): return Count(self.left[rows])
...     def start(self, source): return Count(source["source_lengths"])
...     def step(self, tokens, state):
...         return torch.eye(6)[torch.where(state.left > 0, 5, 3)] * 9, Count(state.left - 1)
>>> lengths = [3, 1, 2]
>>> def read(numbers): return {"source_lengths": torch.tensor([lengths[n] for n in numbers])}
>>> [best.tokens for best, in decode(Count(), read, lengths, Beam(width=2), at_once=4)]
[[5, 5, 5], [5], [5, 5]]
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from torch import Tensor

from regard.core.errors import positive
from regard.core.protocols import Batch, State, Stepper
from regard.decode.beam import Beam
from regard.decode.greedy_search import Likeliest
from regard.decode.hypothesis import Found, Hypothesis
from regard.decode.search import Search

_Prefixes = Sequence[Sequence[int]]
"""For every sentence the tokens that its target is to begin with, maybe none."""

Item = TypeVar("Item")


def search(
    stepper: Stepper[State],
    source: Batch,
    beam: Beam,
    *,
    prefixes: _Prefixes | None = None,
    weights: Callable[[State], Tensor] | None = None,
) -> list[list[Hypothesis]]:
    """For each sentence of one batch its best hypotheses; their `rows` are those of this batch."""
    found = dict(_found(stepper, source, beam, prefixes, weights, None))
    return [found[number] for number in range(len(found))]


def decode(
    stepper: Stepper[State],
    read: Callable[[Sequence[int]], Batch],
    lengths: Sequence[int],
    beam: Beam,
    *,
    at_once: int = 128,
    prefixes: _Prefixes | None = None,
    weights: Callable[[State], Tensor] | None = None,
) -> list[list[Hypothesis]]:
    """For each sentence its best hypotheses, in the order of the sentences; see `completed`."""
    every = completed(
        stepper, read, lengths, beam, at_once=at_once, prefixes=prefixes, weights=weights
    )
    found = dict(every)
    return [found[number] for number in range(len(lengths))]


def completed(
    stepper: Stepper[State],
    read: Callable[[Sequence[int]], Batch],
    lengths: Sequence[int],
    beam: Beam,
    *,
    at_once: int = 128,
    prefixes: _Prefixes | None = None,
    weights: Callable[[State], Tensor] | None = None,
    first: int = 0,
) -> Iterator[Found]:
    """Numbers of sentences with their hypotheses, as they are done.

    `read` gives the sources of some numbers as a batch, `lengths` says how long each is, so that
    those of like length are searched together, `at_once` rows at most; the longest come first, so
    that memory which does not suffice shows at once. `first` is the number of the first sentence.
    """
    together = max(1, positive("at_once", at_once) // beam.width)
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    for begin in range(0, len(order), together):
        places = order[begin : begin + together]
        given = None if prefixes is None else [prefixes[place] for place in places]
        numbers = [first + place for place in places]
        yield from _found(stepper, read(numbers), beam, given, weights, numbers)


def in_chunks(
    stepper: Stepper[State],
    items: Iterable[Item],
    read: Callable[[Sequence[Item]], Batch],
    length: Callable[[Item], int],
    beam: Beam,
    *,
    chunk: int = 1024,
    at_once: int = 128,
    weights: Callable[[State], Tensor] | None = None,
) -> Iterator[list[Hypothesis]]:
    """The hypotheses of each item, in their order, of which no more than a chunk are held.

    For standard input and files larger than memory: a chunk of 1 answers every line as it comes, a
    large one is faster, as it can be sorted by length.
    """
    positive("chunk", chunk)
    remaining, first = iter(items), 0
    while some := list(islice(remaining, chunk)):
        done: dict[int, list[Hypothesis]] = dict(
            completed(
                stepper,
                _reader(some, read, first),
                [length(item) for item in some],
                beam,
                at_once=at_once,
                weights=weights,
                first=first,
            )
        )
        yield from (done[number] for number in range(first, first + len(some)))
        first += len(some)


def _reader(
    items: list[Item], read: Callable[[Sequence[Item]], Batch], first: int
) -> Callable[[Sequence[int]], Batch]:
    return lambda numbers: read([items[number - first] for number in numbers])


def _found(
    stepper: Stepper[State],
    source: Batch,
    beam: Beam,
    prefixes: _Prefixes | None,
    weights: Callable[[State], Tensor] | None,
    numbers: Sequence[int] | None,
) -> Iterator[Found]:
    """All sentences of a batch as they are done, by the search that fits the width."""
    steps: Iterator[list[Found]] = (
        Likeliest(stepper, source, beam, prefixes=prefixes, numbers=numbers)
        if beam.width == 1
        else Search(stepper, source, beam, prefixes=prefixes, weights=weights, numbers=numbers)
    )
    for done in steps:
        yield from done
