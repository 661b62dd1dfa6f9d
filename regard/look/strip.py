"""How numbers of many texts are spread: a dot for each, and a box around the middle half."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from regard.core.errors import UserError
from regard.look.chart import COLOURS
from regard.look.figure import INK, heading, plain, sheet


def spread_figure(columns: Mapping[str, Sequence[float]]) -> Figure:
    """One row for each column; what is no number is left out."""
    if not columns:
        raise UserError("there is nothing to draw: no columns")
    figure = sheet(7.5, 0.7 + 0.42 * len(columns))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    plain(axes, "")
    heights = np.random.default_rng(0)  # the same dots for the same numbers
    for order, values in enumerate(columns.values()):
        known = np.asarray([value for value in values if np.isfinite(value)])
        place = len(columns) - 1 - order
        colour = COLOURS[order % len(COLOURS)]
        jitter = heights.uniform(-0.28, 0.28, len(known))
        axes.plot(known, place + jitter, ".", color=colour, alpha=0.35, markersize=4)
        if len(known):
            low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
            axes.plot([low, high], [place, place], color=INK, linewidth=5, alpha=0.35)
            axes.plot([middle], [place], "|", color=INK, markersize=15, markeredgewidth=2.2)
    names = [heading(name) for name in columns]
    axes.set_yticks(range(len(columns) - 1, -1, -1), names, fontsize=9.5)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.6, len(columns) - 0.4)
    axes.grid(axis="x", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure
