"""Small runs, and servers on this machine's own address."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from regard.inference.predict import served
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create, load, open_run
from regard.serve import Limits, Served
from regard.serve.server import Server, server
from tests.serve.live import Live

LANGUAGE = """
task = "language_model"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "text.txt"
tokeniser = "char"
batch = 4
window = 16
order = "random"
steps = 4
[model]
kind = "%s"
width = 16
layers = 2
%s
[train]
updates = 2
optimiser = { name = "adamw", lr = 1e-3 }
log_every = 1
"""
DATES = """
task = "translate"
[about]
title = "Tiny dates"
paper = "nobody"
minutes = 0.1
[data]
generate = { name = "dates", train = 100, validation = 10, test = 10 }
tokeniser = "char"
batch = 32
scores = ["exact"]
search = { width = 3, max_length = 14, max_per_source = 0.0 }
[model]
kind = "%s"
width = 16
%s
[train]
updates = 2
optimiser = { name = "adam", lr = 1e-3 }
"""
RECIPES = {
    "gpt": LANGUAGE % ("gpt", "heads = 2\ncontext = 64"),
    "rnn": LANGUAGE % ("rnn_lm", ""),
    "bahdanau": DATES % ("bahdanau", "hidden = 20"),
    "transformer": DATES
    % ("transformer", "heads = 2\nhidden = 32\nencoder_layers = 1\ndecoder_layers = 2"),
}
KEY = "a-key-that-nobody-guesses"


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each kind, trained for a moment."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    (folder / "text.txt").write_text("to be or not to be that is the question\n" * 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        for name, recipe in RECIPES.items():
            create(parse_recipe(recipe, name), folder / name, folder, "cpu").train()
            made[name] = load(folder / name, "cpu")
        made["new"] = create(parse_recipe(RECIPES["gpt"], "new"), folder / "new", folder, "cpu")
    return made


@pytest.fixture(scope="session")
def runs(opened: dict[str, Run]) -> list[Served]:
    """The same, as the server is given them; one is not trained yet."""
    every = [served(run) for name, run in opened.items() if name != "new"]
    return [*every, served(open_run(opened["new"].folder, device="cpu"), trained=False)]


Start = Callable[..., Live]


@pytest.fixture(scope="session")
def start(runs: list[Served]) -> Iterator[Start]:
    """Start a server: `start(key=..., limits=...)`; all of them end with the session.

    It has all runs, the `only` one of a name, or the `other` one that is given,
    with `also` one of a name if there is to be a second.
    """
    going: list[tuple[Server, threading.Thread]] = []

    def begin(
        *,
        key: str | None = None,
        limits: Limits | None = None,
        only: str = "",
        other: Served | None = None,
        also: str = "",
    ) -> Live:
        named = [run for run in runs if run.name == also]
        every = [run for run in runs if not only or run.name == only]
        chosen = every if other is None else [other, *named]
        made = server(chosen, port=0, key=key, limits=limits)
        where: list[str] = []
        thread = threading.Thread(target=made.listen, args=(where.append,), daemon=True)
        thread.start()
        going.append((made, thread))
        deadline = time.monotonic() + 20
        while not where and time.monotonic() < deadline:
            time.sleep(0.01)
        return Live(where[0], made, key)

    yield begin
    for made, _ in going:
        made.should_exit = True
    for _, thread in going:
        thread.join(20)


@pytest.fixture(scope="session")
def live(start: Start) -> Live:
    """A server with the usual limits."""
    return start()


@pytest.fixture
def client(live: Live) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=live.url, timeout=30) as made:
        yield made


@pytest.fixture(scope="session")
def folder(opened: dict[str, Run]) -> Path:
    """Where the runs are."""
    return opened["gpt"].folder.parent
