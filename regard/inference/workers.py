"""Several processes that translate together, each with one thread and a model of its own.

A small model is faster on two processes of one thread than on one of two: threads that hand over to
one another wait longer than they work. So lines go to workers in batches of like length, whoever is
free takes the next, and answers come out in the order of the lines.

A worker is `python -m regard.inference.workers`. It is told a run folder and a search, then one batch a line,
and answers a line of JSON to each; it ends when nobody can ask it any more.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from pydantic import TypeAdapter

from regard.core.errors import UserError, positive
from regard.decode.beam import Beam
from regard.inference.translate import (
    Asked,
    Line,
    Looking,
    Numbered,
    Said,
    chunk_of,
    line_of,
    numbered,
    translations,
)
from regard.tasks.translate import Translation

if TYPE_CHECKING:
    from regard.runs.run import Run

_log = logging.getLogger(__name__)

_SMALL = 100_000_000
"""Parameters up to which a model is small: more fill the threads of one process well enough."""

_CHUNK = 1024
"""Lines that are held at a time if nothing is said."""

_MUCH = 5e9
"""Lines times parameters from which on workers are worth the seconds that they take to start."""


@dataclass(frozen=True)
class Settings:
    """What a worker has to know before the first line."""

    folder: str
    """Of the run."""
    beam: Beam
    looking: Looking | None
    name: str
    """What warnings call the lines."""
    weights: str = "float32"
    """How the run holds its weights."""


def translate(
    run: "Run",
    lines: Iterable[Asked],
    *,
    beam: Beam | None = None,
    looking: Looking | None = None,
    chunk: int = _CHUNK,
    name: str = "input",
    workers: int | None = None,
) -> Iterator[Line]:
    """Each line translated, in their order, by this process or by so many workers.

    Workers read the weights that the run folder has. If their number is not given, see `usual`.
    """
    task = run.task
    if not isinstance(task, Translation):
        raise UserError(f"{run.folder}: a run of {run.recipe.task} does not translate")
    device = next(run.model.parameters()).device.type
    if workers is not None and positive("workers", workers) > 1 and device != "cpu":
        raise UserError(
            f"workers={workers} share a processor's cores, but the model is on {device}"
        )
    remaining = iter(lines)
    first = list(islice(remaining, positive("chunk", chunk)))
    every, beam = chain(first, remaining), beam or task.beam
    if workers is None:
        size = sum(each.numel() for each in run.model.parameters())
        workers = usual(size, len(first), device)
    if workers == 1:
        here = translations(
            task, run.model, every, beam=beam, looking=looking, chunk=chunk, name=name
        )
        yield from (line_of(task, each) for each in here)
        return
    with Workers(Settings(str(run.folder), beam, looking, name, run.weights), workers) as crew:
        yield from crew.translate(every, chunk, task.data.evaluate_batch)


def usual(parameters: int, lines: int, device: str = "cpu") -> int:
    """How many workers are best for a model of that size, given how many lines there are at first.

    All cores for a small model with much to do: a whole chunk, which more will follow, or lines
    times parameters above 5e9. Otherwise this process alone, which needs no time to start.

    >>> usual(2_000_000, lines=100), usual(500_000_000, lines=1024)
    (1, 1)
    """
    much = lines >= _CHUNK or lines * parameters >= _MUCH
    return cores() if device == "cpu" and parameters <= _SMALL and much else 1


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Processes that are ended when the block is left, however it is left."""

    def __init__(self, settings: Settings, count: int) -> None:
        self._all = [Worker(settings, f"worker {each + 1} of {count}") for each in range(count)]
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._all:
            self._free.put(worker)
        self._pool = ThreadPoolExecutor(count)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._all:
            worker.end()
        self._pool.shutdown(cancel_futures=True)

    def translate(self, lines: Iterable[Asked], chunk: int, together: int) -> Iterator[Line]:
        """Each line translated, in their order; so many lines of like length go to a worker."""
        remaining, first = iter(lines), 1
        while some := list(islice(remaining, chunk)):
            waiting = sorted(numbered(some, first), key=lambda each: -len(each.text))
            asked: list[tuple[list[Numbered], Future[Reply]]] = []
            for begin in range(0, len(waiting), together):
                batch = sorted(waiting[begin : begin + together])
                asked.append((batch, self._pool.submit(self._ask, batch)))
            found: dict[int, Line] = {}
            warnings: list[tuple[int, str]] = []
            for these, future in asked:
                reply = future.result()
                found.update(zip((each.number for each in these), reply.lines, strict=True))
                warnings += reply.warnings
            for _, warning in sorted(warnings):
                _log.warning("%s", warning)
            yield from (found[number] for number in range(first, first + len(some)))
            first += len(some)

    def _ask(self, batch: Sequence[Numbered]) -> "Reply":
        worker = self._free.get()
        try:
            return worker.ask(batch)
        finally:
            self._free.put(worker)


@dataclass(frozen=True)
class Reply:
    """What a worker answers to a batch."""

    lines: list[Line]
    warnings: list[tuple[int, str]]
    """Each with the number of its line."""


class Worker:
    """One process; it loads its model while this one goes on."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._name = name
        one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "regard.inference.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, **one},
            start_new_session=True,  # Ctrl-C is ours to hear, not its
        )
        self._say(TypeAdapter(Settings).dump_json(settings).decode())

    def ask(self, batch: Sequence[Numbered]) -> Reply:
        """The translations of some lines; what goes wrong there is raised here."""
        self._say(json.dumps(batch))
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer.endswith("\n"):
            raise self._gone()
        told = json.loads(answer)
        if "error" in told:
            raise UserError(told["error"])
        if "bug" in told:
            raise RuntimeError(f"{self._name} failed:\n{told['bug']}")
        found = [Line(tuple(Said(*output) for output in outputs)) for outputs in told["lines"]]
        return Reply(found, [(number, warning) for number, warning in told["warnings"]])

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue  # what was not read by then is not missed

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._gone() from None

    def _gone(self) -> UserError:
        """The error for a process that is no longer there."""
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return UserError(
            f"{self._name} {how}; if memory ran out, use fewer workers (workers=1 is this process)"
        )


class Heard(logging.Handler):
    """Keeps warnings, so that they can be handed over with the answer."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one, with the first whole number in it: that of its line."""
        named = record.args if isinstance(record.args, tuple) else ()
        number = next((each for each in named if isinstance(each, int)), 0)
        self.messages.append((number, record.getMessage()))


def serve(questions: TextIO, answers: TextIO) -> None:
    """Be a worker: answer line by line until there are no more questions."""
    import torch

    from regard.core.allocation import steady_allocation
    from regard.runs.run import load

    torch.set_num_threads(1)
    steady_allocation()
    heard = Heard()
    logging.getLogger("regard").addHandler(heard)
    settings = TypeAdapter(Settings).validate_json(questions.readline())
    run: Run | None = None
    for question in questions:
        batch = [Numbered(*each) for each in json.loads(question)]
        heard.messages.clear()
        try:
            run = run or load(settings.folder, "cpu", weights=settings.weights)
            told = _answered(run, settings, batch, heard)
        except UserError as error:
            told = {"error": str(error)}
        except Exception:
            told = {"bug": traceback.format_exc()}
        answers.write(f"{json.dumps(told)}\n")
        answers.flush()


def _answered(
    run: "Run", settings: Settings, batch: Sequence[Numbered], heard: Heard
) -> dict[str, object]:
    """The lines of a batch as JSON has them, and what was warned of."""
    task = run.task
    assert isinstance(task, Translation)
    every = chunk_of(task, run.model, batch, settings.beam, settings.looking, settings.name)
    lines = [[list(vars(said).values()) for said in line_of(task, each).outputs] for each in every]
    return {"lines": lines, "warnings": heard.messages}


if __name__ == "__main__":
    said, sys.stdout = sys.stdout, sys.stderr  # what anyone prints must not get among the answers
    serve(sys.stdin, said)
