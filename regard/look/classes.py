"""Which class was taken for which: true classes down the side, what was said along the top."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from regard.look.figure import INK, SHADES, SOFT, font_for, printable, sheet, text_width

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
        for (true, said), count in np.ndenumerate(counts):
            axes.text(
                said, true, f"{int(count)}", fontsize=9, ha="center", va="center_baseline",
                color="white" if shares[true, said] > 0.6 else INK,
            )  # fmt: skip
    axes.set_xlabel("said", color=SOFT, fontsize=10)
    axes.xaxis.set_label_position("top")
    axes.set_ylabel("true", color=SOFT, fontsize=10)
    return figure
