"""Engine: the one thread that computes.

Texts are written in continuous batches, one for each run: requests join and leave between two
steps. Between steps, questions that are answered whole (translations, say) are collected by kind
and answered together. What waits is bounded; who comes when the queue is full is told so at once.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch

from regard.core.errors import UserError
from regard.core.inputs import written_kind
from regard.core.protocols import Selectable
from regard.decode import ContinuousBatch, TextPiece, Writer
from regard.serve.errors import Refused
from regard.serve.job import Asking, Gone, Job, Writing
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.served_run import Served

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
            raise Refused(
                429,
                f"{self._limits.queued} requests are waiting already: try again later",
                code="queue_full",
                retry_after=1,
            )

    @property
    def writing(self) -> int:
        """How many texts are being written."""
        return len(self._writers)

    def submit(self, job: Job) -> None:
        """Queue a job; a full queue refuses it before anything is computed."""
        with self._wake:
            self.check_room()
            self._queue.append(job)
            self._wake.notify()

    def leave(self, job: Job) -> None:
        """Nobody waits for this job any more."""
        job.left = True
        with self._wake:
            if job in self._queue:
                self._queue.remove(job)
            self._wake.notify()

    # In the thread

    def _work(self) -> None:
        for run in self.runs.values():
            self._warm(run)
        self.warm = True
        while self._awaited():
            self._step()
            self._answer()

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
            while not (self._queue or self._writers or self._stopped):
                self._wake.wait()
            return not self._stopped

    def _step(self) -> None:
        """Take in who waits, let go who left, and write one token of every text."""
        for writing in self._admitted():
            self._attempt(writing.run, partial(self._begin, writing))
        for writing in [each for each in self._unfinished if each.left]:
            self._end(writing)
        for run, batch in list(self._batches.items()):
            if len(batch):
                self._attempt(run, partial(self._advance, batch))

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
        taken: list[Writing] = []
        with self._wake:
            for job in list(self._queue):
                if not isinstance(job, Writing):
                    continue
                free = self._limits.rows - len(self._batches.get(job.run, ()))
                left = room.setdefault(job.run, free)
                room[job.run] = left - job.rows  # below zero for who comes after, too
                if job.rows <= left:
                    self._queue.remove(job)
                    taken.append(job)
        return taken

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

    def _answer(self) -> None:
        """Answer the question that has waited longest, with all others of its kind."""
        with self._wake:
            waiting = [job for job in self._queue if isinstance(job, Asking)]
            asked = [each for each in waiting if (each.run, each.kind) == key(waiting[0])]
            for each in asked:
                self._queue.remove(each)
        if not asked:
            return

        def check() -> None:
            if self._stopped or all(each.left for each in asked):
                raise Gone

        try:
            with torch.inference_mode():
                answers = asked[0].work([each.question for each in asked], check)
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


def key(job: Asking[object, object]) -> tuple[str, object]:
    """What questions that are answered together have in common."""
    return job.run, job.kind
