"""Search: beam search over any model that is a Stepper (Graves 2012; Sutskever et al. 2014).

All beams of all sentences are one batch, sentence by sentence: row = sentence · width + beam. The
first step alone has one row per sentence. A sentence is done when nothing that goes on can still
get among its best, and leaves the batch. What it finds does not depend on which others are there.

What is as large as the vocabulary is done in torch; the few candidates of a step are sorted out in
NumPy, which answers small questions several times faster.

>>> class Doubt:                  # a model: 4 is likelier than 5, but nobody knows what comes next
...     chances = torch.full((8, 8), 0.125)
...     chances[2] = torch.tensor([0, 0, 0, 0, 0.6, 0.4, 0, 0])
...     chances[5] = torch.tensor([0, 0, 0, 1.0, 0, 0, 0, 0])
...     def select(self, rows): return self
...     def start(self, source): return self
...     def step(self, tokens, state): return self.chances[tokens].log(), self
>>> source = {"source": torch.zeros(1, 1), "source_lengths": torch.ones(1, dtype=torch.int64)}
>>> [(number, [best])] = next(filter(None, Search(Doubt(), source, Beam(width=2))))
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
from regard.decode.beam import Beam
from regard.decode.finished import End, Ended
from regard.decode.hypothesis import Found, Hypothesis, Trail
from regard.decode.limits import Bools, Ints, Limits, forbid, room, source_lengths, stranded
from regard.decode.penalty import coverage
from regard.decode.stream import diverged
from regard.decode.top_k import log_total, top

_Floats = NDArray[np.float32]

_NEVER = -np.inf
"""The score of what cannot be."""


class Search(Generic[State]):
    """Steps of some sentences, one for each token; each gives the sentences that it finished.

    `weights` gives for a state the weights `[B,S]` of its last step, which coverage asks for. The
    model is to be in eval mode, or its dropout goes on.
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
            raise UserError(f"coverage={beam.coverage} needs `weights`, a function that gives them")
        lengths = source_lengths(source, beam)
        sentences = len(lengths)
        self._numbers: Ints = np.array(range(sentences) if numbers is None else numbers)
        self._limits = Limits(beam, self._numbers.tolist(), lengths, prefixes, room(stepper))
        self._stepper, self._beam = stepper, beam
        self._count = 0
        self._width = 1  # rows per sentence; from the second step on, the beam's
        self._place = self._first_row = np.arange(sentences)[:, None]  # [N,1]
        self._scores: _Floats = np.zeros((sentences, 1), np.float32)  # [N,W]; -inf is a dead beam
        self._base = self._scores  # [N,W]: with a logit added, the score of the next step
        self._longest = np.array([[beam.penalty(most + 1)] for most in self._limits.most.tolist()])
        self._ended = Ended(sentences, beam.groups, -(-beam.n_best // beam.groups))
        self._trail = Trail()
        self._same: list[int] = []
        self._written: Ints | None = np.zeros((sentences, 0), np.int64) if beam.no_repeat else None
        self._weights = weights if beam.coverage else None
        self._lengths = lengths
        self._quiet = torch.inference_mode()
        with self._quiet:
            self._state = stepper.start(source)
            device = next(iter(source.values())).device
            self._device = None if device.type == "cpu" else device
            self._tokens = torch.full((sentences,), beam.bos, device=device)
            self._seen = torch.zeros((), device=device)  # [B,S] once there were weights

    def __iter__(self) -> Iterator[list[Found]]:
        return self

    def __next__(self) -> list[Found]:
        """Another token for every beam, and the sentences that are done with it."""
        if not len(self._numbers):
            raise StopIteration
        with self._quiet:
            logits, self._state = self._stepper.step(self._tokens, self._state)  # [B,V]
            if not self._count:
                self._limits.check_vocabulary(logits.shape[1])
            if self._weights is not None:
                self._seen = self._seen + self._weights(self._state)  # [B,S]
            scores, rows, tokens = self._extended(self._rated(logits))  # [N,W] each
            return self._go_on(scores, rows, tokens)

    def _rated(self, logits: Tensor) -> Tensor:
        """Logits `[N,W,V]`, without what may not be written.

        With `_base` they are what hypotheses are worth: what it takes to make log-probabilities of
        them is the same for all tokens of a row, so it is taken off once, with the score.
        """
        logits = logits.float()
        totals = log_total(logits).cpu().numpy()  # [B]
        self._base = self._scores - totals.reshape(self._scores.shape)
        banned = self._limits.bans(self._count, self._written, self._width)
        if banned is not None:
            logits = logits.clone()
            forbid(logits, banned)
        return logits.view(len(self._numbers), self._width, logits.shape[1])

    def _extended(self, logits: Tensor) -> tuple[_Floats, Ints, Ints]:
        """The beams that go on: their scores, the rows they come from and their new tokens."""
        group, base = self._beam.group, self._tensor(self._base)
        if self._beam.groups == 1:
            return self._sorted_out(0, logits, *top(logits, base, 2 * group))
        taken = logits.new_zeros(len(logits), logits.shape[2])  # [N,V]: by how many beams so far
        parts = []
        for number in range(self._beam.groups):
            mine = self._beams_of(number)
            ranks = logits[:, mine] - self._beam.diversity * taken[:, None]
            _, beams, tokens = top(ranks, base[:, mine], 2 * group)
            values = self._values(logits, self._place, beams + mine.start, tokens)
            parts.append(self._sorted_out(number, logits, values, beams, tokens))
            alive = self._tensor(parts[-1][0]) > _NEVER
            taken.scatter_add_(1, self._tensor(parts[-1][2]), alive.to(taken.dtype))
        first, second, third = zip(*parts, strict=True)
        return np.concatenate(first, 1), np.concatenate(second, 1), np.concatenate(third, 1)

    def _beams_of(self, number: int) -> slice:
        """The beams of a group; at the first step all groups begin with the one there is."""
        group = self._beam.group
        return slice(0, 1) if self._width == 1 else slice(number * group, number * group + group)

    def _values(self, logits: Tensor, places: Ints, beams: Ints, tokens: Ints) -> _Floats:
        """Log-probabilities of hypotheses with these tokens added; the three are broadcast."""
        index = [self._tensor(each) for each in (places, beams, tokens)]
        added: _Floats = logits[index[0], index[1], index[2]].cpu().numpy()
        return added + self._base[places, beams]

    def _sorted_out(
        self, number: int, logits: Tensor, values: _Floats, beams: Ints, tokens: Ints
    ) -> tuple[_Floats, Ints, Ints]:
        """Of a group's candidates `[N,C]`, those that end are noted and the best others go on."""
        group, mine = self._beam.group, self._beams_of(number)
        if np.count_nonzero(np.isnan(values)):
            sentence = self._numbers[np.isnan(values).any(1).argmax()]
            raise diverged(f"sentence {sentence}", self._count + 1)
        if values.shape[1] < 2 * group:  # the vocabulary is smaller than the beam
            more = ((0, 0), (0, 2 * group - values.shape[1]))
            values = np.pad(values, more, constant_values=-np.inf)
            beams, tokens = np.pad(beams, more), np.pad(tokens, more)
        self._obey(mine, logits, values, beams, tokens)
        rows = beams + (self._first_row + mine.start)
        ends = tokens == self._beam.eos
        if not np.count_nonzero(ends):  # several times faster than any()
            return values[:, :group], rows[:, :group], tokens[:, :group]
        self._note(number, values[:, :group], rows, ends)
        # Candidates are twice the beams, and of each beam one at most ends: enough go on.
        others = self._place, ends.argsort(1, kind="stable")[:, :group]
        return np.where(ends, _NEVER, values)[others], rows[others], tokens[others]

    def _obey(
        self, mine: slice, logits: Tensor, values: _Floats, beams: Ints, tokens: Ints
    ) -> None:
        """Where there is no choice, put what has to come in place of the candidates."""
        forced, full = self._limits.forced(self._count), self._limits.full(self._count)
        if forced is not None:
            places, given = forced
            first = np.full_like(places, mine.start)
            values[places], tokens[places], beams[places] = _NEVER, given[:, None], 0
            values[places, 0] = self._values(logits, places, first, given)
        if full is not None:
            each = np.arange(mine.stop - mine.start)
            ends = np.full((1, 1), self._beam.eos)
            values[full], tokens[full] = _NEVER, self._beam.eos
            beams[full, : len(each)] = each
            at = full[:, None]
            values[full, : len(each)] = self._values(logits, at, each[None] + mine.start, ends)

    def _note(self, number: int, values: _Floats, rows: Ints, ends: Bools) -> None:
        """Candidates that end, if they are so good that they would have gone on otherwise."""
        places, ranks = (ends[:, : values.shape[1]] & (values > _NEVER)).nonzero()
        if not len(places):
            return
        by, which = self._beam.penalty(self._count + 1), rows[places, ranks]
        logs = values[places, ranks].astype(np.float64)
        scores = logs / by + self._covered(places, which)
        every = map(End, scores.tolist(), logs.tolist(), which.tolist(), repeat(self._count))
        for place, end in zip(places.tolist(), every, strict=True):
            self._ended.add(place, number, end)

    def _covered(self, places: Ints, rows: Ints) -> NDArray[np.float64] | float:
        """The coverage penalties of rows that end; the places are those of their sentences."""
        if self._weights is None:
            return 0.0
        seen = self._seen[self._tensor(rows)]  # [N,S]
        there = np.arange(seen.shape[1]) < self._lengths[places, None]  # [N,S]
        found = coverage(seen, self._tensor(there), self._beam.coverage)  # [N]
        return found.cpu().double().numpy()  # in this order: MPS has no float64

    def _go_on(self, scores: _Floats, rows: Ints, tokens: Ints) -> list[Found]:
        """Prepare the next step, without the sentences that are done."""
        found: list[Found] = []
        done = self._done(scores)  # [N,G]
        if done is not None:
            left: Bools = np.all(done, axis=1)
            found = [self._found(place) for place in left.nonzero()[0].tolist()]
            scores = np.where(np.repeat(done, self._beam.group, 1), _NEVER, scores)
            if found:
                scores, rows, tokens = self._part(~left, scores, rows, tokens)
        self._count += 1
        self._scores = np.ascontiguousarray(scores)
        if len(scores):
            self._move(rows.ravel(), tokens.ravel())
        return found

    def _done(self, scores: _Floats) -> Bools | None:
        """Which groups cannot find anything better any more; None if all can."""
        if not self._ended.any and not np.count_nonzero(scores[:, 0] == _NEVER):
            return None
        groups = (len(scores), self._beam.groups, self._beam.group)
        # The most that a beam can reach: all further tokens certain, the penalty the mildest.
        done: Bools = self._ended.worst >= scores.reshape(groups).max(2) / self._longest
        if self._beam.early:
            done |= self._ended.counts >= self._beam.group
        return done if np.count_nonzero(done) else None

    def _part(
        self, kept: Bools, scores: _Floats, rows: Ints, tokens: Ints
    ) -> tuple[_Floats, Ints, Ints]:
        """Go on with these sentences alone."""
        self._limits.keep(kept)
        self._ended.keep(kept)
        self._numbers, self._lengths = self._numbers[kept], self._lengths[kept]
        self._longest, self._place = self._longest[kept], self._place[: kept.sum()]
        return scores[kept], rows[kept], tokens[kept]

    def _move(self, origins: Ints, said: Ints) -> None:
        """Make the state that of these rows, and remember what they read next."""
        self._trail.add(origins, said)
        if len(origins) != len(self._same):  # one row becomes several, or sentences have left
            self._same, self._width = list(range(len(origins))), self._beam.width
            self._first_row = self._place * self._width
            changed = True
        else:
            changed = origins.tolist() != self._same
        if changed:
            order = self._tensor(origins)
            self._state = self._state.select(order)
            if self._weights is not None:
                self._seen = self._seen[order]
        if self._written is not None:
            self._written = np.concatenate((self._written[origins], said[:, None]), 1)
        self._tokens = self._tensor(said)

    def _tensor(self, array: _Floats | Ints | Bools) -> Tensor:
        """Where the model is; on a processor nothing is copied, and nothing asked for."""
        found = from_numpy(array)
        return found if self._device is None else found.to(self._device)

    def _found(self, place: int) -> Found:
        """The number of the sentence at this place and its best hypotheses."""
        number = int(self._numbers[place])
        best: dict[tuple[int, ...], Hypothesis] = {}
        for end in self._ended.best(place):
            tokens, rows = self._trail.back(end.row, end.step)
            # Two groups may have found the same; the first is the better one.
            best.setdefault(tuple(tokens), Hypothesis(tokens, end.score, end.log_probability, rows))
        if not best:
            raise stranded(f"sentence {number}", self._count)
        return number, list(best.values())[: self._beam.n_best]
