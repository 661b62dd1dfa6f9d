"""Beam search for any number of sentences, in batches of similar length.

>>> import torch
>>> class Count:                              # a model: writes 5 as often as its source is long
...     def __init__(self, left=None): self.left = left
...     def select(self, rows): return Count(self.left[rows])
...     def start(self, source): return Count(source["source_lengths"])
...     def step(self, tokens, state):
...         return torch.eye(6)[torch.where(state.left > 0, 5, 3)] * 9, Count(state.left - 1)
>>> lengths = [3, 1, 2]
>>> def read(numbers): return {"source_lengths": torch.tensor([lengths[n] for n in numbers])}
>>> [best.tokens for best, in decode(Count(), read, lengths, Beam(width=2), max_rows=4)]
[[5, 5, 5], [5], [5, 5]]
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from torch import Tensor

from regard.core.errors import positive
from regard.core.protocols import Batch, State, Stepper
from regard.decode.beam import Beam
from regard.decode.beam_search import BeamSearch
from regard.decode.greedy_search import GreedySearch
from regard.decode.hypothesis import Hypothesis, SentenceHypotheses

_Prefixes = Sequence[Sequence[int]]
"""For every sentence the tokens that its target must start with, possibly none."""

_MOST_POSITIONS = 2**16
"""Of sources that are searched together: the rows of the beams times the longest source."""

_Item = TypeVar("_Item")


def search(
    stepper: Stepper[State],
    source: Batch,
    beam: Beam,
    *,
    prefixes: _Prefixes | None = None,
    weights: Callable[[State], Tensor] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence of a batch; their `rows` are rows of this batch."""
    found = dict(_search_batch(stepper, source, beam, prefixes, weights, None))
    return [found[number] for number in range(len(found))]


def decode(
    stepper: Stepper[State],
    read: Callable[[Sequence[int]], Batch],
    lengths: Sequence[int],
    beam: Beam,
    *,
    max_rows: int = 128,
    prefixes: _Prefixes | None = None,
    weights: Callable[[State], Tensor] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, in order; see `decode_unordered`."""
    every = decode_unordered(
        stepper, read, lengths, beam, max_rows=max_rows, prefixes=prefixes, weights=weights
    )
    found = dict(every)
    return [found[number] for number in range(len(lengths))]


def decode_unordered(
    stepper: Stepper[State],
    read: Callable[[Sequence[int]], Batch],
    lengths: Sequence[int],
    beam: Beam,
    *,
    max_rows: int = 128,
    prefixes: _Prefixes | None = None,
    weights: Callable[[State], Tensor] | None = None,
    first: int = 0,
) -> Iterator[SentenceHypotheses]:
    """The hypotheses of all sentences, each with its number, in the order in which they finish.

    `read` returns the sources of some numbers as a batch. `lengths` are their lengths: sentences of
    similar length are searched together, at most `max_rows` rows at a time, the longest first, so
    that memory runs out at the start if at all. `first` is the number of the first sentence.
    """
    together = max(1, positive("max_rows", max_rows) // beam.width)
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    begin = 0
    while begin < len(order):
        fit = _MOST_POSITIONS // (beam.width * max(1, lengths[order[begin]]))
        places = order[begin : begin + min(together, max(1, fit))]
        begin += len(places)
        given = None if prefixes is None else [prefixes[place] for place in places]
        numbers = [first + place for place in places]
        yield from _search_batch(stepper, read(numbers), beam, given, weights, numbers)


def decode_in_chunks(
    stepper: Stepper[State],
    items: Iterable[_Item],
    read: Callable[[Sequence[_Item]], Batch],
    length: Callable[[_Item], int],
    beam: Beam,
    *,
    chunk: int = 1024,
    max_rows: int = 128,
    weights: Callable[[State], Tensor] | None = None,
) -> Iterator[list[Hypothesis]]:
    """The hypotheses of each item, in order; only one chunk of items is in memory at a time.

    For standard input and files larger than memory. A chunk of 1 translates every line immediately;
    a large chunk is faster, because it is sorted by length.
    """
    positive("chunk", chunk)
    remaining, first = iter(items), 0
    while some := list(islice(remaining, chunk)):
        done: dict[int, list[Hypothesis]] = dict(
            decode_unordered(
                stepper,
                _reader(some, read, first),
                [length(item) for item in some],
                beam,
                max_rows=max_rows,
                weights=weights,
                first=first,
            )
        )
        yield from (done[number] for number in range(first, first + len(some)))
        first += len(some)


def _reader(
    items: list[_Item], read: Callable[[Sequence[_Item]], Batch], first: int
) -> Callable[[Sequence[int]], Batch]:
    return lambda numbers: read([items[number - first] for number in numbers])


def _search_batch(
    stepper: Stepper[State],
    source: Batch,
    beam: Beam,
    prefixes: _Prefixes | None,
    weights: Callable[[State], Tensor] | None,
    numbers: Sequence[int] | None,
) -> Iterator[SentenceHypotheses]:
    """The sentences of a batch as they finish, by greedy or beam search depending on the width."""
    steps: Iterator[list[SentenceHypotheses]] = (
        GreedySearch(stepper, source, beam, prefixes=prefixes, numbers=numbers)
        if beam.width == 1
        else BeamSearch(stepper, source, beam, prefixes=prefixes, weights=weights, numbers=numbers)
    )
    for done in steps:
        yield from done
