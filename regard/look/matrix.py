"""Matrices of weights: one with its words, and many side by side on one scale.

The figures of Bahdanau, Cho and Bengio (2015) have the source along the top and the target down the
side; so do these.

Which class was taken for which: true classes down the side, predictions along the top.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from regard.core.errors import UserError
from regard.look.figure import (
    GREY,
    INK,
    ORANGE,
    SHADES,
    SOFT,
    bare,
    font_for,
    heading,
    printable,
    scale_beside,
    sheet,
    text_width,
)
from regard.look.payload import Payload

WIDEST_CELL, NARROWEST_CELL = 0.42, 0.17
"""Inches. Labels stay readable down to the narrowest; below it only some are written."""
_SIDE = 9.0
"""Inches that a matrix may be wide before its cells get narrower."""
_LONGEST_SIDE = 22.0
"""Inches that it may be at most."""
_GAP = 0.1
"""Inches between small matrices."""
_NUMBERS_UP_TO = 10
"""Rows and columns of a matrix that has its numbers written in."""


def alignment_figure(payload: Payload, marked: Sequence[int] | None = None) -> Figure:
    """The mean of a payload's heads as shades, with words on both axes."""
    queries, keys = payload.matrix.shape
    cell = _cell_inches(max(queries, keys))
    figure = sheet(keys * cell, queries * cell)
    axes = figure.add_axes((0, 0, 1, 1))
    most = largest_weight([payload.matrix])
    image = _painted(axes, payload.matrix, most)
    bare(axes)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    _write_keys(axes, payload.keys, cell)
    write_queries(axes, payload.queries, cell)
    axes.set_ylabel(payload.axes[0], fontsize=9, color=SOFT)
    axes.set_xlabel(payload.axes[1], fontsize=9, color=SOFT, labelpad=6)
    if cell >= 0.25:
        _rule(axes, queries, keys)
    if max(queries, keys) <= _NUMBERS_UP_TO:
        _write_numbers(axes, payload.matrix, most)
    if marked is not None:
        _mark(axes, check_marked(marked, queries, keys))
    title = heading(payload.title)
    axes.set_title(
        title, fontproperties=font_for([title], 11.0), color=INK, parse_math=False, pad=9
    )
    scale_beside(figure, image, most)
    return figure


def _cell_inches(count: int) -> float:
    """How wide the cells of so many columns are."""
    roomy = min(WIDEST_CELL, max(NARROWEST_CELL, _SIDE / count))
    return min(roomy, _LONGEST_SIDE / count)


def largest_weight(matrices: Sequence[np.ndarray]) -> float:
    """The largest weight, drawn darkest; one where all weights are zero."""
    return max(float(matrix.max()) for matrix in matrices) or 1.0


def _painted(axes: Axes, matrix: np.ndarray, most: float) -> AxesImage:
    """The numbers as shades from zero to the most there is."""
    return axes.imshow(
        matrix, cmap=SHADES, vmin=0.0, vmax=most, aspect="auto", interpolation="nearest"
    )


def _write_keys(axes: Axes, tokens: Sequence[str], cell: float) -> None:
    """Tokens along the top, upright where they fit, turned where they do not."""
    every, size = _density(cell)
    texts = printable(tokens[::every])
    font = font_for(texts, size)
    widest = max(text_width(text, font) for text in texts)
    upright = widest <= 0.9 * cell * every * 72
    turned = 0 if upright else 90 if cell < 0.3 else 45
    axes.set_xticks(
        range(0, len(tokens), every),
        texts,
        fontproperties=font,
        rotation=turned,
        rotation_mode="anchor",
        ha="center" if upright else "left",
        va="baseline" if turned < 90 else "center",
        parse_math=False,
    )


def write_queries(axes: Axes, tokens: Sequence[str], cell: float) -> None:
    """Tokens down the side."""
    every, size = _density(cell)
    texts = printable(tokens[::every])
    axes.set_yticks(
        range(0, len(tokens), every),
        texts,
        fontproperties=font_for(texts, size),
        va="center_baseline",
        parse_math=False,
    )


def _density(cell: float) -> tuple[int, float]:
    """Every how-manieth label is written in cells of this size, and in which size of letters."""
    every = ceil(NARROWEST_CELL / cell - 1e-9)
    return every, min(10.5, 0.75 * cell * every * 72)


def _rule(axes: Axes, queries: int, keys: int) -> None:
    """White lines between the cells."""
    axes.set_xticks(np.arange(0.5, keys - 1), minor=True)
    axes.set_yticks(np.arange(0.5, queries - 1), minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)


def _write_numbers(axes: Axes, matrix: np.ndarray, most: float) -> None:
    """The weights in their cells; what rounds to nothing needs no text."""
    for (row, column), number in np.ndenumerate(matrix):
        text = f"{number:.2f}".removeprefix("0")
        if float(number) >= 0.005:
            ink = "white" if number > 0.6 * most else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=ink)


def check_marked(marked: Sequence[int], queries: int, keys: int) -> Sequence[int]:
    """A key for each query."""
    if len(marked) != queries or not all(0 <= key < keys for key in marked):
        raise UserError(
            f"marked={list(marked)} must have one key, 0 to {keys - 1}, for each of the "
            f"{queries} queries"
        )
    return marked


def _mark(axes: Axes, marked: Sequence[int]) -> None:
    """A frame around the chosen key of each query."""
    for query, key in enumerate(marked):
        corner = (key - 0.5, query - 0.5)
        # Above the white lines between the cells.
        frame = Rectangle(corner, 1, 1, fill=False, edgecolor=ORANGE, linewidth=1.8, zorder=3)
        frame.set_clip_on(False)
        axes.add_patch(frame)


def grid_figure(payloads: Sequence[Payload]) -> Figure:
    """A small matrix for every head of every payload: payloads down, heads across, one scale."""
    if not payloads:
        raise UserError("a grid needs at least one payload, and was given none")
    heads = sorted({head for payload in payloads for head in payload.heads or (0,)})
    wide = min(2.2, max(0.9, 12 / len(heads)))
    shape = max(len(payload.queries) / len(payload.keys) for payload in payloads)
    tall = wide * min(2.0, max(0.4, shape))
    width = len(heads) * (wide + _GAP) - _GAP
    height = len(payloads) * (tall + _GAP) - _GAP
    figure = sheet(width, height)
    most = largest_weight([payload.weights for payload in payloads])
    for row, payload in enumerate(payloads):
        for place, head in enumerate(payload.heads or (0,)):
            left = heads.index(head) * (wide + _GAP)
            bottom = height - row * (tall + _GAP) - tall
            box = (left / width, bottom / height, wide / width, tall / height)
            axes = figure.add_axes(box)
            image = _painted(axes, payload.weights[place], most)
            _framed(axes)
            if row == 0 and payload.heads is not None:
                axes.set_title(f"head {head}", fontsize=9, color=INK)
            if place == 0:
                name = heading(payload.site)
                axes.set_ylabel(name, fontproperties=font_for([name], 9.0), parse_math=False)
    scale_beside(figure, image, most)
    explain(figure, payloads)
    return figure


def _framed(axes: Axes) -> None:
    """A hair of a frame, so that a matrix of zeros is still one."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(color=GREY, linewidth=0.5)


def explain(figure: Figure, payloads: Sequence[Payload]) -> None:
    """What the rows and columns of every small matrix are, if they are the same in all."""
    if len({payload.axes for payload in payloads}) == 1:
        queries, keys = payloads[0].axes
        text = f"in each: {queries} downward, {keys} across"
        below = -0.1 / figure.get_size_inches()[1]
        figure.text(0, below, text, ha="left", va="top", fontsize=9, color=SOFT)


_CELL = 44.0
"""Points of a cell."""
_MOST = 24
"""Classes whose cells have a number; more are too many to read."""


def confusion_figure(labels: Sequence[str], counts: Float[np.ndarray, "C K"]) -> Figure:
    """Each row shaded by its shares, so that rare classes are seen too; counts as numbers."""
    texts = printable(labels)
    font = font_for(texts, 10.0)
    margin = max(text_width(text, font) for text in texts) + 24
    side = _CELL * len(texts)
    figure = sheet((margin + side + 8) / 72, (side + margin + 8) / 72)
    wide, tall = figure.get_size_inches() * 72
    axes = figure.add_axes((margin / wide, 4 / tall, side / wide, side / tall))
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)
    axes.imshow(shares, cmap=SHADES, vmin=0.0, vmax=1.0, aspect="equal")
    axes.set_xticks(
        range(len(texts)), texts, fontproperties=font, rotation=90, color=INK, parse_math=False
    )
    axes.set_yticks(range(len(texts)), texts, fontproperties=font, color=INK, parse_math=False)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for line in axes.spines.values():
        line.set_visible(False)
    if len(texts) <= _MOST:
        for (true, predicted), count in np.ndenumerate(counts):
            axes.text(
                predicted, true, f"{int(count)}", fontsize=9, ha="center", va="center_baseline",
                color="white" if shares[true, predicted] > 0.6 else INK,
            )  # fmt: skip
    axes.set_xlabel("predicted", color=SOFT, fontsize=10)
    axes.xaxis.set_label_position("top")
    axes.set_ylabel("true", color=SOFT, fontsize=10)
    return figure
