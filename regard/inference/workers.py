"""Several processes that translate together, each with one thread and its own copy of the model.

A small model is faster with two processes of one thread than with one process of two, since threads
that synchronise often wait longer than they work. Lines go to workers in batches of similar length,
the next free worker takes the next batch, and outputs come in the order of the lines.

A worker is `python -m regard.inference.workers`. Its stdin has one line with the run folder and the
search, then one batch a line; it answers each with a line of JSON, and ends at the end of stdin.
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
from regard.core.inputs import Text
from regard.decode.beam import Beam
from regard.inference.translate import (
    NumberedSource,
    OutputLine,
    OutputLines,
    SiteChoice,
    Source,
    lines_of_outputs,
    translate_chunk,
    translations,
    with_numbers,
)
from regard.tasks.abilities import Translates, unsupported

if TYPE_CHECKING:
    from regard.runs.run import Run

_log = logging.getLogger(__name__)

_SMALL = 100_000_000
"""The most parameters of a small model; a larger one keeps the threads of one process busy."""

_CHUNK = 1024
"""Lines that are held at a time by default."""

_Line = tuple[int, str, str]
"""The number of a line, the line, and the beginning of its output."""

_MUCH = 5e9
"""Lines times parameters from which workers are worth the seconds that they take to start."""


@dataclass(frozen=True)
class WorkerSettings:
    """The first line of a worker's stdin."""

    folder: str
    """Of the run."""
    beam: Beam
    choice: SiteChoice | None
    """Sites whose attention is recorded."""
    name: str
    """What warnings call the lines."""
    weights: str = "float32"
    """The precision of the weights."""


def translate(
    run: "Run",
    sources: Iterable[Source],
    *,
    beam: Beam | None = None,
    choice: SiteChoice | None = None,
    chunk: int = _CHUNK,
    name: str = "input",
    workers: int | None = None,
) -> Iterator[OutputLines]:
    """The outputs for each input, in their order, by this process or by worker processes.

    Workers read the weights in the run folder. workers=None picks a number from the model and the
    input size (`usual`).
    """
    task = run.task
    if not isinstance(task, Translates):
        raise unsupported(run.folder, run.recipe.task, "translation")
    device = next(run.model.parameters()).device.type
    if workers is not None and positive("workers", workers) > 1 and device != "cpu":
        raise UserError(
            f"workers={workers} share a processor's cores, but the model is on {device}"
        )
    remaining = iter(sources)
    first = list(islice(remaining, positive("chunk", chunk)))
    every, beam = chain(first, remaining), beam or task.beam
    if workers is None:
        size = sum(each.numel() for each in run.model.parameters())
        workers = usual(size, len(first), device)
    if workers == 1:
        here = translations(
            task, run.model, every, beam=beam, choice=choice, chunk=chunk, name=name
        )
        yield from (lines_of_outputs(task, each) for each in here)
        return
    with WorkerPool(
        WorkerSettings(str(run.folder), beam, choice, name, run.weights), workers
    ) as pool:
        yield from pool.translate(every, chunk, task.search_batch)


def usual(parameters: int, lines: int, device: str = "cpu") -> int:
    """The number of workers for a model of that size and so many lines in the first chunk.

    All cores for a small model with much to do: a whole chunk, or lines times parameters above 5e9.
    Otherwise this process alone, which needs no time to start.

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


class WorkerPool:
    """A pool of processes; they are ended when the `with` block is left."""

    def __init__(self, settings: WorkerSettings, count: int) -> None:
        self._all = [Worker(settings, f"worker {each + 1} of {count}") for each in range(count)]
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._all:
            self._free.put(worker)
        self._pool = ThreadPoolExecutor(count)

    def __enter__(self) -> "WorkerPool":
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

    def translate(
        self, sources: Iterable[Source], chunk: int, together: int
    ) -> Iterator[OutputLines]:
        """The outputs for each input, in their order; a worker gets `together` at a time."""
        remaining, first = iter(sources), 1
        while some := list(islice(remaining, chunk)):
            waiting = [_as_line(each) for each in with_numbers(some, first)]
            waiting.sort(key=lambda each: -len(each[1]))
            batches: list[tuple[list[_Line], Future[Reply]]] = []
            for begin in range(0, len(waiting), together):
                batch = sorted(waiting[begin : begin + together])
                batches.append((batch, self._pool.submit(self._send, batch)))
            found: dict[int, OutputLines] = {}
            warnings: list[tuple[int, str]] = []
            for these, future in batches:
                reply = future.result()
                found.update(zip((number for number, *_ in these), reply.lines, strict=True))
                warnings += reply.warnings
            for _, warning in sorted(warnings):
                _log.warning("%s", warning)
            yield from (found[number] for number in range(first, first + len(some)))
            first += len(some)

    def _send(self, batch: Sequence[_Line]) -> "Reply":
        worker = self._free.get()
        try:
            return worker.send(batch)
        finally:
            self._free.put(worker)


def _as_line(numbered: NumberedSource) -> _Line:
    """A source as a worker reads it; only lines can be sent to another process."""
    source = numbered.source
    if isinstance(source, Text):
        source = source.text
    if not isinstance(source, str):
        raise UserError(
            f"workers read lines, texts or the paths of files, not {source.name}; set workers=1"
        )
    return numbered.number, source, numbered.begins


@dataclass(frozen=True)
class Reply:
    """The answer of a worker to a batch."""

    lines: list[OutputLines]
    warnings: list[tuple[int, str]]
    """Each with the number of its line."""


class Worker:
    """One process; it loads its model while this one goes on."""

    def __init__(self, settings: WorkerSettings, name: str) -> None:
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
        self._write(TypeAdapter(WorkerSettings).dump_json(settings).decode())

    def send(self, batch: Sequence[_Line]) -> Reply:
        """The outputs for some lines; an error of the worker is raised here."""
        self._write(json.dumps(batch))
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer.endswith("\n"):
            raise self._gone()
        reply = json.loads(answer)
        if "error" in reply:
            raise UserError(reply["error"])
        if "bug" in reply:
            raise RuntimeError(f"{self._name} failed:\n{reply['bug']}")
        lines = [OutputLines(tuple(OutputLine(*each) for each in line)) for line in reply["lines"]]
        return Reply(lines, [(number, warning) for number, warning in reply["warnings"]])

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue  # nobody needs what was not read by then

    def _write(self, line: str) -> None:
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


class WarningLog(logging.Handler):
    """Collects warnings, which are sent with the answer."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning with the first whole number in it, which is that of its line."""
        named = record.args if isinstance(record.args, tuple) else ()
        number = next((each for each in named if isinstance(each, int)), 0)
        self.messages.append((number, record.getMessage()))


def run_worker(requests: TextIO, answers: TextIO) -> None:
    """The loop of a worker: an answer for each line, until there are no more."""
    import torch

    from regard.core.allocation import keep_freed_memory
    from regard.runs.run import load

    torch.set_num_threads(1)
    keep_freed_memory()
    log = WarningLog()
    logging.getLogger("regard").addHandler(log)
    settings = TypeAdapter(WorkerSettings).validate_json(requests.readline())
    run: Run | None = None
    for request in requests:
        batch = [NumberedSource(*each) for each in json.loads(request)]
        log.messages.clear()
        try:
            run = run or load(settings.folder, "cpu", weights=settings.weights)
            reply = _reply_to(run, settings, batch, log)
        except UserError as error:
            reply = {"error": str(error)}
        except Exception:
            reply = {"bug": traceback.format_exc()}
        answers.write(f"{json.dumps(reply)}\n")
        answers.flush()


def _reply_to(
    run: "Run", settings: WorkerSettings, batch: Sequence[NumberedSource], log: WarningLog
) -> dict[str, object]:
    """The outputs for a batch as JSON has them, and the warnings."""
    task = run.task
    assert isinstance(task, Translates)
    every = translate_chunk(task, run.model, batch, settings.beam, settings.choice, settings.name)
    lines = [
        [list(vars(output).values()) for output in lines_of_outputs(task, each).outputs]
        for each in every
    ]
    return {"lines": lines, "warnings": log.messages}


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr  # so that no print gets among the answers
    run_worker(sys.stdin, answers)
