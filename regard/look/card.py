"""Cards for notebooks: a title, a table of figures and the curve of a training, as HTML.

>>> card("A run", [("accuracy", "0.91")], {}).count("<td>")
2
"""

from collections.abc import Mapping, Sequence
from html import escape

_Points = Sequence[tuple[int, float]]

_WIDTH, _HEIGHT, _EDGE = 420, 150, 34
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Of lines; they differ for the colour-blind too."""

_CARD = (
    '<div style="font-family:system-ui,sans-serif;border:1px solid #8884;border-radius:10px;'
    'padding:0.8em 1.2em;max-width:46em"><b>{title}</b>{table}{chart}</div>'
)


def card(
    title: str, rows: Sequence[tuple[str, str]], curves: Mapping[str, _Points], note: str = ""
) -> str:
    """A card; what is in it is escaped."""
    cells = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in rows
    )
    table = f'<table style="margin:0.4em 0">{cells}</table>' if rows else ""
    below = f"<p>{escape(note)}</p>" if note else ""
    return _CARD.format(title=escape(title), table=table + below, chart=chart(curves))


def chart(curves: Mapping[str, _Points]) -> str:
    """Curves over updates as an SVG; nothing if none has two points."""
    drawn = {name: points for name, points in curves.items() if len(points) > 1}
    if not drawn:
        return ""
    every = [point for points in drawn.values() for point in points]
    first, last = min(x for x, _ in every), max(x for x, _ in every)
    low, high = min(y for _, y in every), max(y for _, y in every)
    across = (_WIDTH - 2 * _EDGE) / max(last - first, 1)
    up = (_HEIGHT - 2 * _EDGE) / ((high - low) or 1.0)

    def place(x: int, y: float) -> str:
        return f"{_EDGE + (x - first) * across:.1f},{_HEIGHT - _EDGE - (y - low) * up:.1f}"

    parts = []
    for number, (name, points) in enumerate(drawn.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(place(x, y) for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        left = _EDGE + number * (_WIDTH - 2 * _EDGE) / len(drawn)
        parts.append(f'<text x="{left:.0f}" y="16" fill="{colour}">{escape(name)}</text>')
    parts += [
        f'<text x="{_EDGE}" y="{_HEIGHT - 12}" fill="currentColor">update {first}</text>',
        f'<text x="{_WIDTH - _EDGE}" y="{_HEIGHT - 12}" fill="currentColor" text-anchor="end">'
        f"{last}</text>",
        f'<text x="2" y="{_HEIGHT - _EDGE}" fill="currentColor">{low:.3g}</text>',
        f'<text x="2" y="{_EDGE + 4}" fill="currentColor">{high:.3g}</text>',
    ]
    return (
        f'<svg role="img" aria-label="the curve of the training" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" style="max-width:100%;font:11px system-ui,sans-serif">'
        + "".join(parts)
        + "</svg>"
    )
