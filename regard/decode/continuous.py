"""Continuous batching for a server: texts join and leave a running batch between two steps.

Each text has its own policy, length and stop strings. It does not depend on the other texts of the
batch, except for rounding in the last bits of the logits. Prompts of one length are read together;
then their states are joined with those of the others. A model that cannot join states runs one step
for each group of states.

>>> import torch
>>> class Next:                                    # a model: after each letter comes the next one
...     def select(self, rows): return self
...     def start(self, source): return self
...     def step(self, tokens, state): return torch.eye(128)[tokens + 1], self
...     def join(self, states): return self
>>> class Characters:
...     def decode(self, ids): return "".join(chr(each) for each in ids)
>>> batch = ContinuousBatch(Next(), Characters())
>>> (first,) = batch.join([ord("a")], GenerationRequest(max_tokens=3))
>>> [piece.text for _, piece in batch.step()]
['b']
>>> (second,) = batch.join([ord("x")], GenerationRequest(max_tokens=9), stops=["z"])
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
from regard.decode.policy import Greedy, Policy, SampleId, Sampler, Sampling, sample_tokens
from regard.decode.stream import Alternatives, GenerationRequest, Reason, check_max_tokens
from regard.decode.text_stream import IncrementalText, TextPiece, TokenDecoder


class Writer:
    """One unfinished text: a sample of a prompt."""

    def __init__(
        self,
        row: SampleId,
        prompt: Sequence[int],
        request: GenerationRequest,
        most: int,
        pieces: IncrementalText,
    ) -> None:
        self.row, self.request, self.most = row, request, most
        self.stop = frozenset(request.stop)
        self.pieces = pieces
        self.written = list(prompt)
        """All tokens so far, including the prompt."""
        self.count = 0
        policy = request.policy
        self.sampler = Sampler(policy.seed, [row]) if isinstance(policy, Sampling) else None
        self.grouping_policy: Policy = (
            replace(policy, seed=0) if isinstance(policy, Sampling) else policy
        )
        """The policy without its seed: tokens of texts with the same one are chosen together."""

    def push(self, token: int, log: float | None, others: Alternatives | None) -> TextPiece:
        """The text that this token completes, and whether it was the last."""
        self.written.append(token)
        self.count += 1
        reason: Reason | None = "length" if self.count == self.most else None
        if token in self.stop:
            reason, text = "stop", ""  # a stop token has no text
        else:
            text = self.pieces.push(token)
        if reason is not None:
            text += self.pieces.end()
        if self.pieces.stopped:
            reason = "stop"
        return TextPiece(self.row, token, text, reason, log, others)


_MOST_READ = 2048
"""Tokens of prompts that are read in one step, unless one prompt has more."""


class ContinuousBatch(Generic[State]):
    """A batch that texts join and leave between steps; the model should be in eval mode."""

    def __init__(
        self, stepper: Stepper[State], decoder: TokenDecoder, *, device: torch.device | str = "cpu"
    ) -> None:
        self._stepper, self._decoder, self._device = stepper, decoder, device
        self._waiting: list[list[Writer]] = []
        self._groups: list[tuple[list[Writer], State]] = []  # one if all states can be joined
        self._gone: set[Writer] = set()
        self.failed: list[Writer] = []
        """Texts that ended in the last step because their logits were not finite."""

    def __len__(self) -> int:
        """The number of unfinished texts."""
        return sum(len(some) for some in self._together()) - len(self._gone)

    def join(
        self, prompt: Sequence[int], request: GenerationRequest, stops: Sequence[str] = ()
    ) -> list[Writer]:
        """Add the samples of a prompt to the batch, from the next step on."""
        most = check_max_tokens(self._stepper, len(prompt), request.max_tokens)
        writers = [
            Writer(
                SampleId(request.first, sample),
                prompt,
                request,
                most,
                IncrementalText(self._decoder, stops=stops, after=prompt),
            )
            for sample in range(request.samples)
        ]
        self._waiting.append(writers)
        return writers

    def leave(self, writers: Iterable[Writer]) -> None:
        """Remove these texts from the batch, from the next step on."""
        here = {writer for some in self._together() for writer in some}
        self._gone.update(here.intersection(writers))

    def _together(self) -> list[list[Writer]]:
        return [*self._waiting, *(writers for writers, _ in self._groups)]

    @torch.inference_mode()
    def step(self) -> list[tuple[Writer, TextPiece]]:
        """The next token of every text, except for those in `failed`."""
        self.failed = []
        self._remove_finished()
        self._start()
        if not self._groups:
            return []
        logits = self._step_groups()
        writers = [writer for some, _ in self._groups for writer in some]
        pieces = self._choose_tokens(writers, logits[0] if len(logits) == 1 else torch.cat(logits))
        found = {writer for writer, _ in pieces}
        self.failed = [writer for writer in writers if writer not in found]
        self._gone.update(self.failed)
        self._gone.update(writer for writer, piece in pieces if piece.reason)
        self._remove_finished()
        self._join()
        return pieces

    def _step_groups(self) -> list[Tensor]:
        """The logits of the next tokens, `[B,V]` for each group."""
        every = []
        for place, (writers, state) in enumerate(self._groups):
            last = torch.tensor([writer.written[-1] for writer in writers], device=self._device)
            logits, state = self._stepper.step(last, state)
            every.append(logits)
            self._groups[place] = (writers, state)
        return every

    def _start(self) -> None:
        """Read the waiting prompts, those of one length together."""
        lengths: dict[int, list[list[Writer]]] = {}
        room = _MOST_READ
        while self._waiting and (not lengths or len(self._waiting[0][0].written) <= room):
            writers = self._waiting.pop(0)  # what has no room is read in the next step
            room -= len(writers[0].written)
            lengths.setdefault(len(writers[0].written), []).append(writers)
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

    def _remove_finished(self) -> None:
        """Remove the texts that have ended."""
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
        """Join all groups to one, if the model supports it."""
        if len(self._groups) < 2 or not isinstance(self._stepper, Joins):
            return
        state = self._stepper.join([state for _, state in self._groups])
        if state is not None:
            self._groups = [([writer for writers, _ in self._groups for writer in writers], state)]

    def _choose_tokens(
        self, writers: list[Writer], logits: Tensor
    ) -> list[tuple[Writer, TextPiece]]:
        """A token for each text, in one pass for all with the same policy."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # [B,V]
        finite: list[bool] = logits.amax(-1).isfinite().tolist()
        alike: dict[Policy, list[int]] = {}
        for place, writer in enumerate(writers):
            if finite[place]:
                alike.setdefault(writer.grouping_policy, []).append(place)
        tokens: dict[int, int] = {}
        for policy, places in alike.items():
            some = logits if len(places) == len(writers) else logits[places]
            chosen = _choose(policy, [writers[place] for place in places], some)
            tokens.update(zip(places, chosen.tolist(), strict=True))
        logs = self._log_probabilities(writers, logits, tokens)
        nothing = (None, None)
        return [
            (writer, writer.push(tokens[place], *logs.get(place, nothing)))
            for place, writer in enumerate(writers)
            if place in tokens
        ]

    def _log_probabilities(
        self, writers: list[Writer], logits: Tensor, tokens: dict[int, int]
    ) -> dict[int, tuple[float, Alternatives | None]]:
        """The model's log-probabilities for the texts whose request has `alternatives`."""
        counts = {place: writers[place].request.alternatives for place in tokens}
        wanted = {place: count for place, count in counts.items() if count is not None}
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
    """The next tokens of texts with the same policy; each has its own random numbers."""
    if policy.rules:
        past = _past(policy, writers, logits.device)
        for rule in policy.rules:
            logits = rule(logits, past)
    draws = [writer.sampler for writer in writers if writer.sampler is not None]
    if not draws:
        return policy.begin([writer.row for writer in writers]).choose(logits)
    return sample_tokens(logits, torch.cat([each.next(logits.device) for each in draws]))


def _past(policy: Policy, writers: Sequence[Writer], device: torch.device) -> Tensor:
    """The tokens of each text, `[B,T]`; shorter ones repeat their last token.

    Rules depend on which tokens occurred, not where; and only the repetition penalty does.
    """
    if isinstance(policy, Greedy | Sampling) and policy.repetition_penalty == 1:
        return torch.empty(len(writers), 0, dtype=torch.long, device=device)
    longest = max(len(writer.written) for writer in writers)
    rows = [w.written + w.written[-1:] * (longest - len(w.written)) for w in writers]
    return torch.tensor(rows, device=device)
