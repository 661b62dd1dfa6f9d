"""Every dimension letter in the package is in the one legend."""

import re
from pathlib import Path

import pytest

from regard.core.shapes import LEGEND

PACKAGE = Path(__file__).parent.parent / "regard"
COMMENT = re.compile(r"#.*?\[([A-Z0-9,*+\-() ]+)\]")
ANNOTATION = re.compile(r"(?:Float|Bool|Int|Shaped)\[Tensor, \"([^\"]+)\"\]")


def letters(text: str) -> set[str]:
    shapes = COMMENT.findall(text) + ANNOTATION.findall(text)
    return {letter for shape in shapes for letter in re.findall(r"[A-Za-z]+", shape)}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_letters_are_in_the_legend(path: Path) -> None:
    assert letters(path.read_text()) <= set(LEGEND)


def test_a_letter_outside_the_legend_is_seen() -> None:
    assert letters('x: Float[Tensor, "B Z"]  # [B,Y]') == {"B", "Z", "Y"}


def test_the_docs_page_repeats_the_legend_exactly() -> None:
    page = (PACKAGE.parent / "docs" / "shapes.md").read_text()
    rows = dict(re.findall(r"^\| `(\w)` \| (.+?) \|$", page, flags=re.MULTILINE))
    assert rows == LEGEND
