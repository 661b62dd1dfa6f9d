"""Weights and words: shades under the words of a sentence, and links between two columns.

Shades under what a reader has read so far are how Cheng, Dong and Lapata (2016) drew their LSTMN.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle

from regard.look.figure import (
    BLUE,
    INK,
    SHADES,
    SOFT,
    font_for,
    heading,
    printable,
    scale_beside,
    sheet,
    text_width,
)
from regard.look.payload import Payload

LINE = 19.0
"""Points from one line of words to the next."""
_PAGE = 620.0
"""Points of a line before words go on to the next."""
BETWEEN = 5.0
"""Points between two words, and left and right of each inside its shade."""

_COLUMNS = 230.0
"""Points between the two columns of links."""
_THICKEST = 5.0
"""Points of the heaviest link."""
LEAST = 0.01
"""Links lighter than this part of the heaviest are not drawn: nobody would see them."""


@dataclass(frozen=True)
class Spot:
    """Where a word stands in its row."""

    line: int
    left: float
    width: float


def on_paper(figure: Figure) -> Axes:
    """An axes over the whole sheet that counts points, from the upper left."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    width, height = figure.get_size_inches() * 72
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    return axes


def spots_of(texts: Sequence[str], font: FontProperties) -> list[Spot]:
    """Each word after the one before, on a new line where the page ends."""
    spots: list[Spot] = []
    line, left = 0, 0.0
    for text in texts:
        width = text_width(text, font) + 2 * BETWEEN
        if left and left + width > _PAGE:
            line, left = line + 1, 0.0
        spots.append(Spot(line, left, width))
        left += width + BETWEEN / 2
    return spots


def _only_earlier(payload: Payload) -> bool:
    """Does no query of this text attend beyond itself?"""
    matrix = payload.matrix
    return payload.queries == payload.keys and not np.triu(matrix, 1).any()


def heat_figure(payload: Payload) -> Figure:
    """One row for each query: the keys as a text, each on a shade as dark as its weight."""
    matrix = payload.matrix
    texts, steps = printable(payload.keys), printable(payload.queries)
    font, bold = font_for(texts, 10.0), font_for(steps, 10.0, bold=True)
    spots = spots_of(texts, font)
    margin = max(text_width(step, bold) for step in steps) + 3 * BETWEEN
    lines = spots[-1].line + 1
    tall = lines * LINE + (4 if lines > 1 else 0)
    wide = margin + max(spot.left + spot.width for spot in spots)
    figure = sheet(wide / 72, tall * len(steps) / 72)
    axes = on_paper(figure)
    causal = _only_earlier(payload)
    most = float(matrix.max()) or 1.0
    boxes, weights = [], []
    for query, step in enumerate(steps):
        top = query * tall
        axes.text(
            margin - 2 * BETWEEN, top + LINE / 2, step, fontproperties=bold, color=INK,
            ha="right", va="center_baseline", parse_math=False,
        )  # fmt: skip
        for key, (text, spot) in enumerate(zip(texts, spots, strict=True)):
            if causal and key > query:
                break
            left, upper = margin + spot.left, top + spot.line * LINE
            boxes.append(Rectangle((left, upper + 1), spot.width, LINE - 2))
            weights.append(matrix[query, key])
            axes.text(
                left + spot.width / 2, upper + LINE / 2, text, fontproperties=font,
                color="white" if matrix[query, key] > 0.6 * most else INK,
                ha="center", va="center_baseline", parse_math=False,
            )  # fmt: skip
    shades = PatchCollection(boxes, cmap=SHADES, linewidth=0, zorder=0)
    shades.set_array(np.array(weights))
    shades.set_clim(0.0, most)
    axes.add_collection(shades)
    write_title(axes, payload)
    scale_beside(figure, shades, most)
    return figure


def write_title(axes: Axes, payload: Payload) -> None:
    """Where the weights come from, above all."""
    title = heading(payload.title)
    font = font_for([title], 11.0)
    axes.set_title(title, fontproperties=font, color=INK, parse_math=False, pad=9)


def flow_figure(payload: Payload) -> Figure:
    """Keys on the left, queries on the right, and links as heavy as the weights between them."""
    matrix = payload.matrix
    queries, keys = matrix.shape
    pitch = min(22.0, max(13.0, 700 / max(queries, keys)))
    height = pitch * max(queries, keys)
    figure = sheet(_COLUMNS / 72, height / 72)
    axes = on_paper(figure)
    heights = [pitch * (np.arange(count) + 0.5) for count in (keys, queries)]
    left, right = (each + (height - each[-1] - pitch / 2) / 2 for each in heights)
    most = float(matrix.max()) or 1.0
    pairs = [(query, key) for query in range(queries) for key in range(keys)]
    # The heaviest last, so that they lie on top.
    seen = sorted((p for p in pairs if matrix[p] >= LEAST * most), key=lambda pair: matrix[pair])
    weights = np.array([matrix[pair] for pair in seen])
    links = LineCollection(
        [_bend(left[key], right[query]) for query, key in seen],
        cmap=LinearSegmentedColormap.from_list("links", ["#DCE9F5", BLUE, "#08306B"]),
        linewidths=0.4 + (_THICKEST - 0.4) * weights / most,
        capstyle="round",
    )
    links.set_array(weights)
    links.set_clim(0.0, most)
    axes.add_collection(links)
    size = min(10.5, 0.75 * pitch)
    columns = (
        (payload.keys, left, -BETWEEN, "right", payload.axes[1]),
        (payload.queries, right, _COLUMNS + BETWEEN, "left", payload.axes[0]),
    )
    for tokens, places, across, side, name in columns:
        texts = printable(tokens)
        font = font_for(texts, size)
        for text, down in zip(texts, places, strict=True):
            axes.text(
                across, down, text, fontproperties=font, color=INK,
                ha=side, va="center_baseline", parse_math=False,
            )  # fmt: skip
        axes.text(across, -4, name, fontsize=9, color=SOFT, ha=side, va="bottom")
    write_title(axes, payload)
    return figure


def _bend(start: float, end: float) -> np.ndarray:
    """A line from the left column to the right one that leaves and arrives level."""
    share = np.linspace(0.0, 1.0, 33)
    eased = share * share * (3 - 2 * share)
    return np.column_stack([_COLUMNS * share, start + (end - start) * eased])
