"""The sentences of documents, read side by side: each by itself, with little padding.

A document is a row of words, `[B,T]`, and `parts` is the sentence of each word. Sentences
differ much in length, so they are sorted by it and read in a few groups of about one length.

>>> cut = SentenceCut.of(torch.tensor([[0, 0, 1], [0, -1, -1]]))
>>> cut.lengths.tolist(), cut.starts.tolist()
([2, 1, 1], [0, 2, 3])
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.padding import real_positions
from regard.layers.bidirectional import Bidirectional

_WIDER = 1.2
"""How much longer than its shortest sentence the longest of a group may be ..."""
_FEW = 1
"""... and by how many words besides."""


@dataclass(frozen=True)
class SentenceCut:
    """Where each sentence of a batch of documents begins, and how long it is."""

    starts: Int[Tensor, "N"]
    """The place of its first word among all B·T."""
    lengths: Int[Tensor, "N"]

    @staticmethod
    def of(parts: Int[Tensor, "B T"]) -> "SentenceCut":
        """From the sentence of each word; -1 is padding, which no sentence holds."""
        before = torch.nn.functional.pad(parts[:, :-1], (1, 0), value=-1)
        real = (parts >= 0).flatten()
        begins = ((parts != before).flatten() & real).nonzero().squeeze(1)  # [N]
        owner = (parts != before).flatten()[real].cumsum(0) - 1  # [K]
        lengths = torch.bincount(owner, minlength=len(begins)) if len(begins) else begins
        return SentenceCut(begins, lengths)

    def groups(self) -> Iterator[Int[Tensor, "M"]]:
        """Numbers of sentences of about one length, the shortest first."""
        ordered, order = self.lengths.sort(stable=True)
        begin, widths = 0, ordered.tolist()
        for place, width in enumerate([*widths, None]):
            if place == begin:
                continue
            if width is None or width > _WIDER * widths[begin] + _FEW:
                yield order[begin:place]
                begin = place

    def padding_fraction(self) -> float:
        """The share of padding, from 0 to 1."""
        cells = sum(len(group) * int(self.lengths[group].max()) for group in self.groups())
        return 1.0 - int(self.lengths.sum()) / cells if cells else 0.0

    def read(self, encoder: Bidirectional, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T D"]:
        """The states of a network that reads every sentence by itself; zero at padding."""
        flat = x.flatten(0, 1)  # [B*T,C]
        places, states = [], []
        for group in self.groups():
            lengths = self.lengths[group]
            real = real_positions(lengths, int(lengths.max()))  # [M,T]
            span = torch.arange(real.shape[1], device=x.device)
            at = torch.where(real, self.starts[group][:, None] + span, 0)  # [M,T]
            states.append(encoder(flat[at], lengths)[real])  # [K,D]
            places.append(at[real])
        found = flat.new_zeros(len(flat), encoder.width)
        if states:
            found = found.index_copy(0, torch.cat(places), torch.cat(states))
        whole: Tensor = found.unflatten(0, x.shape[:2])
        return whole
