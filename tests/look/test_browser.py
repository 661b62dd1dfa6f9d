"""The page in Chromium, opened from disk: what it shows are the weights of a model.

Every test fails if the page reports an error or asks for anything but itself (conftest.py).
"""

import csv
import io
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from regard.look import Payload
from regard.look.page import STATIC
from tests.look.conftest import Open, Opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Payloads = tuple[Payload, ...]
DARKEST, PAPER = (5, 36, 80), (255, 255, 255)
"""The ends of the palette that a light page begins with."""


def weights_on(opened: Opened) -> np.ndarray:
    return np.array(opened.do("() => regard.weights()"))


def pixel(opened: Opened, query: int, key: int) -> tuple[int, ...]:
    """The colour at the middle of a cell, as it is on the canvas."""
    script = """([query, key]) => {
      const view = regard.view(), ratio = view.canvas.width / view.width;
      const x = view.x + (key + 0.5) * view.cell, y = view.y + (query + 0.2) * view.cell;
      const data = view.canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data;
      return Array.from(data).slice(0, 3);
    }"""
    return tuple(opened.do(script, [query, key]))  # type: ignore[arg-type]


def test_every_head_of_every_site_is_the_one_that_was_recorded(
    opened: Open, translated: Payloads
) -> None:
    page = opened(translated)
    assert len({each.weights.shape for each in translated}) >= 3
    for site, payload in enumerate(translated):
        for head, weights in enumerate(payload.weights):
            page.set(view="matrix", site=site, head=head)
            np.testing.assert_allclose(weights_on(page), weights, atol=1e-5)
        page.set(head="mean")
        np.testing.assert_allclose(weights_on(page), payload.matrix, atol=1e-5)
        labels = page.do("() => regard.labels()")
        assert labels == {"queries": [*payload.queries], "keys": [*payload.keys]}
    page.keep("matrix")


def test_layers_of_one_text_have_a_mean(opened: Open) -> None:
    tables = torch.randn(3, 2, 6, 6).softmax(-1)
    layers = [
        Payload.of(table, "abcdef", "abcdef", site=str(at)) for at, table in enumerate(tables)
    ]
    page = opened(layers)
    page.set(view="matrix", site="mean", head="mean")
    np.testing.assert_allclose(weights_on(page), tables.mean((0, 1)), atol=1e-5)
    page.set(head=1)
    np.testing.assert_allclose(weights_on(page), tables[:, 1].mean(0), atol=1e-5)


def test_the_canvas_has_the_colours_of_the_weights(opened: Open) -> None:
    weights = torch.tensor([[1.0, 0.0, 0.5, 0.2], [0.1, 0.9, 0.0, 0.0], [0.0, 0.3, 0.3, 0.4]])
    page = opened([Payload.of(weights, "abc", "wxyz")])
    assert pixel(page, 0, 0) == DARKEST
    assert pixel(page, 0, 1) == PAPER
    shades = [sum(pixel(page, *place)) for place in ((1, 1), (0, 2), (2, 3), (0, 3), (1, 0))]
    assert all(darker < lighter for darker, lighter in pairwise(shades))
    page.set(scale="row")
    assert pixel(page, 2, 3) == DARKEST, "the largest of its row"
    page.set(scale="one", palette="viridis")
    assert pixel(page, 0, 0) == (253, 231, 37)
    assert pixel(page, 0, 1) == (68, 1, 84)


def test_thumbnails_are_drawn_from_their_heads(opened: Open, translated: Payloads) -> None:
    page = opened(translated, view="heads")
    page.page.wait_for_selector(".rg-thumb:last-child canvas.rg-painted")
    page.do("() => new Promise((done) => setTimeout(done, 200))")
    drawn = page.do(
        """() => [...document.querySelectorAll(".rg-thumb canvas")].map((canvas) => {
          const { width, height } = canvas;
          const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
          const reds = Array.from({ length: width * height }, (_, at) => data[4 * at]);
          return [width, height, reds.indexOf(Math.min(...reds))];
        })"""
    )
    expected = [
        [head.shape[1], head.shape[0], int(head.argmax())]
        for payload in translated
        for head in payload.weights
    ]
    assert drawn == expected
    page.keep("heads")


@pytest.mark.parametrize("measure", ["entropy", "distance", "alignment"])
def test_heads_are_sorted_by_what_was_measured(
    opened: Open, translated: Payloads, measure: str
) -> None:
    page = opened(translated, view="heads")
    page.set(sort=measure)
    shown = page.page.locator(".rg-thumb-measure").all_text_contents()
    values = [float(text.split()[0]) for text in shown]
    assert len(values) == sum(len(each.weights) for each in translated)
    assert values == sorted(values, reverse=measure == "alignment")
    assert len(set(values)) > 1


def test_links_are_as_heavy_as_the_weights(opened: Open, translated: Payloads) -> None:
    page = opened(translated, view="links")
    page.set(site=0, head=0)
    weights = translated[0].weights[0]
    root = ElementTree.fromstring(page.exported("svg"))
    paths = [each for each in root.iter() if each.tag.endswith("path")]
    heavy = np.sort(weights[weights >= 0.01 * weights.max()])
    assert len(paths) == len(heavy)
    widths = [float(each.attrib["stroke-width"]) for each in paths]
    np.testing.assert_allclose(widths, 0.5 + 4.5 * heavy / heavy.max(), atol=1e-3)
    page.set(query=1)
    page.keep("links")
    texts = [each.text for each in root.iter() if each.tag.endswith("text")]
    assert set(translated[0].queries) <= set(texts)


def test_text_is_shaded_by_the_chosen_query(opened: Open, translated: Payloads) -> None:
    (site,) = (at for at, each in enumerate(translated) if each.site == "decoder.1.cross")
    page = opened(translated, view="text")
    page.set(site=site, head=0, query=2, scale="row", contrast="plain")
    row = translated[site].weights[0][2]
    read = """() => [...document.querySelectorAll('.rg-token[data-side="keys"]')].map((token) =>
      [token.textContent, ...token.style.backgroundColor.match(/\\d+/g).map(Number)])"""
    tokens = page.do(read)
    assert [token[0] for token in tokens] == [*translated[site].keys]  # type: ignore[union-attr]
    darkness = [-sum(token[1:]) for token in tokens]  # type: ignore[union-attr]
    for one, other in product(range(len(row)), repeat=2):
        if row[one] > row[other] + 0.02 * row.max():
            assert darkness[one] > darkness[other]
    assert tuple(tokens[int(row.argmax())][1:]) == DARKEST  # type: ignore[index]
    page.page.locator('.rg-token[data-side="keys"]').nth(1).click()
    assert (page.do("() => regard.state.key"), page.do("() => regard.state.query")) == (1, None)
    page.set(query=None, key=None)
    assert page.page.locator(".rg-rows button").count() == len(translated[site].queries)
    page.keep("text")


def test_the_slider_walks_through_the_steps(opened: Open, translated: Payloads) -> None:
    page = opened(translated, view="links")
    slider = page.page.locator("input[type=range]")
    slider.focus()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowRight")
    assert page.do("() => regard.state.query") == 2
    assert page.page.locator(".rg-step-text").text_content() == translated[0].queries[2]
    page.page.keyboard.press("p")
    page.page.wait_for_timeout(600)
    assert page.do("() => regard.state.query") == 3
    page.page.keyboard.press("p")


def test_what_is_under_the_pointer_is_told(opened: Open, translated: Payloads) -> None:
    page = opened(translated, view="matrix")
    page.set(site=0, head=0)
    box = page.page.locator(".rg-matrix canvas").bounding_box()
    assert box is not None
    x, y, cell = page.do("() => { const v = regard.view(); return [v.x, v.y, v.cell]; }")  # type: ignore[misc]
    page.page.mouse.move(box["x"] + x + 2.5 * cell, box["y"] + y + 1.5 * cell)
    tip = page.page.locator(".rg-tip")
    tip.wait_for(state="visible")
    told = dict(pairwise(tip.locator("dt, dd").all_text_contents()))
    weight = translated[0].weights[0][1, 2]
    assert float(told["weight"].replace("≈", "")) == pytest.approx(weight, rel=0.06)
    assert told["source 3"] == translated[0].keys[2]
    page.keep("tip")


def test_the_matrix_zooms_at_the_pointer_and_can_be_dragged(
    opened: Open, translated: Payloads
) -> None:
    page = opened(translated, view="matrix")
    box = page.page.locator(".rg-matrix canvas").bounding_box()
    assert box is not None
    where = "() => { const v = regard.view(); return [v.x, v.y, v.cell]; }"
    x, y, cell = page.do(where)  # type: ignore[misc]
    page.page.mouse.move(box["x"] + x + cell, box["y"] + y + cell)
    page.page.mouse.wheel(0, -120)
    page.page.wait_for_timeout(50)
    nearer = page.do(where)
    assert nearer[2] > cell  # type: ignore[index]
    assert nearer[0] + nearer[2] == pytest.approx(x + cell, abs=0.01)  # type: ignore[index]
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + x + cell + 40, box["y"] + y + cell + 25, steps=4)
    page.page.mouse.up()
    dragged = page.do(where)
    assert dragged[0] == pytest.approx(nearer[0] + 40, abs=0.01)  # type: ignore[index]
    assert dragged[1] == pytest.approx(nearer[1] + 25, abs=0.01)  # type: ignore[index]
    page.page.keyboard.press("0")
    assert page.do(where) == [x, y, cell]


def test_everything_can_be_done_with_keys_alone(opened: Open, translated: Payloads) -> None:
    page = opened(translated, view="matrix")
    press = page.page.keyboard.press

    def state(name: str) -> object:
        return page.do("(name) => regard.state[name]", name)

    for key, view in zip("4321", ("text", "links", "heads", "matrix"), strict=True):
        press(key)
        assert state("view") == view
    press("]")
    assert state("head") == 0
    press("m")
    assert state("head") == "mean"
    press("}")
    assert state("site") == 1
    press("ArrowDown")
    press("ArrowDown")
    press("ArrowRight")
    assert state("query") == 1
    page.page.wait_for_function("document.querySelector('.rg-told').textContent.includes('→')")
    press("Escape")
    assert state("query") is None
    for key, name, value in (
        ("c", "palette", "viridis"),
        ("d", "theme", "dark"),
        ("s", "sort", "entropy"),
        ("r", "scale", "row"),
    ):
        press(key)
        assert state(name) == value
    press("2")
    press("ArrowRight")
    press("ArrowRight")
    page.keep("dark")
    press("Enter")
    assert (state("view"), state("head")) == ("matrix", state("head"))
    assert state("head") != "mean"
    press("?")
    assert page.page.locator("dialog").is_visible()
    page.keep("help")
    press("Escape")
    assert not page.page.locator("dialog").is_visible()


def test_every_control_is_reached_by_tab_and_shows_that_it_is(
    opened: Open, translated: Payloads
) -> None:
    page = opened(translated, view="matrix")
    reached, ringed = [], []
    for _ in range(14):
        page.page.keyboard.press("Tab")
        name, ring = page.do(
            """() => {
              const at = document.activeElement;
              const name = at.getAttribute("aria-label") ?? at.textContent;
              return [at === document.body ? "" : name, getComputedStyle(at).outlineStyle];
            }"""
        )  # type: ignore[misc]
        if not name:
            break  # once around
        reached.append(name)
        ringed.append(ring)
    for part in ("find a token", "light or dark", "help", "layer", "head", "colours", "matrix of"):
        assert any(str(name).startswith(part) for name in reached), (part, reached)
    assert [name for name, ring in zip(reached, ringed, strict=True) if ring != "solid"] == []


def test_a_token_is_found_and_gone_to(opened: Open, translated: Payloads) -> None:
    page = opened(translated, view="matrix")
    page.page.keyboard.press("/")
    page.page.keyboard.type("HUND")
    place = translated[0].keys.index("Hund")
    assert page.do("() => regard.found") == {"queries": [place], "keys": [place]}
    page.page.keyboard.press("Enter")
    assert page.do("() => regard.state.query") == place
    page.page.keyboard.type("xx")
    assert page.do("() => regard.found") == {"queries": [], "keys": []}
    assert page.page.locator(".rg-search .rg-count").text_content() == "0"


@pytest.mark.parametrize("view", ["matrix", "heads", "links", "text"])
def test_what_is_exported_can_be_read(opened: Open, translated: Payloads, view: str) -> None:
    page = opened(translated, view=view)
    page.set(site=0, head=1)
    png, svg, table = (page.exported(kind) for kind in ("png", "svg", "csv"))
    assert png.startswith(b"\x89PNG")
    width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
    assert min(width, height) > 100
    root = ElementTree.fromstring(svg)
    assert {each.tag.split("}")[1] for each in root.iter()} <= {
        "svg",
        "rect",
        "text",
        "path",
        "image",
    }
    rows = list(csv.reader(io.StringIO(table.decode("utf-8"), newline="")))
    if view == "heads":
        assert rows[0] == ["site", "head", "entropy", "distance", "alignment"]
        assert len(rows) == 1 + sum(len(each.weights) for each in translated)
    else:
        assert rows[0] == ["", *translated[0].keys]
        assert [row[0] for row in rows[1:]] == [*translated[0].queries]
        numbers = np.array([row[1:] for row in rows[1:]], dtype=float)
        np.testing.assert_allclose(numbers, translated[0].weights[1], atol=1e-5)


def test_a_file_is_handed_to_the_browser(opened: Open, translated: Payloads) -> None:
    page = opened(translated, view="matrix")
    with page.page.expect_download() as waiting:
        page.page.get_by_label("export (e)").select_option("csv")
    assert waiting.value.suggested_filename.endswith("-matrix.csv")
    assert Path(waiting.value.path()).read_text().startswith(",")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_follows_the_system_and_the_switch(
    opened: Open, translated: Payloads, theme: str
) -> None:
    page = opened(translated, theme=theme)
    assert page.do("() => regard.state.theme") == theme
    paper = "() => getComputedStyle(document.querySelector('.rg-stage')).backgroundColor"
    begun = page.do(paper)
    page.page.get_by_label("light or dark (d)").click()
    assert page.do("() => regard.state.theme") != theme
    assert page.do(paper) != begun


def test_one_weight_and_a_long_text_can_be_looked_at(opened: Open) -> None:
    page = opened([Payload.of([[1.0]], ["a"], ["b"])])
    for view in ("matrix", "heads", "links", "text"):
        page.set(view=view)
    assert weights_on(page).tolist() == [[1.0]]
    words = [f"w{place}" for place in range(400)]
    causal = torch.randn(400, 400).masked_fill(torch.ones(400, 400).triu(1).bool(), -torch.inf)
    long = opened([Payload.of(causal.softmax(-1), words, words, kind="self")], view="matrix")
    for row in (0, 123, 399):
        found = long.do("(row) => regard.weights()[row]", row)
        np.testing.assert_allclose(found, causal.softmax(-1)[row], atol=1e-5)
    for view in ("links", "text", "heads", "matrix"):
        long.set(view=view, query=350)
    long.keep("long")


def test_what_was_rounded_is_said_to_be(opened: Open, tmp_path: Path) -> None:
    from regard.look import page as page_of

    weights = torch.randn(4, 60, 60).softmax(-1)
    text = page_of([Payload.of(weights, "a" * 60, "b" * 60)], view="matrix", budget=6000)
    (tmp_path / "rounded.html").write_text(text, encoding="utf-8")
    page = opened(tmp_path / "rounded.html")
    page.set(head=0)
    levels = page.do("() => regard.sites()[0].levels[0]")
    assert page.page.locator(".rg-rounded").text_content() == (
        f"rounded to 1/{levels} of each row's largest"
    )
    largest = weights[0].max(1, keepdim=True).values
    assert (
        np.abs(weights_on(page) - weights[0].numpy()) <= largest.numpy() / 2 / levels + 1e-6
    ).all()  # type: ignore[operator]


def test_data_of_another_format_are_refused_in_words(opened: Open, translated: Payloads) -> None:
    page = opened(translated)
    page.do("() => regard.replace({ format: 99, title: '', labels: [], sites: [] })")
    assert page.page.get_by_role("alert").text_content() == (
        "This cannot be shown: this page cannot read format 99"
    )


def test_the_modules_work_as_modules_too(
    opened: Open, browser: "Browser", translated: Payloads
) -> None:
    """As the server gives them: each a file of its own, mounted into another page."""
    page = opened(translated)
    data = page.do("() => JSON.parse(document.getElementById('regard-data').textContent)")
    context = browser.new_context()
    served = context.new_page()

    def answer(route: object) -> None:
        name = route.request.url.split("/")[-1]  # type: ignore[attr-defined]
        if name:
            kind = "text/css" if name.endswith("css") else "text/javascript"
            body = (STATIC / name).read_text(encoding="utf-8")
        else:
            kind, body = "text/html", "<!doctype html><div id=here></div>"
        route.fulfill(body=body, content_type=f"{kind}; charset=utf-8")  # type: ignore[attr-defined]

    served.route("**/*", answer)
    served.goto("http://studio.test/")
    chosen = served.evaluate(
        """async (data) => {
          const { mount } = await import("http://studio.test/page.js");
          const told = [];
          const options = { view: "matrix", onchange: (state) => told.push(state.query) };
          const here = mount(document.getElementById("here"), data, options);
          await here.ready;
          await here.set({ query: 1 });
          const weights = here.weights();
          here.destroy();
          return [told.at(-1), weights, document.getElementById("here").childElementCount];
        }""",
        data,
    )
    assert (chosen[0], chosen[2]) == (1, 0)
    np.testing.assert_allclose(chosen[1], translated[0].matrix, atol=1e-5)
    context.close()
