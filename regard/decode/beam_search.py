"""Beam search with any Stepper (Graves 2012; Sutskever et al. 2014).

All beams of all sentences are one batch: row = sentence · width + beam. The first step has one row
per sentence. A sentence is finished when no unfinished hypothesis can still become one of its best;
it then leaves the batch. Its result does not depend on the other sentences.

Operations over the vocabulary are in torch. The few candidates of a step are selected in NumPy,
which is several times faster on small arrays.

>>> class Doubt:                  # a model: 4 is likelier than 5, but its continuations are not
...     chances = torch.full((8, 8), 0.125)
...     chances[2] = torch.tensor([0, 0, 0, 0, 0.6, 0.4, 0, 0])
...     chances[5] = torch.tensor([0, 0, 0, 1.0, 0, 0, 0, 0])
...     def select(self, rows): return self
...     def start(self, source): return self
...     def step(self, tokens, state): return self.chances[tokens].log(), self
>>> source = {"source": torch.zeros(1, 1), "source_lengths": torch.ones(1, dtype=torch.int64)}
>>> [(number, [best])] = next(filter(None, BeamSearch(Doubt(), source, Beam(width=2))))
>>> best.tokens, round(best.log_probability, 3), best.rows
([5], -0.916, [0, 1])
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from regard.core.errors import UserError
from regard.core.protocols import Batch, State, Stepper
from regard.core.steps import between_steps
from regard.decode.beam import Beam, coverage_penalty
from regard.decode.hypothesis import (
    Backpointers,
    FinishedBeam,
    FinishedBeams,
    Hypothesis,
    SentenceHypotheses,
)
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
from regard.decode.top_k import fast_logsumexp, top_candidates

_Floats = NDArray[np.float32]

_IMPOSSIBLE = -np.inf
"""The score of impossible hypotheses."""


class BeamSearch(Generic[State]):
    """An iterator over steps, one per token; each yields the sentences that it finished.

    `weights` returns the attention weights `[B,S]` of the last step of a state, for the coverage
    penalty. The model should be in eval mode; dropout stays active otherwise.
    """

    def __init__(
        self,
        stepper: Stepper[State],
        source: Batch,
        beam: Beam,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        weights: Callable[[State], Tensor] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        if beam.coverage and weights is None:
            raise UserError(f"coverage={beam.coverage} needs the argument `weights`, a function")
        lengths = source_lengths(source, beam)
        sentences = len(lengths)
        self._numbers: Ints = np.array(range(sentences) if numbers is None else numbers)
        self._limits = DecodingLimits(
            beam, self._numbers.tolist(), lengths, prefixes, max_target_tokens(stepper)
        )
        self._stepper, self._beam = stepper, beam
        self._count = 0
        self._width = 1  # rows per sentence; from the second step on, the beam's
        self._place = self._first_row = np.arange(sentences)[:, None]  # [N,1]
        self._scores: _Floats = np.zeros((sentences, 1), np.float32)  # [N,W]; -inf is a dead beam
        self._base = self._scores  # [N,W]: with a logit added, the score of the next step
        self._longest = np.array([[beam.penalty(most + 1)] for most in self._limits.most.tolist()])
        kept = beam.group if beam.estimate else -(-beam.n_best // beam.groups)
        self._finished = FinishedBeams(sentences, beam.groups, kept)
        self._backpointers = Backpointers()
        self._same: list[int] = []
        self._written: Ints | None = np.zeros((sentences, 0), np.int64) if beam.no_repeat else None
        self._weights = weights if beam.coverage else None
        self._lengths = lengths
        self._inference_mode = torch.inference_mode()
        with self._inference_mode:
            self._state = stepper.start(source)
            device = next(iter(source.values())).device
            self._device = None if device.type == "cpu" else device
            self._tokens = torch.full((sentences,), beam.bos, device=device)
            self._attention_sums = torch.zeros((), device=device)  # [B,S] once there were weights

    def __iter__(self) -> Iterator[list[SentenceHypotheses]]:
        return self

    def __next__(self) -> list[SentenceHypotheses]:
        """Add a token to every beam; return the sentences that are finished."""
        if not len(self._numbers):
            raise StopIteration
        between_steps()
        with self._inference_mode:
            logits, self._state = self._stepper.step(self._tokens, self._state)  # [B,V]
            if not self._count:
                self._limits.check_vocabulary(logits.shape[1])
            if self._weights is not None:
                self._attention_sums = self._attention_sums + self._weights(self._state)  # [B,S]
            scores, rows, tokens = self._extend(self._mask_logits(logits))  # [N,W] each
            return self._advance(scores, rows, tokens)

    def _mask_logits(self, logits: Tensor) -> Tensor:
        """Logits `[N,W,V]` with -inf for banned tokens.

        Added to `_base` they are the log-probabilities of hypotheses: the logsumexp of a row is
        subtracted from the score of its beam, once, instead of from every token.
        """
        logits = logits.float()
        totals = fast_logsumexp(logits).cpu().numpy()  # [B]
        self._base = self._scores - totals.reshape(self._scores.shape)
        banned = self._limits.banned_tokens(self._count, self._written, self._width)
        if banned is not None:
            logits = logits.clone()
            ban_tokens(logits, banned)
        return logits.view(len(self._numbers), self._width, logits.shape[1])

    def _extend(self, logits: Tensor) -> tuple[_Floats, Ints, Ints]:
        """The beams of the next step: their scores, previous rows and new tokens."""
        group, base = self._beam.group, self._tensor(self._base)
        if self._beam.groups == 1:
            return self._select(0, logits, *top_candidates(logits, base, 2 * group))
        taken = logits.new_zeros(len(logits), logits.shape[2])  # [N,V]: by how many beams so far
        parts = []
        for number in range(self._beam.groups):
            mine = self._beams_of(number)
            ranks = logits[:, mine] - self._beam.diversity * taken[:, None]
            _, beams, tokens = top_candidates(ranks, base[:, mine], 2 * group)
            values = self._values(logits, self._place, beams + mine.start, tokens)
            parts.append(self._select(number, logits, values, beams, tokens))
            alive = self._tensor(parts[-1][0]) > _IMPOSSIBLE
            taken.scatter_add_(1, self._tensor(parts[-1][2]), alive.to(taken.dtype))
        first, second, third = zip(*parts, strict=True)
        return np.concatenate(first, 1), np.concatenate(second, 1), np.concatenate(third, 1)

    def _beams_of(self, number: int) -> slice:
        """The beams of a group; at the first step all groups share the only beam."""
        group = self._beam.group
        return slice(0, 1) if self._width == 1 else slice(number * group, number * group + group)

    def _values(self, logits: Tensor, places: Ints, beams: Ints, tokens: Ints) -> _Floats:
        """Log-probabilities of hypotheses extended by these tokens; the arrays are broadcast."""
        index = [self._tensor(each) for each in (places, beams, tokens)]
        added: _Floats = logits[index[0], index[1], index[2]].cpu().numpy()
        return added + self._base[places, beams]

    def _select(
        self, number: int, logits: Tensor, values: _Floats, beams: Ints, tokens: Ints
    ) -> tuple[_Floats, Ints, Ints]:
        """Record the finished candidates `[N,C]` of a group; return the best of the others."""
        group, mine = self._beam.group, self._beams_of(number)
        if np.count_nonzero(np.isnan(values)):
            sentence = self._numbers[np.isnan(values).any(1).argmax()]
            raise non_finite_logits_error(f"sentence {sentence}", self._count + 1)
        if values.shape[1] < 2 * group:  # the vocabulary is smaller than the beam
            more = ((0, 0), (0, 2 * group - values.shape[1]))
            values = np.pad(values, more, constant_values=-np.inf)
            beams, tokens = np.pad(beams, more), np.pad(tokens, more)
        self._apply_limits(mine, logits, values, beams, tokens)
        rows = beams + (self._first_row + mine.start)
        ends = tokens == self._beam.eos
        if not np.count_nonzero(ends):  # several times faster than any()
            return values[:, :group], rows[:, :group], tokens[:, :group]
        self._record_finished(number, values[:, :group], rows, ends)
        # There are twice as many candidates as beams, and at most one per beam ends: enough stay.
        others = self._place, ends.argsort(1, kind="stable")[:, :group]
        return np.where(ends, _IMPOSSIBLE, values)[others], rows[others], tokens[others]

    def _apply_limits(
        self, mine: slice, logits: Tensor, values: _Floats, beams: Ints, tokens: Ints
    ) -> None:
        """Replace the candidates where a prefix or the maximum length determines the next token."""
        forced, full = self._limits.forced_tokens(self._count), self._limits.must_end(self._count)
        if forced is not None:
            places, given = forced
            first = np.full_like(places, mine.start)
            values[places], tokens[places], beams[places] = _IMPOSSIBLE, given[:, None], 0
            values[places, 0] = self._values(logits, places, first, given)
        if full is not None:
            each = np.arange(mine.stop - mine.start)
            ends = np.full((1, 1), self._beam.eos)
            values[full], tokens[full] = _IMPOSSIBLE, self._beam.eos
            beams[full, : len(each)] = each
            at = full[:, None]
            beams_here = each[None] + mine.start
            values[full, : len(each)] = (
                self._scores[at, beams_here]
                if self._beam.free_end
                else self._values(logits, at, beams_here, ends)
            )

    def _record_finished(self, number: int, values: _Floats, rows: Ints, ends: Bools) -> None:
        """Record candidates that end and are good enough to stay in the beam otherwise."""
        places, ranks = (ends[:, : values.shape[1]] & (values > _IMPOSSIBLE)).nonzero()
        if not len(places):
            return
        by, which = self._beam.penalty(self._count + 1), rows[places, ranks]
        logs = values[places, ranks].astype(np.float64)
        scores = logs / by + self._coverage_penalties(places, which)
        every = map(
            FinishedBeam, scores.tolist(), logs.tolist(), which.tolist(), repeat(self._count)
        )
        for place, end in zip(places.tolist(), every, strict=True):
            self._finished.add(place, number, end)

    def _coverage_penalties(self, places: Ints, rows: Ints) -> NDArray[np.float64] | float:
        """The coverage penalties of rows that end; `places` are the indices of their sentences."""
        if self._weights is None:
            return 0.0
        seen = self._attention_sums[self._tensor(rows)]  # [N,S]
        there = np.arange(seen.shape[1]) < self._lengths[places, None]  # [N,S]
        found = coverage_penalty(seen, self._tensor(there), self._beam.coverage)  # [N]
        return found.cpu().double().numpy()  # in this order: MPS has no float64

    def _advance(self, scores: _Floats, rows: Ints, tokens: Ints) -> list[SentenceHypotheses]:
        """Prepare the next step without the finished sentences, which are returned."""
        found: list[SentenceHypotheses] = []
        done = self._done(scores)  # [N,G]
        if done is not None:
            left: Bools = np.all(done, axis=1)
            found = [self._hypotheses_of(place) for place in left.nonzero()[0].tolist()]
            scores = np.where(np.repeat(done, self._beam.group, 1), _IMPOSSIBLE, scores)
            if found:
                scores, rows, tokens = self._keep_sentences(~left, scores, rows, tokens)
        self._count += 1
        self._scores = np.ascontiguousarray(scores)
        if len(scores):
            self._reorder(rows.ravel(), tokens.ravel())
        return found

    def _done(self, scores: _Floats) -> Bools | None:
        """Which groups cannot find anything better; None if all can."""
        if not self._finished.any and not np.count_nonzero(scores[:, 0] == _IMPOSSIBLE):
            return None
        groups = (len(scores), self._beam.groups, self._beam.group)
        # The best score that a beam can reach: all further tokens certain, the largest divisor.
        divisor = self._beam.penalty(self._count + 1) if self._beam.estimate else self._longest
        done: Bools = self._finished.worst >= scores.reshape(groups).max(2) / divisor
        if self._beam.early:
            done |= self._finished.counts >= self._beam.group
        return done if np.count_nonzero(done) else None

    def _keep_sentences(
        self, kept: Bools, scores: _Floats, rows: Ints, tokens: Ints
    ) -> tuple[_Floats, Ints, Ints]:
        """Keep only these sentences."""
        self._limits.keep(kept)
        self._finished.keep(kept)
        self._numbers, self._lengths = self._numbers[kept], self._lengths[kept]
        self._longest, self._place = self._longest[kept], self._place[: kept.sum()]
        return scores[kept], rows[kept], tokens[kept]

    def _reorder(self, origins: Ints, tokens: Ints) -> None:
        """Select these rows of the state, and store the tokens of the next step."""
        self._backpointers.add(origins, tokens)
        if len(origins) != len(self._same):  # after the first step, or sentences have left
            self._same, self._width = list(range(len(origins))), self._beam.width
            self._first_row = self._place * self._width
            changed = True
        else:
            changed = origins.tolist() != self._same
        if changed:
            order = self._tensor(origins)
            self._state = self._state.select(order)
            if self._weights is not None:
                self._attention_sums = self._attention_sums[order]
        if self._written is not None:
            self._written = np.concatenate((self._written[origins], tokens[:, None]), 1)
        self._tokens = self._tensor(tokens)

    def _tensor(self, array: _Floats | Ints | Bools) -> Tensor:
        """The array as a tensor on the model's device; on a CPU nothing is copied."""
        found = from_numpy(array)
        return found if self._device is None else found.to(self._device)

    def _hypotheses_of(self, place: int) -> SentenceHypotheses:
        """The number and the best hypotheses of the sentence at this index."""
        number = int(self._numbers[place])
        best: dict[tuple[int, ...], Hypothesis] = {}
        for end in self._finished.best(place):
            tokens, rows = self._backpointers.trace(end.row, end.step)
            # Two groups may have found the same hypothesis; the first has the better score.
            best.setdefault(tuple(tokens), Hypothesis(tokens, end.score, end.log_probability, rows))
        if not best:
            raise no_token_error(f"sentence {number}", self._count)
        return number, list(best.values())[: self._beam.n_best]
