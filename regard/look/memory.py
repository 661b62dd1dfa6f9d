"""A memory over time: which slots are written and read at each step, side by side.

After figure 6 of Graves et al. (2014): steps across, slots down, a panel for each head. The usage
of the slots and the free gates of a DNC have panels like them; its links are slots by slots.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.figure import Figure

from regard.core.axes import Axis, Slots
from regard.core.errors import UserError
from regard.look.figure import GREY, INK, SHADES, SOFT, font_for, heading, printable, sheet
from regard.look.payload import Payload

_WIDE, _TALL, _GAP = 3.4, 2.7, 0.75
"""Inches of a panel, and between two."""
_ACROSS = 3
"""Panels side by side."""
_LABELS = 12
"""Labels along an axis at most."""

Panel = tuple[str, np.ndarray, Axis, Axis]
"""A title, the numbers, what is down the side and what is across."""


def memory_figure(payloads: Sequence[Payload]) -> Figure:
    """A panel for each head of each payload, writes before reads, all on one scale from 0 to 1."""
    if not payloads:
        raise UserError("a picture of a memory needs at least one payload, and was given none")
    ordered = sorted(payloads, key=lambda payload: payload.site != "write")
    panels = [panel for payload in ordered for panel in _panels(payload)]
    columns = min(_ACROSS, len(panels))
    rows = ceil(len(panels) / columns)
    width, height = columns * (_WIDE + _GAP) - _GAP, rows * (_TALL + _GAP) - _GAP
    figure = sheet(width, height)
    for place, (title, numbers, down, across) in enumerate(panels):
        left = place % columns * (_WIDE + _GAP)
        bottom = height - place // columns * (_TALL + _GAP) - _TALL
        axes = figure.add_axes((left / width, bottom / height, _WIDE / width, _TALL / height))
        axes.imshow(
            numbers, cmap=SHADES, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest"
        )
        axes.spines[:].set(color=GREY, linewidth=0.5)
        text = heading(title)
        axes.set_title(text, fontproperties=font_for([text], 10.0), color=INK, parse_math=False)
        for axis, labels, turned in ((axes.xaxis, across, 90), (axes.yaxis, down, 0)):
            every = ceil(len(labels) / _LABELS)
            texts = printable(labels[::every])
            axis.set_ticks(
                range(0, len(labels), every),
                texts,
                fontproperties=font_for(texts, 7.5),
                rotation=turned,
                color=SOFT,
                parse_math=False,
            )
        axes.tick_params(length=0)
        axes.set_ylabel(_name(down), fontsize=8, color=SOFT)
    return figure


def _name(axis: Axis) -> str:
    return "slot" if isinstance(axis, Slots) else ""


def _panels(payload: Payload) -> list[Panel]:
    """Steps go across, whatever attends to them goes down; slots by slots stay as they are."""
    both = isinstance(payload.queries, Slots)
    shown = payload if both else payload.transpose()
    several = len(shown.weights) > 1
    return [
        (
            f"{payload.site}, head {head}" if several else payload.site,
            np.asarray(shown.weights[place]),
            shown.queries,
            shown.keys,
        )
        for place, head in enumerate(shown.heads or range(len(shown.weights)))
    ]
