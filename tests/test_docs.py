"""The pages of docs/ say what is there, and their pictures can be drawn."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from regard.attention import WEIGHS
from regard.experiments.summary import replace_summary, summary_table
from regard.models import MODELS
from regard.runs.recipe import parse_recipe
from regard.train.optimise import OPTIMISERS
from regard.train.schedule import SCHEDULES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGE = (DOCS / "architecture.md").read_text()
DRAWN = runpy.run_path(str(DOCS / "pictures" / "draw.py"))
PICTURES: dict[str, Callable[[], Figure]] = DRAWN["PICTURES"]
LARGEST = 150_000
"""Bytes of a picture: pages should load quickly, and the history should stay small."""


def listed() -> set[Path]:
    """Every path in the listing of folders; two spaces further in is one folder deeper."""
    block = PAGE.split("## The folders")[1].split("```")[1]
    paths, folders = set(), {0: ROOT}
    for indent, name in re.findall(r"^( *)(\S+)", block, flags=re.MULTILINE):
        path = folders[len(indent)] / name
        folders[len(indent) + 2] = path
        paths.add(path)
    return paths


def test_everything_listed_is_there() -> None:
    assert len(listed()) > 25
    assert {path for path in listed() if not path.exists()} == set()


def test_every_folder_of_the_package_is_listed() -> None:
    folders = {path.parent for path in ROOT.glob("regard/*/__init__.py")}
    assert folders - listed() == set()


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(regard/[\w/.]+)`", PAGE))
    assert len(named) > 25
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_arrows_of_the_page_are_those_that_are_held() -> None:
    table = PAGE.split("## The arrows")[1].split("## ")[0]
    rows = re.findall(r"^\| (\w+) \| ([\w., ]+) \|$", table, flags=re.MULTILINE)
    arrows = {
        layer: set() if may == "nothing of ours" else set(may.split(", "))
        for layer, may in rows
        if layer != "folder"
    }
    assert arrows == runpy.run_path(str(ROOT / "tests" / "test_arrows.py"))["ARROWS"]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_all_pictures_can_be_drawn_and_are_small(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    paths = DRAWN["draw"](tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert sorted(path.name for path in paths) == sorted(PICTURES)
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size < LARGEST
        assert imread(path).std() > 0.05, "not an empty sheet"


def test_the_pictures_beside_the_pages_are_those_that_are_drawn() -> None:
    kept = {path.name: path.stat().st_size for path in (DOCS / "pictures").glob("*.png")}
    assert set(kept) == set(PICTURES)
    assert max(kept.values()) < LARGEST


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_of_a_picture_is_cut_off_or_too_small(name: str) -> None:
    figure = PICTURES[name]()
    figure.draw_without_rendering()
    taken, sheet = figure.get_tightbbox(), figure.get_size_inches()
    assert min(taken.x0, taken.y0) >= 0
    assert taken.x1 <= sheet[0]
    assert taken.y1 <= sheet[1]
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
    assert len(sizes) > 20
    assert min(sizes) >= 9


def test_every_weighing_of_the_table_is_drawn() -> None:
    titles = [axes.get_title() for axes in PICTURES["weighings.png"]().axes[1:]]
    names = [re.match(r"\w+", title) for title in titles]
    assert [name[0] for name in names if name] == list(WEIGHS)


def test_the_models_in_tables_are_those_that_recipes_can_name() -> None:
    named = set()
    for page in DOCS.glob("*.md"):
        for table in page.read_text().split("| kind | what |")[1:]:
            rows = table.split("\n\n")[0].splitlines()[2:]
            named |= {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert len(named) > 10
    assert named - set(MODELS) == set()


def test_recipes_in_pages_can_be_read() -> None:
    blocks = [
        block
        for page in (*DOCS.glob("*.md"), ROOT / "README.md")
        for block in re.findall(r"```toml\n(.*?)```", page.read_text(), flags=re.DOTALL)
        if block.startswith("task") and "\n[about]\n" in block
    ]
    assert len(blocks) > 1
    for block in blocks:
        recipe = parse_recipe(block, "a page")
        if recipe.kind == "gpt" and recipe.task == "language_model":
            assert recipe.data.model_dump()["window"] <= recipe.model.model_dump()["context"]


def test_the_summary_of_results_is_what_the_files_make() -> None:
    table = summary_table(ROOT / "results")
    page = (ROOT / "RESULTS.md").read_text()
    assert replace_summary(page, table) == page, "run `python -m bench.summary` (make results)"


def test_the_page_of_training_names_every_schedule_and_optimiser() -> None:
    page = (DOCS / "train.md").read_text()
    rows = page.split("| schedule | shape |")[1].split("\n\n")[0].splitlines()[2:]
    assert {row.split("|")[1].strip(" `") for row in rows} == set(SCHEDULES)
    assert {name for name in OPTIMISERS if f"`{name}`" not in page} == set()
