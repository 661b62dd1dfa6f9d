"""The documentation site, the lecture room and what a repository needs around its code."""

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
import yaml
from typer.testing import CliRunner

from regard.cli import app
from regard.core.errors import UserError
from regard.lectures import gallery_page, lecture_steps, lectures_page, picture_name
from regard.runs.recipe import shipped_recipes

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OFFLINE = runpy.run_path(str(DOCS / "offline.py"))
LARGEST = 150_000
"""Bytes of a picture."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: unknown pages, links and anchors are errors."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    built = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_loads_nothing_from_elsewhere_and_links_lead_somewhere(site: Path) -> None:
    assert OFFLINE["problems"](site) == []


def test_the_site_has_equations_a_reference_and_commands(site: Path) -> None:
    page = (site / "lectures.html").read_text()
    assert page.count("<math") >= len(lecture_steps())
    assert "$$" not in page
    reference = (site / "reference" / "attention.html").read_text()
    assert 'id="regard.attention.attend.Attend"' in reference
    assert "regard data get" in (site / "commands.html").read_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_opened_from_a_folder_can_be_searched(
    site: Path, width: int, browser: "Browser"
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((site / "tour.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    opener = ".md-search__input" if width > 1000 else "label.md-header__button[for=__search]"
    page.locator(opener).click()
    page.keyboard.type("bilinear", delay=30)
    page.locator(".md-search-result__item").first.wait_for(timeout=20_000)
    assert problems == []
    context.close()


def test_the_check_of_a_site_sees_faults(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<script src="https://cdn.example.com/x.js"></script><a href="b.html#there">b</a>'
        '<a href="b.html#gone">b</a><a href="c.html">c</a><img src="//example.com/x.png">'
    )
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1><link rel="canonical" href="https://x">')
    (tmp_path / "x.css").write_text("@import url(https://fonts.example.com/x)")
    found = "\n".join(OFFLINE["problems"](tmp_path))
    for fault in ("cdn.example.com", "b.html#gone", "c.html", "//example.com/x.png", "x.css"):
        assert fault in found
    assert "canonical" not in found
    assert "there leads" not in found


def test_the_pages_of_the_lectures_are_those_of_the_steps() -> None:
    again = "write it anew: regard lectures --markdown, --gallery"
    assert (DOCS / "lectures.md").read_text() == lectures_page(), again
    assert (DOCS / "gallery.md").read_text() == gallery_page(), again


def test_the_steps_are_in_the_order_in_which_they_are_taught() -> None:
    steps = lecture_steps()
    assert len({step.number for step in steps}) == len(steps)
    assert len({step.picture for step in steps}) == len(steps)
    titles = [step.title for step in steps]
    story = ("The bottleneck", "Alignment", "Scores", "Copying", "Self-attention", "Heads")
    assert titles[: len(story)] == list(story)
    assert titles[-1] == "Explanation"


@pytest.mark.parametrize("step", lecture_steps(), ids=lambda step: step.title)
def test_a_step_has_all_that_it_names(step) -> None:  # type: ignore[no-untyped-def]
    assert (ROOT / step.file).exists()
    picture = DOCS / "gallery" / picture_name(step)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < LARGEST
    assert step.minutes <= 10
    trained = set()
    for command in step.train:
        words = shlex.split(command)
        assert words[2] in shipped_recipes(), command
        trained.add(words[words.index("--name") + 1] if "--name" in words else words[2])
    assert set(re.findall(r"\bruns/([\w-]+)", step.draw)) <= trained
    assert step.draw.endswith(f"-o {step.picture}")
    for command in (*step.train, step.draw):
        _, verb, *words = shlex.split(command)
        group = typer.main.get_command(app)
        group.commands[verb].make_context(verb, words)  # type: ignore[attr-defined]


def test_no_picture_of_the_gallery_is_without_a_step() -> None:
    kept = {path.name for path in (DOCS / "gallery").glob("*.png")}
    assert kept == {picture_name(step) for step in lecture_steps()}


def test_the_verb_shows_the_list_and_a_step() -> None:
    run = CliRunner().invoke
    assert "Alignment" in run(app, ["lectures"]).output
    shown = run(app, ["lectures", "2"]).output
    assert "regard train dates" in shown
    assert "Exercise" in shown
    with pytest.raises(UserError, match=r"step 99: there are \d+ steps"):
        run(app, ["lectures", "99"], catch_exceptions=False)


def test_what_surrounds_the_code_agrees_with_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text()
    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = [step.get("run") for job in flow["jobs"].values() for step in job["steps"]]
    assert {".ci/run", "make docs"} <= set(steps)
    assert yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(path.read_text())
