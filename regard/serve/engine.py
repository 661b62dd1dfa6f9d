"""Engine: the one thread that computes.

Texts are written in continuous batches, one for each run: requests join and leave between two
steps. Questions that are answered whole (translations, say) are collected by kind, and answered in
turns (turns.py), so that a long one holds up no other. Of a run, two are in progress at most: the
one that has waited longest, and the one with the least work. What waits is bounded; who comes when
the queue is full is told so at once.
"""

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch

from regard.core.errors import UserError
from regard.core.inputs import written_kind
from regard.core.protocols import Selectable
from regard.core.steps import between_steps
from regard.decode import ContinuousBatch, TextPiece, Writer
from regard.decode.text_stream import NO_TOKEN
from regard.serve.errors import Refused
from regard.serve.job import Asking, Gone, Job, Writing
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.served_run import Served
from regard.serve.turns import LONGEST_TURN, Turn

_log = logging.getLogger(__name__)

_Told = Callable[[], None]
"""Something to do in the event loop."""


class Engine:
    """Does jobs, in a thread of its own, from `start` to `stop`."""

    def __init__(self, runs: Sequence[Served], limits: Limits, metrics: Metrics) -> None:
        self.runs = {run.name: run for run in runs}
        self.draining = False
        """Set when the server is to stop: no job is taken any more, those there are done."""
        self.warm = False
        """Has every run been used once?"""
        self._limits, self._metrics = limits, metrics
        self._wake = threading.Condition()
        self._queue: deque[Job] = deque()
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="regard-engine", daemon=True)
        # From here on the thread's own:
        self._batches: dict[str, ContinuousBatch[Selectable]] = {}
        self._writers: dict[Writer, Writing] = {}
        self._unfinished: dict[Writing, int] = {}
        self._turns: list[AnswerInTurns] = []
        self._clock = 0
        self._pool = ThreadPoolExecutor(limits.active, thread_name_prefix="regard-answer")
        # Of both:
        self._unsent = 0

    # In the event loop

    def start(self) -> None:
        """Begin; the results go to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Finish the step at hand and nothing else."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def queued(self) -> int:
        """How many jobs wait."""
        return len(self._queue)

    def check_room(self) -> None:
        """Refuse what is asked when no job can be taken: before anything is done for it."""
        if self.draining or self._stopped:
            raise Refused(503, "the server is about to stop", code="stopping", retry_after=5)
        if len(self._queue) >= self._limits.queued:
            raise _full(f"{self._limits.queued} requests are waiting already")

    @property
    def writing(self) -> int:
        """How many texts are being written."""
        return len(self._writers)

    def submit(self, job: Job) -> None:
        """Queue a job; a full queue refuses it before anything is computed."""
        with self._wake:
            self.check_room()
            share = self._limits.queued if len(self.runs) == 1 else -(-self._limits.queued // 2)
            if sum(each.run == job.run for each in self._queue) >= share:
                raise _full(f"{share} requests are waiting for {job.run!r} already")
            ahead = sum(each.cost for each in self._queue if each.run == job.run)
            if ahead and ahead + job.cost > self._limits.waiting:
                raise _full(f"requests for {job.run!r} of {ahead:,} tokens are waiting already")
            job.deadline = time.monotonic() + _SHARE_OF_TIME * self._limits.seconds
            self._queue.append(job)
            self._wake.notify()

    def leave(self, job: Job) -> None:
        """Nobody waits for this job any more."""
        job.left = True
        with self._wake:
            if job in self._queue:
                self._queue.remove(job)
            if job.unsent:
                job.unsent = False
                self._unsent -= 1
            self._wake.notify()

    # In the thread

    def _work(self) -> None:
        for run in self.runs.values():
            self._warm(run)
        self.warm = True
        while self._awaited():
            begun = time.perf_counter()
            self._step()
            self._start_answers()
            written = time.perf_counter() - begun  # texts and answers have half of the time each
            self._answer(max(_SHORTEST_TURN, min(written, LONGEST_TURN)) if self._writers else None)
        while self._turns:  # their checks raise `Gone` now
            self._turns = [each for each in self._turns if not each.turn.go_on()]
        self._pool.shutdown()

    def _warm(self, run: Served) -> None:
        """What tokenisers and models do at their first use alone is not left to a client."""
        if run.model is not None:
            kind = written_kind(run.opened.takes, "a\ta")
            if kind is None:
                return
            try:
                run.predict(kind.from_text("a\ta", "warm-up"), ())
            except UserError as error:  # it predicts nothing for such a text; others may
                _log.info("%s has no prediction: %s", run.name, error)
            except Exception:  # its clients get an error; the other runs are served
                _log.exception("%s failed at its first use", run.name)

    def _awaited(self) -> bool:
        """Wait until there is something to do; False at the end."""
        with self._wake:
            while not (self._possible() or self._writers or self._turns or self._stopped):
                self._wake.wait(0.5 if self._queue else None)
                if self._queue:  # what waits for room may be late
                    break
            return not self._stopped

    def _step(self) -> None:
        """Take in who waits, let go who left, and write one token of every text."""
        self._expire()
        for writing in self._admitted():
            self._attempt(writing.run, partial(self._begin, writing))
        for writing in [each for each in self._unfinished if each.left]:
            self._end(writing)
        for run, batch in list(self._batches.items()):
            if len(batch):
                self._attempt(run, partial(self._advance, batch))

    def _expire(self) -> None:
        """End what was not done in time: texts where they are, with the reason `length`."""
        now = time.monotonic()
        with self._wake:
            late = [job for job in self._queue if job.deadline < now]
            for job in late:
                self._queue.remove(job)
        error = _full("this request has waited too long")
        self._tell(partial(job.fail, error) for job in late)
        for writing in [each for each in self._unfinished if each.deadline < now]:
            cut = [writer for writer, whose in self._writers.items() if whose is writing]
            ends = [TextPiece(each.row, NO_TOKEN, each.pieces.end(), "length") for each in cut]
            pieces, writing.held = [*writing.held, *ends], []
            self._end(writing)
            self._tell([partial(writing.pieces.put_nowait, pieces)])

    def _attempt(self, run: str, action: Callable[[], None]) -> None:
        """What goes wrong in a batch ends its texts and not the thread."""
        try:
            action()
        except Exception as error:
            _log.exception("writing with %s failed", run)
            failed = [each for each in self._unfinished if each.run == run]
            self._batches.pop(run, None)
            for writing in failed:
                self._forget(writing)
            self._tell(partial(each.fail, error) for each in failed)

    def _admitted(self) -> list[Writing]:
        """Those of the queue for whom there is room, in their order."""
        room: dict[str, int] = {}
        kept: dict[str, int] = {}
        taken: list[Writing] = []
        with self._wake:
            for job in list(self._queue):
                if not isinstance(job, Writing):
                    continue
                free = self._limits.rows - len(self._batches.get(job.run, ()))
                left = room.setdefault(job.run, free)
                most = self._limits.state_bytes - self._kept(job.run)
                bytes_left = kept.setdefault(job.run, most)
                room[job.run] = left - job.rows  # below zero for who comes after, too
                kept[job.run] = bytes_left - job.state_bytes
                alone = left == self._limits.rows
                if job.rows <= left and (job.state_bytes <= bytes_left or alone):
                    self._queue.remove(job)
                    taken.append(job)
        return taken

    def _kept(self, run: str) -> int:
        """What the texts that a run writes may keep in memory until they end."""
        return sum(each.state_bytes for each in self._unfinished if each.run == run)

    def _begin(self, writing: Writing) -> None:
        batch = self._batches.get(writing.run)
        if batch is None:
            stepper, tokeniser = self.runs[writing.run].writer
            device = next(self.runs[writing.run].trained.parameters()).device
            batch = self._batches[writing.run] = ContinuousBatch(stepper, tokeniser, device=device)
        self._unfinished[writing] = writing.rows
        for prompt in writing.prompts:
            for writer in batch.join(prompt.tokens, prompt.request, writing.stops):
                self._writers[writer] = writing

    def _advance(self, batch: ContinuousBatch[Selectable]) -> None:
        begun = time.perf_counter()
        pieces = batch.step()
        self._metrics.stepped(len(pieces), time.perf_counter() - begun)
        told: dict[Writing, list[TextPiece]] = {}
        for writer, piece in pieces:
            writing = self._writers[writer]
            writing.held.append(piece)
            if piece.reason:
                del self._writers[writer]
                self._unfinished[writing] -= 1
                if not self._unfinished[writing]:
                    del self._unfinished[writing]
            if not writing.patient or writing not in self._unfinished:
                told[writing] = writing.held
        for writing in told:
            writing.held = []
        self._tell(partial(each.pieces.put_nowait, some) for each, some in told.items())
        lost = {self._writers[writer] for writer in batch.failed}
        for writing in lost:
            self._end(writing)
        error = UserError("the model's logits are not finite: it has diverged")
        self._tell(partial(each.fail, error) for each in lost)

    def _end(self, writing: Writing) -> None:
        """Stop computing for a request."""
        gone = [writer for writer, whose in self._writers.items() if whose is writing]
        if writing.run in self._batches:
            self._batches[writing.run].leave(gone)
        self._forget(writing)

    def _forget(self, writing: Writing) -> None:
        self._unfinished.pop(writing, None)
        for writer in [each for each, whose in self._writers.items() if whose is writing]:
            del self._writers[writer]

    def _possible(self) -> bool:
        """Is there a job in the queue that could start now?"""
        if self._unsent < self._limits.unsent:
            return bool(self._queue)
        return any(not (isinstance(job, Asking) and job.large) for job in self._queue)

    def _start_answers(self) -> None:
        """Start to answer questions that wait, of runs with the fewest in progress first."""
        with self._wake:
            while len(self._turns) < self._limits.active:
                active = Counter(each.run for each in self._turns)
                waiting: dict[str, list[Asking[object, object]]] = {}
                for job in self._queue:
                    if not isinstance(job, Asking) or active[job.run] >= _EACH:
                        continue
                    if not job.large or self._unsent < self._limits.unsent:
                        waiting.setdefault(job.run, []).append(job)
                if not waiting:
                    return
                run = min(waiting, key=lambda name: active[name])
                self._start(run, waiting[run])

    def _start(self, run: str, waiting: Sequence[Asking[object, object]]) -> None:
        """Start to answer one of these questions, with others of its kind."""
        oldest = not any(each.oldest for each in self._turns if each.run == run)
        first = waiting[0] if oldest else min(waiting, key=lambda job: job.cost)
        asked, cost = [first], first.cost
        for each in waiting:
            alike = each is not first and each.kind == first.kind
            if alike and cost + each.cost <= self._limits.together:
                asked.append(each)
                cost += each.cost
        for each in asked:
            self._queue.remove(each)
            each.unsent = each.large
            self._unsent += each.large

        def check() -> None:
            if self._stopped or all(each.left for each in asked):
                raise Gone

        turn = Turn(self._pool, partial(self._compute, asked), check)
        self._turns.append(AnswerInTurns(run, turn, oldest))

    def _answer(self, seconds: float | None) -> None:
        """Give a turn to the run that has waited longest for one."""
        if not self._turns:
            return
        last: dict[str, int] = {}
        for each in self._turns:
            last[each.run] = max(last.get(each.run, 0), each.last)
        chosen = min(self._turns, key=lambda each: (last[each.run], each.last))
        self._clock += 1
        chosen.last = self._clock
        if chosen.turn.go_on(LONGEST_TURN if seconds is None else seconds):
            self._turns.remove(chosen)

    def _compute(self, asked: Sequence[Asking[object, object]]) -> None:
        """Answer questions of one kind, in a thread of the pool."""
        try:
            with torch.inference_mode():
                between_steps()
                answers = asked[0].work([each.question for each in asked])
        except Exception as error:
            if len(asked) > 1 and not isinstance(error, Gone):
                self._answer_singly(asked)
            else:
                self._tell(partial(each.fail, error) for each in asked)
        else:
            pairs = zip(asked, answers, strict=True)
            self._tell(partial(each.succeed, answer) for each, answer in pairs)

    def _answer_singly(self, asked: Sequence[Asking[object, object]]) -> None:
        """One of several questions was bad: find out which, for the others are not to suffer."""
        with self._wake:
            for number, each in enumerate(asked):
                each.kind = (each.kind, number)
            self._queue.extendleft(reversed(asked))

    def _tell(self, news: Iterable[_Told]) -> None:
        """Do these in the event loop, if it still runs."""
        calls = list(news)
        if not calls or self._loop is None or self._loop.is_closed():
            return

        def tell() -> None:
            for call in calls:
                call()

        self._loop.call_soon_threadsafe(tell)


_SHARE_OF_TIME = 0.8
"""The part of a request's time in which its answer must be computed; the rest is for sending it."""
_SHORTEST_TURN = 0.002
"""Seconds of a turn, however quickly the next tokens of texts were computed."""
_EACH = 2
"""Questions of one run that are answered at the same time."""


@dataclass(eq=False)
class AnswerInTurns:
    """Questions that are being answered, in turns with others."""

    run: str
    turn: Turn
    oldest: bool
    """Did it start because it had waited longest? The other of its run had the least work."""
    last: int = 0
    """When it had its last turn."""


def _full(why: str) -> Refused:
    return Refused(429, f"{why}: try again later", code="queue_full", retry_after=1)
