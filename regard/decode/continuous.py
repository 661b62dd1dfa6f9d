"""Continuous: texts that join a running batch and leave it between two steps, as a server needs it.

Each text has its own policy, length and stops, and what it writes does not depend on its batch
mates (but for what adding up in another order does to the last bits of a logit). Prompts of one
length are read at once; then their states are joined with those of the others. A model that cannot
join states is stepped once for each.

>>> import torch
>>> class Next:                                    # a model: after each letter comes the next one
...     def select(self, rows): return self
...     def start(self, source): return self
...     def step(self, tokens, state): return torch.eye(128)[tokens + 1], self
...     def join(self, states): return self
>>> class Letters:
...     def decode(self, ids): return "".join(chr(each) for each in ids)
>>> batch = Continuous(Next(), Letters())
>>> (first,) = batch.join([ord("a")], Request(max_tokens=3))
>>> [piece.text for _, piece in batch.step()]
['b']
>>> (second,) = batch.join([ord("x")], Request(max_tokens=9), stops=["z"])
>>> [(writer is first, piece.text, piece.reason) for writer, piece in batch.step()]
[(True, 'c', None), (False, 'y', None)]
>>> [(piece.text, piece.reason) for _, piece in batch.step()]
[('d', 'length'), ('', 'stop')]
>>> len(batch)
0
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Generic

import torch
from torch import Tensor

from regard.core.protocols import Joins, State, Stepper
from regard.decode.greedy import Greedy
from regard.decode.policy import Policy, Row
from regard.decode.sample import Draws, Sampling, drawn
from regard.decode.stream import Alternatives, Reason, Request, fitting
from regard.decode.text_stream import Decoder, Piece, Pieces


class Writer:
    """One text that is being written: one of the samples of a prompt."""

    def __init__(
        self, row: Row, prompt: Sequence[int], request: Request, most: int, pieces: Pieces
    ) -> None:
        self.row, self.request, self.most = row, request, most
        self.stop = frozenset(request.stop)
        self.pieces = pieces
        self.written = list(prompt)
        """All tokens so far, those of the prompt too."""
        self.count = 0
        policy = request.policy
        self.draws = Draws(policy.seed, [row]) if isinstance(policy, Sampling) else None
        self.alike: Policy = replace(policy, seed=0) if isinstance(policy, Sampling) else policy
        """What rows must have in common to be chosen for in one pass."""

    def push(self, token: int, log: float | None, others: Alternatives | None) -> Piece:
        """The text that this token completes, and whether it was the last."""
        self.written.append(token)
        self.count += 1
        reason: Reason | None = "length" if self.count == self.most else None
        if token in self.stop:
            reason, text = "stop", ""  # a token that says "stop" is no text
        else:
            text = self.pieces.push(token)
        if reason is not None:
            text += self.pieces.end()
        if self.pieces.stopped:
            reason = "stop"
        return Piece(self.row, token, text, reason, log, others)


class Continuous(Generic[State]):
    """A batch that texts join and leave between steps; the model is to be in eval mode."""

    def __init__(
        self, stepper: Stepper[State], decoder: Decoder, *, device: torch.device | str = "cpu"
    ) -> None:
        self._stepper, self._decoder, self._device = stepper, decoder, device
        self._waiting: list[list[Writer]] = []
        self._groups: list[tuple[list[Writer], State]] = []  # one if all states can be joined
        self._gone: set[Writer] = set()
        self.lost: list[Writer] = []
        """Texts that ended in the last step because logits were not finite; the others go on."""

    def __len__(self) -> int:
        """How many texts are being written."""
        return sum(len(some) for some in self._together()) - len(self._gone)

    def join(
        self, prompt: Sequence[int], request: Request, stops: Sequence[str] = ()
    ) -> list[Writer]:
        """Begin as many texts as the request has samples; they are in the next step."""
        most = fitting(self._stepper, len(prompt), request.max_tokens)
        writers = [
            Writer(
                Row(request.first, sample),
                prompt,
                request,
                most,
                Pieces(self._decoder, stops=stops, after=prompt),
            )
            for sample in range(request.samples)
        ]
        self._waiting.append(writers)
        return writers

    def leave(self, writers: Iterable[Writer]) -> None:
        """These are not in the next step; nothing is computed for them any more."""
        here = {writer for some in self._together() for writer in some}
        self._gone.update(here.intersection(writers))

    def _together(self) -> list[list[Writer]]:
        return [*self._waiting, *(writers for writers, _ in self._groups)]

    @torch.inference_mode()
    def step(self) -> list[tuple[Writer, Piece]]:
        """The next token of every text, except for those that are `lost`."""
        self.lost = []
        self._part()
        self._start()
        if not self._groups:
            return []
        logits = self._stepped()
        writers = [writer for some, _ in self._groups for writer in some]
        pieces = self._chosen(writers, logits[0] if len(logits) == 1 else torch.cat(logits))
        found = {writer for writer, _ in pieces}
        self.lost = [writer for writer in writers if writer not in found]
        self._gone.update(self.lost)
        self._gone.update(writer for writer, piece in pieces if piece.reason)
        self._part()
        self._join()
        return pieces

    def _stepped(self) -> list[Tensor]:
        """What the model says next, `[B,V]` for each group."""
        said = []
        for place, (writers, state) in enumerate(self._groups):
            last = torch.tensor([writer.written[-1] for writer in writers], device=self._device)
            logits, state = self._stepper.step(last, state)
            said.append(logits)
            self._groups[place] = (writers, state)
        return said

    def _start(self) -> None:
        """Read the prompts of those who wait, those of one length at once."""
        lengths: dict[int, list[list[Writer]]] = {}
        for writers in self._waiting:
            lengths.setdefault(len(writers[0].written), []).append(writers)
        self._waiting = []
        for some in lengths.values():
            prompts = [writers[0].written for writers in some]
            tokens = torch.tensor(prompts, device=self._device)  # [B,T]
            state = self._stepper.start({"tokens": tokens})
            places = [place for place, writers in enumerate(some) for _ in writers]
            if len(places) > len(some):
                state = state.select(torch.tensor(places, device=self._device))
            self._groups.append(([writer for writers in some for writer in writers], state))
        if lengths:
            self._join()

    def _part(self) -> None:
        """Go on without those who have left."""
        if not self._gone:
            return
        waiting = ([w for w in some if w not in self._gone] for some in self._waiting)
        self._waiting = [some for some in waiting if some]
        groups = []
        for writers, state in self._groups:
            kept = [place for place, w in enumerate(writers) if w not in self._gone]
            if 0 < len(kept) < len(writers):
                state = state.select(torch.tensor(kept, device=self._device))
            if kept:
                groups.append(([writers[place] for place in kept], state))
        self._groups = groups
        self._gone.clear()

    def _join(self) -> None:
        """Make one group of all, if the model can."""
        if len(self._groups) < 2 or not isinstance(self._stepper, Joins):
            return
        state = self._stepper.join([state for _, state in self._groups])
        if state is not None:
            self._groups = [([writer for writers, _ in self._groups for writer in writers], state)]

    def _chosen(self, writers: list[Writer], logits: Tensor) -> list[tuple[Writer, Piece]]:
        """A token for each, in one pass for all that choose alike."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # [B,V]
        finite: list[bool] = logits.amax(-1).isfinite().tolist()
        alike: dict[Policy, list[int]] = {}
        for place, writer in enumerate(writers):
            if finite[place]:
                alike.setdefault(writer.alike, []).append(place)
        tokens: dict[int, int] = {}
        for policy, places in alike.items():
            some = logits if len(places) == len(writers) else logits[places]
            chosen = _choose(policy, [writers[place] for place in places], some)
            tokens.update(zip(places, chosen.tolist(), strict=True))
        logs = self._likely(writers, logits, tokens)
        nothing = (None, None)
        return [
            (writer, writer.push(tokens[place], *logs.get(place, nothing)))
            for place, writer in enumerate(writers)
            if place in tokens
        ]

    def _likely(
        self, writers: list[Writer], logits: Tensor, tokens: dict[int, int]
    ) -> dict[int, tuple[float, Alternatives | None]]:
        """The model's own log-probabilities for those who want them."""
        asked = {p: writers[p].request.alternatives for p in tokens}
        wanted = {place: count for place, count in asked.items() if count is not None}
        if not wanted:
            return {}
        logs = logits[list(wanted)].log_softmax(-1)  # [B,V]
        best, ids = logs.topk(min(max(wanted.values()), logs.shape[1]))  # [B,C]
        found: dict[int, tuple[float, Alternatives | None]] = {}
        for row, (place, count) in enumerate(wanted.items()):
            pairs = list(zip(ids[row].tolist(), best[row].tolist(), strict=True))[:count]
            found[place] = (float(logs[row, tokens[place]]), pairs or None)
        return found


def _choose(policy: Policy, writers: Sequence[Writer], logits: Tensor) -> Tensor:
    """The next token of writers who choose alike; each draws its own random numbers."""
    if policy.rules:
        past = _past(policy, writers, logits.device)
        for rule in policy.rules:
            logits = rule(logits, past)
    draws = [writer.draws for writer in writers if writer.draws is not None]
    if not draws:
        return policy.begin([writer.row for writer in writers]).choose(logits)
    return drawn(logits, torch.cat([each.next(logits.device) for each in draws]))


def _past(policy: Policy, writers: Sequence[Writer], device: torch.device) -> Tensor:
    """What each has written, `[B,T]`; the shorter ones repeat their last token.

    Rules ask which tokens were there, not where; and only one of them asks.
    """
    if isinstance(policy, Greedy | Sampling) and policy.repetition_penalty == 1:
        return torch.empty(len(writers), 0, dtype=torch.long, device=device)
    longest = max(len(writer.written) for writer in writers)
    rows = [w.written + w.written[-1:] * (longest - len(w.written)) for w in writers]
    return torch.tensor(rows, device=device)
