"""The sheet a picture is drawn on: its size, its fonts, and how it becomes a file.

Figures are matplotlib's own objects, without pyplot and its table of open windows: nothing has to
be closed, and a picture is gone when the last variable that holds it is. Importing this file
imports matplotlib, so only functions of `plot.py` do.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager, get_font
from matplotlib.textpath import text_to_path

from regard.core.atomic import replace_atomically
from regard.look.label import escape_letter, sign, visible

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#BBBBBB"
PURPLE, SKY, INK = "#CC79A7", "#56B4E9", "#222222"
"""The colours of Okabe and Ito, which people who see colours differently can tell apart."""
SOFT = "#666666"
"""The ink of what only explains."""
SHADES = "Blues"
"""For numbers from zero up: light to dark, so that it also reads in grey."""
SIDES = "PuOr_r"
"""For numbers on both sides of zero."""

_MARGIN = 0.12
"""Inches of white around a picture."""
_DPI = 160

_NOTHING_OF_NOW: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""What would make two files of one picture differ, left out."""

_HOUSE_FONT = "DejaVu Sans"
"""It comes with matplotlib, so that it is everywhere."""
_UNREADABLE = ("Last Resort", "cm", "STIX", "DejaVu")
"""Fonts that have a box for every letter, have numbered letters in a way of their own, or belong to
the house font."""


def sheet(width: float, height: float) -> Figure:
    """An empty figure of so many inches; labels may stand outside, the file has room for them."""
    return Figure(figsize=(width, height), dpi=_DPI, facecolor="white")


def save(figure: Figure, path: Path) -> None:
    """The figure as a file, whole or not at all; the same figure is the same bytes."""
    form = path.suffix.lower().removeprefix(".")
    with replace_atomically(path) as file:
        figure.savefig(
            file,
            format=form,
            dpi=_DPI,
            bbox_inches="tight",
            pad_inches=_MARGIN,
            metadata=_NOTHING_OF_NOW[form],
        )


@lru_cache(maxsize=256)
def letters_of(family: str) -> frozenset[int]:
    """Every letter that a font has, in bold too; none if it is no outlines or cannot be read."""
    found = []
    for weight in ("normal", "bold"):
        wanted = FontProperties(family=[family], weight=weight)
        try:
            font = get_font(fontManager.findfont(wanted, fallback_to_default=False))
        except (RuntimeError, OSError):  # freetype cannot open it, or it is gone since
            return frozenset()
        found.append(frozenset(font.get_charmap()) if font.scalable else frozenset())
    return found[0] & found[1]


@lru_cache(maxsize=4096)
def family_with(letter: str) -> str | None:
    """A font that has this letter, the house font before all others; None if none has it."""
    if ord(letter) in letters_of(_HOUSE_FONT):
        return _HOUSE_FONT
    installed = {entry.name for entry in fontManager.ttflist}
    readable = (name for name in installed if not name.startswith(_UNREADABLE))
    # Noto and Sans first: they were made to go together.
    ordered = sorted(readable, key=lambda name: ("Noto" not in name, "Sans" not in name, name))
    return next((name for name in ordered if ord(letter) in letters_of(name)), None)


def _has_font(letter: str) -> bool:
    """Can this letter be drawn?"""
    return family_with(letter) is not None


def printable(tokens: Iterable[str]) -> list[str]:
    """What to draw for each token: visible, short, and in letters that some font has.

    >>> printable(["$x_{", " "])
    ['$x_{', '␣']
    """
    return [visible(token, _has_font) for token in tokens]


def heading(text: str) -> str:
    """A title, at its full length, in letters that some font has."""
    signs = (letter if letter == " " else sign(letter) for letter in text)
    return "".join(each if _has_font(each[0]) else escape_letter(each) for each in signs)


def font_for(texts: Sequence[str], size: float, *, bold: bool = False) -> FontProperties:
    """The house font, and after it those that have the letters it lacks."""
    found = {family_with(letter) for text in texts for letter in text} - {None, _HOUSE_FONT}
    families = [_HOUSE_FONT, *sorted(name for name in found if name)]
    return FontProperties(family=families, size=size, weight="bold" if bold else "normal")


def text_width(text: str, font: FontProperties) -> float:
    """How wide a text will be, in points."""
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def bare(axes: Axes) -> None:
    """Without a frame and ticks."""
    axes.spines[:].set_visible(False)
    axes.tick_params(which="both", length=0, labelcolor=INK, pad=3)


def plain(axes: Axes, title: str) -> None:
    """A title, and no more frame than a reader needs."""
    text = heading(title)
    font = font_for([text], 11.0)
    axes.set_title(text, fontproperties=font, color=INK, loc="left", parse_math=False)
    axes.tick_params(labelsize=9, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)


def scale_beside(figure: Figure, image: ScalarMappable, most: float) -> None:
    """The colours and their numbers, in a slim bar at the upper right of the whole sheet."""
    width, height = figure.get_size_inches()
    tall = min(height, 2.4)
    place = (1 + 0.18 / width, 1 - tall / height, 0.13 / width, tall / height)
    axes = figure.add_axes(place)
    bar = figure.colorbar(image, cax=axes, ticks=[0.0, most / 2, most])
    bar.ax.set_yticklabels(["0", f"{most / 2:.2g}", f"{most:.2g}"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8.5, labelcolor=SOFT, pad=3)
    bar.set_label("weight", fontsize=8.5, color=SOFT)
