"""What a decoder looks at: the memories of some sentences, and which of them each row asks.

A beam search has several rows for each sentence. They all look at the same memory, so it is kept
once, and the rows of a sentence ask it together, as so many queries of one attention. Choosing rows
then touches the memory only when sentences leave.

>>> import torch
>>> from regard.attention import Attend, ScaledDot
>>> attend = Attend(ScaledDot(4), kind="cross")
>>> states = torch.randn(2, 1, 5, 4)                                   # two sentences, one head
>>> source = SourceMemory.of(attend.remember(states, states), torch.tensor([5, 3]), attends=[attend])
>>> beams = source.select(torch.tensor([0, 0, 0, 1, 1, 1]))            # three rows for each
>>> beams.memories is source.memories, beams.beams
(True, 3)
>>> beams.ask(attend, torch.randn(6, 1, 1, 4)).shape
torch.Size([6, 1, 1, 4])
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from math import gcd

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.attention import START, Attend, LocalMonotonic, Mask, Memory, Past, padding
from regard.attention.relative import RelativeScore
from regard.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class SourceMemory:
    """Memories of N sentences, asked by N · `beams` rows: row r asks sentence r // beams.

    What `record` keeps of a shared source has the weights `[N,H,beams,S]`: one row of queries for
    each beam, all of them at the same step.
    """

    memories: tuple[Memory, ...]
    """One, or one for each layer."""
    lengths: Int[Tensor, "N"]
    """How many keys of each sentence are real."""
    mask: Mask | None
    """The same as a mask; None where all are real. Its table is made once and kept with it."""
    shared: bool = True
    """May several rows ask one memory? Else there is a memory for each row."""
    beams: int = 1
    """Rows for each sentence."""

    @staticmethod
    def of(
        memories: Memory | tuple[Memory, ...],
        lengths: Int[Tensor, "N"],
        *,
        attends: Iterable[Attend],
    ) -> "Source":
        """The source of as many rows as sentences, for the attention that will ask it."""
        several = (memories,) if isinstance(memories, Memory) else memories
        for memory in several:
            if len(lengths) != memory.key.shape[0]:
                raise UserError(
                    f"{len(lengths)} lengths were given for {memory.key.shape[0]} sentences"
                )
        return SourceMemory(
            memories=several,
            lengths=lengths,
            mask=_padded(lengths, several[0].key.shape[2]),
            shared=all(shareable(attend) for attend in attends),
        )

    @property
    def sentences(self) -> int:
        """How many sentences are remembered."""
        return self.lengths.shape[0]

    def select(self, rows: Int[Tensor, "B"]) -> "Source":
        """The source of the chosen rows, in that order.

        Neighbours that ask the same sentence share its memory, as many as in every other such
        group; so a beam search that lays out sentence after sentence never copies one, and any
        other order is still right.
        """
        asked = [row // self.beams for row in rows.tolist()]
        beams = _common(asked) if self.shared else 1
        kept = asked[::beams]
        if kept == list(range(self.sentences)):
            return self if beams == self.beams else replace(self, beams=beams)
        index = torch.tensor(kept, device=self.lengths.device, dtype=torch.long)
        lengths = self.lengths.index_select(0, index)
        return replace(
            self,
            memories=tuple(memory.select(index) for memory in self.memories),
            lengths=lengths,
            mask=_padded(lengths, self.memories[0].key.shape[2]),
            beams=beams,
        )

    def ask(
        self, attend: Attend, query: Float[Tensor, "B H 1 E"], layer: int = 0, past: Past = START
    ) -> Float[Tensor, "B H 1 W"]:
        """What each row takes home, by one attention for all; past.first says which step it is."""
        return self.apart(attend(self.together(query), self.memories[layer], self.mask, past))

    def weights(
        self, attend: Attend, query: Float[Tensor, "B H 1 E"], layer: int = 0, past: Past = START
    ) -> Float[Tensor, "B H 1 S"]:
        """Where each row looks, for models that point or copy."""
        weights = attend.weights(self.together(query), self.memories[layer], self.mask, past)
        return self.apart(weights)

    def step(
        self, attend: Attend, query: Float[Tensor, "B H 1 E"], layer: int = 0, past: Past = START
    ) -> tuple[Float[Tensor, "B H 1 W"], Past]:
        """What each row takes home, and the past to give to the next step.

        For any attention; the past holds weights only where the attention carries them.
        """
        if attend.carries:
            return attend.step(self.together(query), self.memories[layer], self.mask, past)
        return self.ask(attend, query, layer, past), replace(past, first=past.first + 1)

    def together(self, query: Float[Tensor, "B H 1 E"]) -> Float[Tensor, "N H Q E"]:
        """The queries of a sentence's rows one under another."""
        if query.shape[0] != self.sentences * self.beams:
            raise UserError(
                f"{query.shape[0]} rows ask a source of {self.sentences} sentences with "
                f"{self.beams} rows each; select the source's rows as you select the others"
            )
        if self.beams == 1:
            return query
        beside: Tensor = query.squeeze(2).unflatten(0, (self.sentences, self.beams))  # [N,Q,H,E]
        return beside.transpose(1, 2)

    def apart(self, read: Shaped[Tensor, "N H Q W"]) -> Shaped[Tensor, "B H 1 W"]:
        """The rows again, each for itself."""
        return read if self.beams == 1 else read.transpose(1, 2).flatten(0, 1).unsqueeze(2)


_PLACED = (RelativeScore, LocalMonotonic)
"""Scores and weighings that ask at which step a query stands: it must be the only one."""


def shareable(attend: Attend) -> bool:
    """May queries that belong to the same step stand one under another?"""
    placed = isinstance(attend.score, _PLACED) or isinstance(attend.weigh, _PLACED)
    return not (attend.carries or placed)


def _padded(lengths: Tensor, keys: int) -> Mask | None:
    """The mask of so many keys, where any of them is not real."""
    return padding(lengths) if bool((lengths < keys).any()) else None


def _common(asked: list[int]) -> int:
    """The largest size of groups of neighbours that are alike.

    >>> _common([3, 3, 1, 1]), _common([0, 0, 0, 0, 2, 2]), _common([0, 1, 0, 1])
    (2, 2, 1)
    """
    return gcd(*(len(list(alike)) for _, alike in groupby(asked))) or 1
