"""Greedy search, a beam search of width one, over many sentences at once.

Selecting rows of a state costs about as much as a few steps of a small model. Finished rows
therefore stay in the batch, ignored, until they are a quarter of it.

>>> class Next:                                    # a model: after each number comes the next one
...     def select(self, rows): return self
...     def start(self, source): return self
...     def step(self, tokens, state): return torch.eye(9)[(tokens + 1) % 9], self
>>> beam = Beam(width=1, eos=6, max_per_source=0)
>>> search = GreedySearch(Next(), {"source": torch.zeros(1, 1)}, beam)
>>> [(number, [best])] = next(filter(None, search))
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
from regard.core.steps import between_steps
from regard.decode.beam import Beam
from regard.decode.hypothesis import Hypothesis, SentenceHypotheses
from regard.decode.limits import (
    Bools,
    DecodingLimits,
    Ints,
    ban_tokens,
    max_target_tokens,
    no_token_error,
    source_lengths,
)
from regard.decode.stream import non_finite_logits_error
from regard.decode.top_k import fast_logsumexp, max_per_row

_Floats = NDArray[np.float32]

_STAY = 0.75
"""Finished rows are removed when at most this fraction of the rows is unfinished."""


@dataclass
class _RowHistory:
    """The tokens of a row, including the end token and whatever follows it."""

    tokens: list[int] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    """Log-probabilities, if they are computed."""
    rows: list[int] = field(default_factory=list)
    """Its row in the batch at each step."""


class GreedySearch(Generic[State]):
    """An iterator over steps, one per token; some of them yield finished sentences."""

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
        self._limits = DecodingLimits(
            beam, self._numbers.tolist(), lengths, prefixes, max_target_tokens(stepper)
        )
        self._stepper, self._beam = stepper, beam
        self._count = 0
        self._ends: Ints = np.full(sentences, -1)  # after how many tokens a row ended
        self._histories = [_RowHistory() for _ in range(sentences)]
        self._chosen_tokens: list[Ints] = []  # since lines were last brought up to date, each [B]
        self._logs: list[_Floats] = []  # each [B,1]
        self._written: Ints | None = np.zeros((sentences, 0), np.int64) if beam.no_repeat else None
        self._inference_mode = torch.inference_mode()
        with self._inference_mode:
            self._state = stepper.start(source)
            device = next(iter(source.values())).device
            self._tokens = torch.full((sentences,), beam.bos, device=device)

    def __iter__(self) -> Iterator[list[SentenceHypotheses]]:
        return self

    def __next__(self) -> list[SentenceHypotheses]:
        """Add a token to every sentence; return some of the finished ones."""
        if not len(self._numbers):
            raise StopIteration
        between_steps()
        with self._inference_mode:
            logits, self._state = self._stepper.step(self._tokens, self._state)  # [B,V]
            if not self._count:
                self._limits.check_vocabulary(logits.shape[1])
            tokens = self._choose_tokens(logits)
            self._chosen_tokens.append(tokens)
            self._tokens = from_numpy(tokens).to(logits.device)
            if self._beam.scores:
                taken = logits.gather(1, self._tokens.unsqueeze(1)).float()  # [B,1]
                logs = taken - fast_logsumexp(logits.float()).unsqueeze(1)
                self._logs.append(logs.cpu().numpy())
            if self._written is not None:
                self._written = np.concatenate((self._written, tokens[:, None]), 1)
            self._count += 1
            return self._remove_finished(tokens == self._beam.eos)

    def _choose_tokens(self, logits: Tensor) -> Ints:
        """The next token of each row."""
        allowed, banned = logits, self._limits.banned_tokens(self._count, self._written, 1)
        if banned is not None:
            allowed = logits.clone()
            ban_tokens(allowed, banned)
        values, tokens = max_per_row(allowed)
        if np.count_nonzero(np.isfinite(values)) < len(values):
            self._refuse(logits, ~np.isfinite(values))
        forced, full = self._limits.forced_tokens(self._count), self._limits.must_end(self._count)
        if forced is not None:
            tokens[forced[0]] = forced[1]
        if full is not None:
            tokens[full] = self._beam.eos
        return tokens

    def _refuse(self, logits: Tensor, stuck: Bools) -> None:
        """Raise the error of the first unfinished sentence that has no token to choose."""
        full = self._limits.must_end(self._count)
        for place in (stuck & (self._ends < 0)).nonzero()[0].tolist():
            what = f"sentence {self._numbers[place]}"
            if not logits[place].amax().isfinite():
                raise non_finite_logits_error(what, self._count + 1)
            if full is None or place not in full:
                raise no_token_error(what, self._count)

    def _remove_finished(self, ending: Bools) -> list[SentenceHypotheses]:
        """Mark the rows that end; once they are many, remove and return them."""
        if not np.count_nonzero(ending):
            return []
        self._ends[ending & (self._ends < 0)] = self._count - 1
        kept = self._ends < 0
        if kept.sum() > _STAY * len(kept):
            return []
        self._flush()
        found = [self._hypotheses_of(place) for place in (~kept).nonzero()[0].tolist()]
        places = kept.nonzero()[0]
        if len(places):
            rows = from_numpy(places).to(self._tokens.device)
            self._state, self._tokens = self._state.select(rows), self._tokens[rows]
        self._limits.keep(kept)
        self._numbers, self._ends = self._numbers[kept], self._ends[kept]
        self._histories = [self._histories[place] for place in places]
        if self._written is not None:
            self._written = self._written[kept]
        return found

    def _flush(self) -> None:
        """Append the tokens since the last call to the histories."""
        tokens = np.stack(self._chosen_tokens, 1).tolist()
        logs = np.concatenate(self._logs, 1).tolist() if self._logs else [[]] * len(tokens)
        for place, history in enumerate(self._histories):
            history.tokens += tokens[place]
            history.logs += logs[place]
            history.rows += [place] * len(tokens[place])
        self._chosen_tokens, self._logs = [], []

    def _hypotheses_of(self, place: int) -> SentenceHypotheses:
        """The number of the sentence at this index, and its hypothesis."""
        end, history = int(self._ends[place]), self._histories[place]
        log = sum(history.logs[: end + 1]) if self._beam.scores else math.nan
        score = log / self._beam.penalty(end + 1)
        best = Hypothesis(history.tokens[:end], score, log, history.rows[: end + 1])
        return int(self._numbers[place]), [best]
