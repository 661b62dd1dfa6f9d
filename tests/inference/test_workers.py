"""Workers say what one process says, in the order of the lines, and leave nothing behind."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.core.errors import UserError
from regard.core.inputs import Image, Text
from regard.inference import workers
from regard.inference.translate import OutputLines, SiteChoice
from regard.inference.workers import WorkerPool, WorkerSettings, translate, usual
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create, load
from regard.tasks.translate import Translation

RECIPE = """
task = "translate"
[about]
title = "Tiny dates"
paper = "nobody"
minutes = 0.1
[data]
generate = { name = "dates", train = 200, validation = 4, test = 4 }
tokeniser = "char"
batch = 32
evaluate_batch = 2
max_length = 18
too_long = "cut"
scores = ["exact"]
search = { width = 3, max_length = 14, max_per_source = 0.0 }
[model]
kind = "transformer"
width = 16
heads = 2
hidden = 32
encoder_layers = 1
decoder_layers = 1
[train]
updates = 2
optimiser = { name = "adam", lr = 1e-3 }
"""
LONG = "the 12th of September in the year 1998"
LINES = ["3 mai 1998", "", LONG, "12 July 2026", " ", "4. August", "$x\t<b>", "日", LONG, "\udce9!"]
"""Empty, long, hostile, and bytes that were no UTF-8."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs")
    create(parse_recipe(RECIPE, "tiny"), folder / "dates", folder, "cpu").train()
    return load(folder / "dates", "cpu")


def settings(run: Run, choice: SiteChoice | None = None) -> WorkerSettings:
    assert isinstance(run.task, Translation)
    beam = replace(run.task.beam, n_best=2)
    return WorkerSettings(str(run.folder), beam, choice, "in.txt")


@pytest.fixture(scope="module")
def crew(run: Run) -> Iterator[WorkerPool]:
    with WorkerPool(settings(run, SiteChoice()), 2) as both:
        yield both


def alone(run: Run) -> list[OutputLines]:
    assert isinstance(run.task, Translation)
    given = settings(run, SiteChoice())
    return list(translate(run, LINES, beam=given.beam, choice=given.choice, workers=1))


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_they_say_what_one_process_says_in_the_order_of_the_lines(
    chunk: int, run: Run, crew: WorkerPool
) -> None:
    every = list(crew.translate(iter(LINES), chunk, 2))
    assert len(every) == len(LINES)
    for line, want, text in zip(every, alone(run), LINES, strict=True):
        assert [said.text for said in line.outputs] == [said.text for said in want.outputs]
        assert [said.alignment for said in line.outputs] == [s.alignment for s in want.outputs]
        scores = [said.score for said in line.outputs]
        assert scores == pytest.approx([said.score for said in want.outputs], abs=1e-5)
        assert bool(line.outputs) == bool(text.strip())


def test_lines_come_out_before_the_next_ones_are_read(crew: WorkerPool) -> None:
    read: list[str] = []

    def lines() -> Iterator[str]:
        for line in LINES:
            read.append(line)
            yield line

    every = crew.translate(lines(), 1, 2)
    for count in range(1, 4):
        next(every)
        assert len(read) == count


@pytest.mark.parametrize("chunk", [4, 100])
def test_warnings_call_lines_by_their_numbers_in_their_order(
    chunk: int, crew: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    list(crew.translate(iter(LINES), chunk, 2))
    said = [record.getMessage() for record in caplog.records]
    assert [message.split(": ")[0] for message in said] == ["in.txt:3", "in.txt:9"]


def test_an_error_in_a_worker_is_one_clear_message(run: Run) -> None:
    with (
        pytest.raises(UserError, match=r"did you mean 'decoder.0.cross"),
        WorkerPool(settings(run, SiteChoice("decoder.0.croos")), 1) as crew,
    ):
        list(crew.translate(LINES, 100, 64))


def test_a_worker_that_is_killed_is_said_and_the_others_are_ended(run: Run) -> None:
    with WorkerPool(settings(run), 2) as crew:
        victim, other = (worker._process for worker in crew._all)
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(UserError, match=r"worker 1 of 2 was killed by SIGKILL; .*fewer worker"):
            list(crew.translate(LINES, 100, 2))
    assert other.returncode is not None


def test_who_stops_listening_leaves_no_process(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[WorkerPool] = []

    class Noted(WorkerPool):
        def __init__(self, settings: WorkerSettings, count: int) -> None:
            super().__init__(settings, count)
            started.append(self)

    monkeypatch.setattr(workers, "WorkerPool", Noted)
    every = translate(run, LINES, workers=2)
    first = next(every)
    assert first.text == run.translate(LINES[:1])[0]
    with pytest.raises(KeyboardInterrupt):
        every.throw(KeyboardInterrupt)
    assert all(worker._process.returncode is not None for worker in started[0]._all)


def test_evaluation_is_the_same_by_workers(run: Run) -> None:
    assert run.evaluate("test", workers=2) == run.evaluate("test")


@pytest.mark.parametrize(
    ("parameters", "lines", "device", "several"),
    [
        (2_000_000, 1023, "cpu", False),
        (2_000_000, 1024, "cpu", True),
        (60_000_000, 50, "cpu", False),
        (60_000_000, 100, "cpu", True),
        (200_000_000, 1024, "cpu", False),
        (2_000_000, 1024, "cuda", False),
    ],
)
def test_workers_are_for_small_models_with_much_to_do(
    parameters: int, lines: int, device: str, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 6)
    assert usual(parameters, lines, device) == (6 if several else 1)


@pytest.mark.parametrize("count", [0, -1])
def test_no_workers_are_refused(count: int, run: Run, as_users_run_it: None) -> None:
    with pytest.raises(UserError, match=f"workers={count} must be a whole number above zero"):
        list(translate(run, LINES, workers=count))
    assert Path(run.folder).is_dir()


def test_only_lines_go_to_another_process(run: Run) -> None:
    image = Image(torch.zeros(3, 2, 2, dtype=torch.uint8))
    with (
        WorkerPool(settings(run), 1) as crew,
        pytest.raises(UserError, match=r"workers read lines.*, not an image; set workers=1"),
    ):
        list(crew.translate([Text("3 mai"), image], 100, 64))
    with pytest.raises(UserError, match="task translate takes a text, and was given an image"):
        list(translate(run, [image], workers=1))
