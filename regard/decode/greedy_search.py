"""Likeliest: greedy search, which is a beam search of width one, over many sentences at once.

Choosing rows of a state costs about as much as some steps of a small model. So rows that have ended
stay, unheard, until they are a quarter of the batch; then the others go on without them.

>>> class Next:                                    # a model: after each number comes the next one
...     def select(self, rows): return self
...     def start(self, source): return self
...     def step(self, tokens, state): return torch.eye(9)[(tokens + 1) % 9], self
>>> beam = Beam(width=1, eos=6, max_per_source=0)
>>> [(number, [best])] = next(filter(None, Likeliest(Next(), {"source": torch.zeros(1, 1)}, beam)))
>>> best.tokens, best.rows
([3, 4, 5], [0, 0, 0, 0])
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from regard.core.protocols import Batch, State, Stepper
from regard.decode.beam import Beam
from regard.decode.hypothesis import Found, Hypothesis
from regard.decode.limits import Bools, Ints, Limits, forbid, room, source_lengths, stranded
from regard.decode.stream import diverged
from regard.decode.top_k import best, log_total

_Floats = NDArray[np.float32]

_STAY = 0.75
"""Rows are chosen anew when no larger share than this still writes."""


@dataclass
class Line:
    """What a row has written, with its end and what it said after that."""

    tokens: list[int] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    """Log-probabilities, if they were asked for."""
    rows: list[int] = field(default_factory=list)
    """Where in the batch it was."""


class Likeliest(Generic[State]):
    """Steps of some sentences, one for each token; some give sentences that are done."""

    def __init__(
        self,
        stepper: Stepper[State],
        source: Batch,
        beam: Beam,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        lengths = source_lengths(source, beam)
        sentences = len(lengths)
        self._numbers: Ints = np.array(range(sentences) if numbers is None else numbers)
        self._limits = Limits(beam, self._numbers.tolist(), lengths, prefixes, room(stepper))
        self._stepper, self._beam = stepper, beam
        self._count = 0
        self._ends: Ints = np.full(sentences, -1)  # after how many tokens a row ended
        self._lines = [Line() for _ in range(sentences)]
        self._said: list[Ints] = []  # since lines were last brought up to date, each [B]
        self._logs: list[_Floats] = []  # each [B,1]
        self._written: Ints | None = np.zeros((sentences, 0), np.int64) if beam.no_repeat else None
        self._quiet = torch.inference_mode()
        with self._quiet:
            self._state = stepper.start(source)
            device = next(iter(source.values())).device
            self._tokens = torch.full((sentences,), beam.bos, device=device)

    def __iter__(self) -> Iterator[list[Found]]:
        return self

    def __next__(self) -> list[Found]:
        """Another token for every sentence, and some of those that are done."""
        if not len(self._numbers):
            raise StopIteration
        with self._quiet:
            logits, self._state = self._stepper.step(self._tokens, self._state)  # [B,V]
            if not self._count:
                self._limits.check_vocabulary(logits.shape[1])
            said = self._chosen(logits)
            self._said.append(said)
            self._tokens = from_numpy(said).to(logits.device)
            if self._beam.scores:
                taken = logits.gather(1, self._tokens.unsqueeze(1)).float()  # [B,1]
                logs = taken - log_total(logits.float()).unsqueeze(1)
                self._logs.append(logs.cpu().numpy())
            if self._written is not None:
                self._written = np.concatenate((self._written, said[:, None]), 1)
            self._count += 1
            return self._part(said == self._beam.eos)

    def _chosen(self, logits: Tensor) -> Ints:
        """The next token of each row."""
        allowed, banned = logits, self._limits.bans(self._count, self._written, 1)
        if banned is not None:
            allowed = logits.clone()
            forbid(allowed, banned)
        values, said = best(allowed)
        if np.count_nonzero(np.isfinite(values)) < len(values):
            self._refuse(logits, ~np.isfinite(values))
        forced, full = self._limits.forced(self._count), self._limits.full(self._count)
        if forced is not None:
            said[forced[0]] = forced[1]
        if full is not None:
            said[full] = self._beam.eos
        return said

    def _refuse(self, logits: Tensor, stuck: Bools) -> None:
        """Say what is wrong with the first sentence that has nothing to choose, if one needs it."""
        full = self._limits.full(self._count)
        for place in (stuck & (self._ends < 0)).nonzero()[0].tolist():
            what = f"sentence {self._numbers[place]}"
            if not logits[place].amax().isfinite():
                raise diverged(what, self._count + 1)
            if full is None or place not in full:
                raise stranded(what, self._count)

    def _part(self, ending: Bools) -> list[Found]:
        """Note which rows end; if they are many by now, give what they wrote and let them go."""
        if not np.count_nonzero(ending):
            return []
        self._ends[ending & (self._ends < 0)] = self._count - 1
        kept = self._ends < 0
        if kept.sum() > _STAY * len(kept):
            return []
        self._bring_up_to_date()
        found = [self._found(place) for place in (~kept).nonzero()[0].tolist()]
        places = kept.nonzero()[0]
        if len(places):
            rows = from_numpy(places).to(self._tokens.device)
            self._state, self._tokens = self._state.select(rows), self._tokens[rows]
        self._limits.keep(kept)
        self._numbers, self._ends = self._numbers[kept], self._ends[kept]
        self._lines = [self._lines[place] for place in places]
        if self._written is not None:
            self._written = self._written[kept]
        return found

    def _bring_up_to_date(self) -> None:
        """Hand what was said since the last time to the lines."""
        said = np.stack(self._said, 1).tolist()
        logs = np.concatenate(self._logs, 1).tolist() if self._logs else [[]] * len(said)
        for place, line in enumerate(self._lines):
            line.tokens += said[place]
            line.logs += logs[place]
            line.rows += [place] * len(said[place])
        self._said, self._logs = [], []

    def _found(self, place: int) -> Found:
        """The number of the sentence at this place and what it wrote up to its end."""
        end, line = int(self._ends[place]), self._lines[place]
        log = sum(line.logs[: end + 1]) if self._beam.scores else math.nan
        score = log / self._beam.penalty(end + 1)
        best = Hypothesis(line.tokens[:end], score, log, line.rows[: end + 1])
        return int(self._numbers[place]), [best]
