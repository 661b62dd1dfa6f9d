"""A browser that pages are opened in, and models whose weights they show."""

import os
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from regard.attention import record
from regard.look import Payload, payloads, save_page
from regard.models.translation.transformer import Transformer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARTEFACTS = "REGARD_ARTEFACTS"
"""The folder that screenshots are left in; none are taken if it is not set."""


@dataclass
class Opened:
    """A page in the browser, and what it did that it should not have done."""

    page: "Page"
    name: str
    wrong: list[str] = field(default_factory=list)
    """Errors, dialogs, and requests for anything but the page itself."""

    def do(self, script: str, *given: object) -> object:
        """What a JavaScript function returns for these arguments."""
        return self.page.evaluate(script, *given)

    def set(self, **choices: object) -> None:
        """Choose, and wait until it is drawn."""
        self.page.evaluate("(choices) => regard.set(choices)", choices)

    def exported(self, kind: str) -> bytes:
        """The file that the page would hand out: png, svg or csv."""
        script = """async (kind) => {
          const blob = await regard.exported(kind), reader = new FileReader();
          const read = new Promise((done) => reader.addEventListener("load", done));
          reader.readAsDataURL(blob);
          await read;
          return reader.result.split(",")[1];
        }"""
        return b64decode(str(self.do(script, kind)))

    def keep(self, name: str) -> None:
        """A screenshot among the artefacts."""
        if folder := os.environ.get(ARTEFACTS):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"{self.name}-{name}.png")


Open = Callable[..., Opened]


@pytest.fixture
def opened(browser: "Browser", tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Open the page of some payloads, or a file, from disk; at the end nothing may be wrong."""
    every: list[Opened] = []

    def show(shown: list[Payload] | tuple[Payload, ...] | Path, **options: str) -> Opened:
        theme = options.pop("theme", "light")
        if not isinstance(shown, Path):
            path = tmp_path / f"page{len(every)}.html"
            save_page(shown, path, title=options.pop("title", "a title"), **options)
            shown = path
        page = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme=theme)
        found = Opened(page, re.sub(r"\W+", "-", request.node.name)[:60])
        own = shown.as_uri()
        page.on("console", lambda said: said.type == "error" and found.wrong.append(said.text))
        page.on("pageerror", lambda error: found.wrong.append(str(error)))
        page.on("dialog", lambda dialog: (found.wrong.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda asked: (
                asked.url == own
                or asked.url.startswith(("data:", "blob:"))
                or found.wrong.append(asked.url)
            ),
        )
        page.goto(own)
        page.evaluate("() => window.regard && window.regard.ready")
        every.append(found)
        return found

    yield show
    for each in every:
        each.page.close()
    assert [problem for each in every for problem in each.wrong] == []


GERMAN, ENGLISH = ("der", "Hund", "bellt", "laut", "."), ("the", "dog", "barks", ".")
START, FIRST, LEFT_OUT = 2, 4, 7
"""The token before all others, the number of the first word, and the word nobody translates."""


@pytest.fixture(scope="session")
def translated() -> tuple[Payload, ...]:
    """What every attention of a trained Transformer looked at: three shapes, eight heads.

    It has learnt to put five words into another language in whatever order they come, and to leave
    one of them out.
    """
    torch.manual_seed(0)
    config = Transformer.Config(width=16, heads=2, encoder_layers=1, decoder_layers=2, dropout=0.0)
    model = Transformer(config, 10, 12)
    source = FIRST + torch.tensor(list(permutations(range(len(GERMAN)))))  # [N,5]
    kept = source[source != LEFT_OUT].unflatten(0, (len(source), len(ENGLISH)))
    said = torch.where(kept > LEFT_OUT, kept - 1, kept)  # [N,4]
    before = torch.cat([torch.full_like(said[:, :1], START), said[:, :-1]], dim=1)
    batch = {"source": source, "source_lengths": torch.full((len(source),), 5), "tokens": before}
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(120):
        optimiser.zero_grad()
        loss = model(batch).nll(said) / said.numel()
        loss.backward()
        optimiser.step()
    assert loss < 0.05, "the model that the pages show has not learnt its task"
    model.eval()
    with torch.no_grad(), record(model) as tape:
        model({name: each[:1] for name, each in batch.items()})
    return payloads(
        tape,
        {
            "encoder.*": (GERMAN, GERMAN),
            "decoder.*": (ENGLISH, ENGLISH),
            "decoder.*.cross": (ENGLISH, GERMAN),
        },
    )
