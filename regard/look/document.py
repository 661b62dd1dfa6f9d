"""A document with its two levels of attention: sentences down the page, words on their shades.

The bar before a sentence is its weight. A word is as dark as its weight in its sentence times the
root of that of the sentence, as Yang et al. (2016, figure 5) have it: an important word of a
sentence with little weight stays light.
"""

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.core.errors import UserError
from regard.look.figure import INK, SHADES, SOFT, font_for, printable, scale_beside, sheet
from regard.look.payload import Payload
from regard.look.text import BETWEEN, LINE, on_paper, spots_of, write_title

BAR = 60.0
"""Points of the bar of a sentence that has all the weight."""


def document_figure(words: Payload, sentences: Payload) -> Figure:
    """One block of lines for each sentence that has words."""
    within, weights = words.matrix, sentences.matrix[0]  # [S,K] and [S]
    if within.shape[0] != len(weights):
        raise UserError(
            f"{words.site!r} attends from {within.shape[0]} sentences, and {sentences.site!r} to "
            f"{len(weights)}: they are not two levels of one document"
        )
    texts = printable(words.keys)
    font = font_for(texts, 10.0)
    shade = within * np.sqrt(weights)[:, None]
    boxes: list[Rectangle] = []
    dark: list[float] = []
    placed: list[tuple[float, float, str, float]] = []
    bars: list[tuple[float, float]] = []
    top, most, right = 0.0, float(shade.max()) or 1.0, 0.0
    for number in range(len(weights)):
        own = [place for place in range(len(texts)) if within[number, place] > 0]
        if not own:
            continue
        spots = spots_of([texts[place] for place in own], font)
        for place, spot in zip(own, spots, strict=True):
            left = BAR + 3 * BETWEEN + spot.left
            upper = top + spot.line * LINE
            boxes.append(Rectangle((left, upper + 1), spot.width, LINE - 2))
            dark.append(float(shade[number, place]))
            placed.append((left + spot.width / 2, upper + LINE / 2, texts[place], dark[-1]))
            right = max(right, left + spot.width)
        bars.append((top, float(weights[number])))
        top += (spots[-1].line + 1) * LINE + 4
    figure = sheet(max(right, 200.0) / 72, max(top, LINE) / 72)
    axes = on_paper(figure)
    for across, down, text, weight in placed:
        axes.text(
            across, down, text, fontproperties=font, ha="center", va="center_baseline",
            color="white" if weight > 0.6 * most else INK, parse_math=False,
        )  # fmt: skip
    for upper, weight in bars:
        axes.add_patch(Rectangle((0, upper + 4), BAR * weight, LINE - 8, color="#D55E00"))
        axes.text(
            BAR + BETWEEN, upper + LINE / 2, f"{weight:.2f}", fontsize=9, color=SOFT, ha="right",
            va="center_baseline",
        )  # fmt: skip
    shades = PatchCollection(boxes, cmap=SHADES, linewidth=0, zorder=0)
    shades.set_array(np.array(dark))
    shades.set_clim(0.0, most)
    axes.add_collection(shades)
    write_title(axes, sentences)
    scale_beside(figure, shades, most)
    return figure
