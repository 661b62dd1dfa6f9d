"""The studio in a real browser: it writes, shows where the model looked, and takes edits."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from regard.inference.predict import served
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create, load
from tests.look.conftest import ARTEFACTS
from tests.look.hostile import TOKENS
from tests.serve.live import Live

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def studio(browser: object, live: Live) -> Iterator["Page"]:
    """The page; at the end nothing may have gone wrong and nothing may have left the origin."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})  # type: ignore[attr-defined]
    page.set_default_timeout(40_000)
    wrong: list[str] = []
    page.on(
        "console",
        lambda line: (
            line.type == "error"
            and not re.search("status of (400|422)", line.text)  # a refusal, which the page shows
            and wrong.append(line.text)
        ),
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))

    def asked(request: object) -> None:
        url = request.url  # type: ignore[attr-defined]
        if (
            not url.startswith(("data:", "blob:"))
            and urlsplit(url).netloc != urlsplit(live.url).netloc
        ):
            wrong.append(url)

    page.on("request", asked)
    page.goto(live.url)
    page.wait_for_selector(".st-panel")
    yield page
    page.close()
    assert wrong == []


def chosen(page: "Page", name: str, text: str) -> None:
    """Choose a run, type, and go."""
    page.select_option(".st-head select", name)
    page.fill(".st-panel textarea", text)
    page.click(".st-go")
    page.wait_for_selector(".st-token")
    page.wait_for_selector(".st-said > *")


def test_a_language_model_writes_and_a_click_shows_where_a_token_looked(
    studio: "Page", opened: dict[str, Run]
) -> None:
    chosen(studio, "gpt", "to be or")
    tokens = studio.locator(".st-token").count()
    assert tokens > 20
    studio.click('.st-token[data-query="12"]')
    assert studio.evaluate("studio.panels[0].handle.state.query") == 12
    studio.evaluate("studio.panels[0].handle.set({site: 1, head: 1})")
    shown = studio.evaluate("studio.panels[0].handle.weights()[12]")
    whole = studio.evaluate("studio.panels[0].given.text")
    expected = opened["gpt"].look(whole, "layers.1.*", [1])[0].weights[0, 12]
    assert shown == pytest.approx(expected.tolist(), abs=1e-4)
    if folder := os.environ.get(ARTEFACTS):
        studio.screenshot(path=Path(folder) / "studio.png", full_page=True)


def test_edits_change_the_prediction_and_can_be_undone(studio: "Page") -> None:
    chosen(studio, "gpt", "to be")
    said = "JSON.stringify(studio.panels[0].edits.answer.after.choices)"
    before = studio.evaluate(said)
    for how in ("off", "uniform", "permuted"):
        studio.evaluate("studio.panels[0].handle.set({site: 0, head: 1})")
        studio.click(f'.st-buttons [data-how="{how}"]')
        studio.wait_for_function(f"before => {said} !== before", arg=before)
        assert how in studio.inner_text(".st-edits")
        studio.click('.st-buttons [data-how="clear"]')
        studio.wait_for_function(f"before => {said} === before", arg=before)


def test_a_row_can_be_drawn_by_keyboard(studio: "Page") -> None:
    chosen(studio, "gpt", "to be")
    last = studio.locator(".st-token").count() - 1
    studio.focus(f'.st-token[data-query="{last}"]')
    studio.keyboard.press("Enter")
    studio.wait_for_function("() => studio.panels[0].handle.state.query !== null")
    studio.focus('.st-buttons [data-how="row"]')
    studio.keyboard.press("Enter")
    said = "JSON.stringify(studio.panels[0].edits.answer.after.choices)"
    before = studio.evaluate(said)
    studio.focus('.st-row input[data-key="0"]')
    studio.keyboard.press("End")
    studio.wait_for_function(f"before => {said} !== before", arg=before)
    assert f"row {last + 1} as drawn" in studio.inner_text(".st-edits")


def test_the_matrix_shows_the_weights_with_the_edits_and_each_edit_can_be_removed(
    studio: "Page",
) -> None:
    chosen(studio, "gpt", "to be")
    studio.evaluate("studio.panels[0].handle.set({site: 0, head: 1, query: 3})")
    row = "studio.panels[0].handle.weights()[3].slice(0, 4)"
    before = studio.evaluate(row)
    studio.click('.st-buttons [data-how="uniform"]')
    studio.wait_for_function(f"() => {row}.every((weight) => Math.abs(weight - 0.25) < 0.01)")
    assert studio.evaluate("studio.panels[0].handle.state.query") == 3  # the choice stays
    assert studio.evaluate("studio.panels[0].handle.state.head") == 1
    studio.evaluate("studio.panels[0].handle.set({site: 1, head: 0})")
    studio.click('.st-buttons [data-how="off"]')
    studio.wait_for_function("() => document.querySelectorAll('.st-edits li').length === 2")
    studio.click(".st-edits li:first-child .st-remove")
    studio.wait_for_function("() => document.querySelectorAll('.st-edits li').length === 1")
    assert "off" in studio.inner_text(".st-edits")
    studio.evaluate("studio.panels[0].handle.set({site: 0, head: 1})")
    studio.wait_for_function(
        f"before => {row}.every((weight, key) => Math.abs(weight - before[key]) < 0.01)", arg=before
    )


def test_control_enter_starts_and_the_button_stops(studio: "Page") -> None:
    studio.select_option(".st-head select", "gpt")
    studio.fill(".st-panel textarea", "to be")
    studio.route("**/v1/completions", lambda route: None)  # never answered
    studio.press(".st-panel textarea", "Control+Enter")
    studio.wait_for_function("() => document.querySelector('.st-go').textContent === 'stop'")
    studio.click(".st-go")
    assert studio.inner_text(".st-go") == "write"
    assert studio.inner_text(".st-note") == ""
    studio.unroute("**/v1/completions")
    studio.press(".st-panel textarea", "Control+Enter")
    studio.wait_for_selector(".st-token")


def test_several_lines_are_translated_and_each_can_be_shown(studio: "Page") -> None:
    studio.select_option(".st-head select", "bahdanau")
    studio.fill(".st-panel textarea", "3 mai 1998\n\n7. Mai 2031\n")
    studio.click(".st-go")
    studio.wait_for_selector(".st-token")
    assert studio.locator(".st-lines li").count() == 2
    keys = "studio.panels[0].handle.labels().keys.join('')"
    assert studio.evaluate(keys) == "3␣mai␣1998<eos>"
    studio.click(".st-lines li:nth-child(2) button")
    studio.wait_for_function(f"() => {keys} === '7.␣Mai␣2031<eos>'")


def test_each_run_has_an_example_at_first_sight(studio: "Page", opened: dict[str, Run]) -> None:
    for name in ("gpt", "bahdanau"):
        studio.select_option(".st-head select", name)
        assert studio.input_value(".st-panel textarea") == opened[name].task.example()
    studio.fill(".st-panel textarea", "my own")
    studio.select_option(".st-head select", "gpt")
    assert studio.input_value(".st-panel textarea") == "my own"


def test_a_link_restores_what_is_seen(studio: "Page") -> None:
    chosen(studio, "gpt", "to be or")
    studio.evaluate("studio.panels[0].handle.set({view: 'text', site: 1, head: 1, query: 5})")
    studio.click('.st-buttons [data-how="uniform"]')
    studio.wait_for_selector(".st-edits li")
    studio.wait_for_function("() => decodeURIComponent(location.hash).includes('uniform')")
    kept = "JSON.stringify(studio.panels[0].kept())"
    before, link = studio.evaluate(kept), studio.url
    weights = studio.evaluate("studio.panels[0].handle.weights()[5]")
    studio.goto("about:blank")
    studio.goto(link)
    studio.wait_for_function(f"before => window.studio && {kept} === before", arg=before)
    studio.wait_for_selector('.st-token[aria-pressed="true"]')
    assert studio.evaluate("studio.panels[0].handle.weights()[5]") == pytest.approx(weights)


@pytest.mark.parametrize(
    "broken",
    [
        "%5B%7B%22run%22%3A3%7D%5D",
        "%E0%A4%A",
        '[{"run":"gpt","given":"to be","look":{"view":"__proto__","site":99,"head":-1,"query":1e9},'
        '"edits":[null,{"site":1},{"site":"x","how":"<img src=x>","heads":null}]}]',
    ],
)
def test_a_broken_link_breaks_nothing(studio: "Page", live: Live, broken: str) -> None:
    studio.goto("about:blank")
    studio.goto(f"{live.url}/#{broken}")
    studio.wait_for_selector(".st-panel")
    studio.wait_for_function("() => document.querySelector('.st-go').textContent === 'write'")
    assert studio.locator(".st-panel img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it_and_it_meets_wcag_aa(studio: "Page", scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    studio.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    studio.set_viewport_size({"width": 390, "height": 844})
    chosen(studio, "gpt", "to be")
    studio.click('.st-buttons [data-how="uniform"]')
    studio.click('.st-buttons [data-how="row"]')
    studio.wait_for_selector(".st-edits li")
    assert studio.evaluate("document.documentElement.scrollWidth") <= 390
    outside = "[...document.querySelectorAll('#studio button, #studio select, #studio input')]"
    outside += (
        ".filter((each) => each.getBoundingClientRect().right > 391).map((each) => each.outerHTML)"
    )
    assert studio.evaluate(outside) == []
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
    for width in (390, 1400):
        studio.set_viewport_size({"width": width, "height": 844})
        found = axe.Axe().run(studio, options={"runOnly": {"type": "tag", "values": tags}})
        broken = {
            each["id"]: [node["html"][:200] for node in each["nodes"]]
            for each in found.response["violations"]
        }
        assert broken == {}
    if folder := os.environ.get(ARTEFACTS):
        studio.screenshot(path=Path(folder) / f"studio-{scheme}.png", full_page=True)


def test_two_runs_side_by_side_and_a_translator(studio: "Page") -> None:
    studio.click("header button")
    assert studio.locator(".st-panel").count() == 2
    second = studio.locator(".st-panel").nth(1)
    second.locator(".st-head select").select_option("bahdanau")
    second.locator("textarea").fill("3 mai 1998")
    second.locator(".st-go").click()
    second.locator(".st-token").first.wait_for()
    studio.wait_for_function("() => studio.panels[1].edits.answer !== undefined")
    assert studio.evaluate("studio.panels[1].handle.labels().keys.join('')") == "3␣mai␣1998<eos>"
    studio.click("header button")
    assert studio.locator(".st-panel").count() == 1


def test_the_curves_of_a_run_that_is_training_grow(studio: "Page", opened: dict[str, Run]) -> None:
    log = opened["new"].folder / "log.jsonl"
    log.write_text('{"update": 1, "loss": 3.0}\n{"update": 2, "loss": 2.0}\n')
    try:
        studio.select_option(".st-head select", "new")
        studio.wait_for_selector(".st-curves figure")
        assert studio.is_disabled(".st-go")
        assert "2.000 at 2" in studio.inner_text(".st-curves")
        with log.open("a") as file:
            file.write('{"update": 3, "loss": 1.5}\n{"upd')
        studio.wait_for_function(
            "() => document.querySelector('.st-curves').textContent.includes('1.500 at 3')"
        )
        assert studio.evaluate("studio.panels[0].curves.data['train/loss'].length") == 3
    finally:
        log.unlink()


def test_texts_that_are_markup_stay_text(studio: "Page") -> None:
    for name in ("markup", "entity", "right to left override", "many marks", "family", "null"):
        text = f"<img src=x>{TOKENS[name]}"
        chosen(studio, "gpt", text[:20])
        assert studio.locator(".st-panel img, .st-panel script").count() == 0
    studio.select_option(".st-head select", "bahdanau")
    chosen(studio, "bahdanau", "<b onclick=alert(1)>5 mai</b>")
    assert studio.locator(".st-panel b").count() == 0


def test_the_api_can_be_read(studio: "Page", live: Live) -> None:
    studio.goto(f"{live.url}/docs")
    studio.wait_for_selector("h2")
    assert "POST /v1/completions" in studio.inner_text("main")
    assert "repetition_penalty" in studio.inner_text("main")


def test_what_is_refused_is_said_in_the_page(studio: "Page") -> None:
    studio.select_option(".st-head select", "gpt")
    studio.fill(".st-panel textarea", "a" * 70)
    studio.click(".st-go")
    studio.wait_for_function("() => document.querySelector('.st-note').textContent.length > 0")
    assert "together they may be 64" in studio.inner_text(".st-note")


STORIES = """
task = "stories"
[about]
title = "Tiny stories"
paper = "nobody"
minutes = 0.1
[data]
train = "stories.txt"
[model]
kind = "memn2n"
width = 8
hops = 2
[train]
updates = 2
optimiser = { name = "sgd", lr = 0.1 }
"""


def test_a_question_about_a_story_shows_its_hops_over_facts(
    browser: object, start: Callable[..., Live], tmp_path: Path
) -> None:
    story = "1 Ann went to the hall.\n2 Bob went to the garden.\n3 Where is Ann? \thall\t1\n"
    (tmp_path / "stories.txt").write_text(story * 10)
    create(parse_recipe(STORIES, "stories"), tmp_path / "run", tmp_path, "cpu").train()
    there = start(other=served(load(tmp_path / "run", "cpu")))
    page = browser.new_page()  # type: ignore[attr-defined]
    page.set_default_timeout(40_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(there.url)
    assert page.input_value(".st-question") == "Where is Mary?"
    page.fill(".st-question", "Where is Ann?")
    page.fill(".st-panel textarea", "Ann went to the hall.\nBob went to the garden.")
    page.click(".st-go")
    page.wait_for_selector(".st-token")
    assert page.locator(".st-token").all_inner_texts() == ["hop 1", "hop 2"]
    assert page.inner_text(".st-note").startswith("answer: ")
    page.close()
    assert wrong == []
