"""The memory a decoder attends to: keys and values of some sentences, shared by rows of a beam.

A beam search has several rows for each sentence. They attend to the same keys and values, so these
are kept once, and the rows of a sentence are the queries of one attention. Selecting rows copies
the memory only when sentences leave.

>>> import torch
>>> from regard.attention import Attend, ScaledDot
>>> attend = Attend(ScaledDot(4), kind="cross")
>>> states = torch.randn(2, 1, 5, 4)                                   # two sentences, one head
>>> memory = attend.remember(states, states)
>>> source = SourceMemory.of(memory, torch.tensor([5, 3]), attends=[attend])
>>> beams = source.select(torch.tensor([0, 0, 0, 1, 1, 1]))            # three rows for each
>>> beams.memories is source.memories, beams.beams
(True, 3)
>>> beams.read(attend, torch.randn(6, 1, 1, 4)).shape
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
    """Memories of N sentences for N · `beams` rows: row r attends to sentence r // beams.

    `record` keeps weights `[N,H,beams,S]` of a shared source: one query for each beam, all of the
    same step.
    """

    memories: tuple[Memory, ...]
    """One, or one for each layer."""
    lengths: Int[Tensor, "N"]
    """The number of keys of each sentence without padding."""
    mask: Mask | None
    """The same as a mask, made once; None without padding."""
    shared: bool = True
    """May several rows share one memory? Otherwise each row has its own."""
    beams: int = 1
    """Rows for each sentence."""

    @staticmethod
    def of(
        memories: Memory | tuple[Memory, ...],
        lengths: Int[Tensor, "N"],
        *,
        attends: Iterable[Attend],
    ) -> "SourceMemory":
        """The memory of one row for each sentence, for these attention modules."""
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
        """The number of sentences."""
        return self.lengths.shape[0]

    def select(self, rows: Int[Tensor, "B"]) -> "SourceMemory":
        """The memory of the selected rows, in that order.

        Neighbouring rows of one sentence share its memory where all sentences have as many; so a
        beam search, which orders rows by sentence, never copies it, and any other order is right.
        """
        sentences = [row // self.beams for row in rows.tolist()]
        beams = _common(sentences) if self.shared else 1
        kept = sentences[::beams]
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

    def read(
        self, attend: Attend, query: Float[Tensor, "B H 1 E"], layer: int = 0, past: Past = START
    ) -> Float[Tensor, "B H 1 W"]:
        """The context of each row, by one attention for all; past.first is the step."""
        return self.apart(attend(self.together(query), self.memories[layer], self.mask, past))

    def weights(
        self, attend: Attend, query: Float[Tensor, "B H 1 E"], layer: int = 0, past: Past = START
    ) -> Float[Tensor, "B H 1 S"]:
        """The attention weights of each row, for models that point or copy."""
        weights = attend.weights(self.together(query), self.memories[layer], self.mask, past)
        return self.apart(weights)

    def step(
        self, attend: Attend, query: Float[Tensor, "B H 1 E"], layer: int = 0, past: Past = START
    ) -> tuple[Float[Tensor, "B H 1 W"], Past]:
        """The context of each row, and the past to give to the next step.

        For any attention; the past holds weights only where the attention carries them.
        """
        if attend.carries:
            return attend.step(self.together(query), self.memories[layer], self.mask, past)
        return self.read(attend, query, layer, past), replace(past, first=past.first + 1)

    def together(self, query: Float[Tensor, "B H 1 E"]) -> Float[Tensor, "N H Q E"]:
        """Queries grouped by sentence."""
        if query.shape[0] != self.sentences * self.beams:
            raise UserError(
                f"{query.shape[0]} rows were given for a source of {self.sentences} sentences with "
                f"{self.beams} rows each; select the source's rows as you select the others"
            )
        if self.beams == 1:
            return query
        beside: Tensor = query.squeeze(2).unflatten(0, (self.sentences, self.beams))  # [N,Q,H,E]
        return beside.transpose(1, 2)

    def apart(self, read: Shaped[Tensor, "N H Q W"]) -> Shaped[Tensor, "B H 1 W"]:
        """One row for each query again."""
        return read if self.beams == 1 else read.transpose(1, 2).flatten(0, 1).unsqueeze(2)


_PLACED = (RelativeScore, LocalMonotonic)
"""Scores and weighings that depend on the step of a query: it must be the only one."""


def shareable(attend: Attend) -> bool:
    """May queries of the same step be rows of one attention?"""
    placed = isinstance(attend.score, _PLACED) or isinstance(attend.weigh, _PLACED)
    return not (attend.carries or placed)


def _padded(lengths: Tensor, keys: int) -> Mask | None:
    """The mask of this many keys, if any of them is padding."""
    return padding(lengths) if bool((lengths < keys).any()) else None


def _common(sentences: list[int]) -> int:
    """The largest group size that divides every run of equal neighbours.

    >>> _common([3, 3, 1, 1]), _common([0, 0, 0, 0, 2, 2]), _common([0, 1, 0, 1])
    (2, 2, 1)
    """
    return gcd(*(len(list(alike)) for _, alike in groupby(sentences))) or 1
