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
from regard.decode.top import best

_STAY = 0.75
"""Rows are chosen anew when no larger share than this still writes."""


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
        self._sums: NDArray[np.float64] = np.zeros(sentences)
        self._said: list[Ints] = []  # since rows were last chosen, each [B]
        self._before: list[list[int]] = [[] for _ in range(sentences)]
        self._rows: list[list[int]] = [[] for _ in range(sentences)]
        self._written: Ints | None = np.zeros((sentences, 0), np.int64) if beam.no_repeat else None
        with torch.inference_mode():
            self._state = stepper.start(source)
            device = next(iter(source.values())).device
            self._tokens = torch.full((sentences,), beam.bos, device=device)

    def __iter__(self) -> Iterator[list[Found]]:
        return self

    def __next__(self) -> list[Found]:
        """Another token for every sentence, and some of those that are done."""
        if not len(self._numbers):
            raise StopIteration
        with torch.inference_mode():
            logits, self._state = self._stepper.step(self._tokens, self._state)  # [B,V]
            if not self._count:
                self._limits.check_vocabulary(logits.shape[1])
            said = self._chosen(logits)
            self._said.append(said)
            self._tokens = from_numpy(said).to(logits.device)
            if self._beam.scores:
                self._add(logits)
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
        values, tokens = best(allowed)
        if not values.isfinite().all():
            self._refuse(logits, values)
        said: Ints = tokens.cpu().numpy()
        forced, full = self._limits.forced(self._count), self._limits.full(self._count)
        if forced is not None:
            said[forced[0]] = forced[1]
        if full is not None:
            said[full] = self._beam.eos
        return said

    def _add(self, logits: Tensor) -> None:
        """Count the log-probabilities of what was chosen."""
        logs = logits.log_softmax(-1, dtype=torch.float32)  # [B,V]
        chosen = logs.gather(1, self._tokens[:, None]).squeeze(1)
        self._sums += np.where(self._ends < 0, chosen.cpu().numpy(), 0.0)

    def _refuse(self, logits: Tensor, values: Tensor) -> None:
        """Say what is wrong with the first sentence that has nothing to choose, if one needs it."""
        stuck = (self._ends < 0) & ~values.isfinite().cpu().numpy()
        full = self._limits.full(self._count)
        for place in stuck.nonzero()[0].tolist():
            what = f"sentence {self._numbers[place]}"
            if not logits[place].amax().isfinite():
                raise diverged(what, self._count + 1)
            if full is None or place not in full:
                raise stranded(what, self._count)

    def _part(self, ending: Bools) -> list[Found]:
        """Note which rows end; if they are many by now, give what they wrote and let them go."""
        if not ending.any():
            return []
        self._ends[ending & (self._ends < 0)] = self._count - 1
        kept = self._ends < 0
        if kept.sum() > _STAY * len(kept):
            return []
        for place, tokens in enumerate(np.stack(self._said, 1).tolist()):
            self._before[place] += tokens
            self._rows[place] += [place] * len(tokens)
        self._said = []
        found = [self._found(place) for place in (~kept).nonzero()[0].tolist()]
        places = kept.nonzero()[0]
        if len(places):
            rows = from_numpy(places).to(self._tokens.device)
            self._state, self._tokens = self._state.select(rows), self._tokens[rows]
        self._limits.keep(kept)
        self._numbers, self._ends, self._sums = (
            self._numbers[kept],
            self._ends[kept],
            self._sums[kept],
        )
        self._before = [self._before[place] for place in places]
        self._rows = [self._rows[place] for place in places]
        if self._written is not None:
            self._written = self._written[kept]
        return found

    def _found(self, place: int) -> Found:
        """The number of the sentence at this place and what it wrote."""
        end, total = int(self._ends[place]), float(self._sums[place])
        log = total if self._beam.scores else math.nan
        score = log / self._beam.penalty(end + 1)
        tokens, rows = self._before[place][:end], self._rows[place][: end + 1]
        return int(self._numbers[place]), [Hypothesis(tokens, score, log, rows)]
