"""The page in Chromium with labels that a stranger wrote: none runs, none becomes markup."""

import csv
import io
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch

from regard.look import Payload, show
from regard.look.label import visible
from tests.look.conftest import Open
from tests.look.hostile import TOKENS, letters

MARKUP = {
    "image": "<img src=x onerror=window.ran=1>",
    "end of script": "</script><script>window.ran=1</script>",
    "end of style": "</style><svg onload=window.ran=1>",
    "end of attribute": '"><img src=x onerror=window.ran=1>',
    "end of comment": "--><img src=x onerror=window.ran=1>",
    "template": "${window.ran=1}{{window.ran=1}}",
    "address": "javascript:window.ran=1",
    "formula": "=HYPERLINK(window.ran)",
    "nested frame": "<iframe srcdoc='<script>parent.ran=1</script>'>",
}


def test_labels_are_written_as_in_pictures(opened: Open) -> None:
    tokens = list(TOKENS.values())
    page = opened([Payload.of(torch.eye(len(tokens)), tokens, tokens, kind="self")], view="text")
    # Of a token of 10,000 letters the page has 500, and so another end.
    expected = [visible(token[:500]) for token in tokens]
    assert page.do("() => regard.labels().keys") == expected


def test_no_label_runs_or_becomes_markup(opened: Open) -> None:
    tokens = [*MARKUP.values(), *TOKENS.values(), *letters(7, 2)]
    weights = torch.randn(2, len(tokens), len(tokens)).softmax(-1)
    shown = [Payload.of(weights, tokens, tokens, site=site, kind="self") for site in tokens[:6]]
    page = opened(shown, title=tokens[1], view="matrix")
    for view in ("matrix", "heads", "links", "text"):
        page.set(view=view, site=3, head=0, query=2, key=None)
        page.do("() => new Promise((done) => setTimeout(done, 60))")
        page.keep(view)
        svg = page.exported("svg")
        tags = {each.tag.split("}")[1] for each in ElementTree.fromstring(svg).iter()}
        assert tags <= {"svg", "rect", "text", "path", "image"}
    page.set(view="matrix")
    cells = list(
        csv.reader(io.StringIO(page.exported("csv").decode("utf-8", "replace"), newline=""))
    )
    assert not [row[0] for row in cells if row[0].startswith(("=", "+", "-", "@"))]
    for query in range(len(MARKUP)):
        page.set(query=query, key=query)
    assert page.do("() => window.ran === undefined")
    assert page.do("() => document.querySelectorAll('script').length") == 2
    assert page.do("() => document.querySelectorAll('img, iframe, svg, object').length") == 0


def test_an_exported_drawing_of_hostile_labels_runs_nothing(opened: Open, tmp_path: Path) -> None:
    tokens = list(MARKUP.values())
    page = opened([Payload.of(torch.eye(len(tokens)), tokens, tokens)], view="matrix")
    (tmp_path / "drawing.svg").write_bytes(page.exported("svg"))
    drawing = opened(tmp_path / "drawing.svg")
    assert drawing.do("() => window.ran === undefined")
    assert drawing.do("() => document.querySelectorAll('script, foreignObject, a').length") == 0


def test_a_notebook_keeps_hostile_labels_inside_their_frame(opened: Open, tmp_path: Path) -> None:
    tokens = list(MARKUP.values())
    html = show([Payload.of(torch.eye(len(tokens)), tokens, tokens)], tokens[0])._repr_html_()
    (tmp_path / "cell.html").write_text(f"<!doctype html><meta charset=utf-8>{html}<p>after</p>")
    notebook = opened(tmp_path / "cell.html")
    frame = notebook.page.frames[1]
    frame.wait_for_selector(".rg-matrix canvas")
    weights = np.array(
        frame.evaluate("async () => { await regard.ready; return regard.weights(); }")
    )
    np.testing.assert_allclose(weights, np.eye(len(tokens)), atol=1e-6)
    assert notebook.do("() => window.ran === undefined")
    assert frame.evaluate("() => window.ran === undefined")
    assert notebook.do("() => document.querySelectorAll('p').length") == 1
    notebook.keep("notebook")


def test_the_policy_stops_a_script_that_gets_in(
    opened: Open, translated: tuple[Payload, ...]
) -> None:
    page = opened(translated)
    page.do(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.ran = 1";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.ran = 1'>");
        }"""
    )
    page.page.wait_for_timeout(100)
    assert page.do("() => window.ran === undefined")
    assert page.wrong, "the browser says what it has refused"
    page.wrong.clear()
