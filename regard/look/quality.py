"""What quality costs, and where one layer becomes dearer than another."""

from collections.abc import Mapping, Sequence
from math import isfinite

from matplotlib.figure import Figure

from regard.core.errors import UserError
from regard.look.chart import COLOURS
from regard.look.figure import INK, SOFT, font_for, heading, plain, sheet

_Point = tuple[float, float, float, float]
"""What it cost, how good it was, and from where to where that may reach."""


def tradeoff_figure(points: Mapping[str, _Point], *, cost: str, quality: str) -> Figure:
    """A point for each value: what it cost along the bottom, how good it was up the side."""
    if not points:
        raise UserError("there is nothing to compare: no points")
    figure = sheet(7.0, 4.4)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    plain(axes, "")
    names = [heading(name) for name in points]
    for order, (name, (spent, value, low, high)) in enumerate(
        zip(names, points.values(), strict=True)
    ):
        sure = isfinite(low) and isfinite(high)
        axes.errorbar(
            [spent],
            [value],
            yerr=[[value - low], [high - value]] if sure else None,
            fmt="o",
            capsize=4,
            color=COLOURS[order % len(COLOURS)],
            markersize=7,
            linewidth=1.6,
        )
        axes.annotate(
            name,
            (spent, value),
            xytext=(9, 5),
            textcoords="offset points",
            color=INK,
            fontproperties=font_for([name], 9.5),
            parse_math=False,
        )
    axes.margins(x=0.25, y=0.2)
    axes.set_xlabel(heading(cost), fontsize=10, color=INK, parse_math=False)
    axes.set_ylabel(heading(quality), fontsize=10, color=INK, parse_math=False)
    axes.grid(color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure


def growth_figure(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    crossings: Mapping[str, Sequence[tuple[float, str]]],
) -> Figure:
    """Curves on logarithmic axes, one panel for each thing that grows; crossings are marked."""
    if not panels:
        raise UserError("there is nothing to draw: no curves")
    figure = sheet(4.4 * len(panels), 4.0)
    figure.set_layout_engine("constrained")
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, curves) in zip(every, panels.items(), strict=True):
        plain(axes, heading(title))
        for order, (name, points) in enumerate(curves.items()):
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=COLOURS[order % len(COLOURS)],
                marker="o",
                markersize=3.5,
                linewidth=1.8,
                label=heading(name),
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        for where, what in crossings.get(title, ()):
            axes.axvline(where, color=SOFT, linewidth=1.0, linestyle=(0, (4, 3)))
            axes.annotate(
                f"{what}: {where:.0f}",
                (where, 0.02),
                xycoords=("data", "axes fraction"),
                xytext=(4, 2),
                textcoords="offset points",
                rotation=90,
                fontsize=8.5,
                color=SOFT,
                va="bottom",
            )
        axes.set_xlabel("positions", fontsize=10, color=INK)
        axes.grid(color="#E6E6E6", linewidth=0.8)
        axes.set_axisbelow(True)
    every[0].legend(fontsize=9, frameon=False, loc="upper left")
    return figure
