"""One picture for whatever was seen: a matrix, or a grid of them, in the form that is asked for."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.core.atomic import replacing
from regard.look.payload import Payload
from regard.look.plot import alignment, grid


def draw(payloads: Sequence[Payload], path: Path, *, title: str = "") -> None:
    """A single head is drawn large with its words, several heads side by side.

    An .html file holds the drawing as SVG and nothing from elsewhere.
    """
    if path.suffix.lower() == ".html":
        with TemporaryDirectory() as folder:
            drawing = Path(folder) / "drawing.svg"
            draw(payloads, drawing)
            svg = drawing.read_text(encoding="utf-8")
        with replacing(path) as file:
            file.write(PAGE.format(title=escape(title), drawing=svg[svg.index("<svg") :]).encode())
        return
    heads = sum(len(each.weights) for each in payloads)
    if heads == 1:
        alignment(payloads[0], path)
    else:
        grid(payloads, path)


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
  body {{ font-family: sans-serif; margin: 2em }}
  svg {{ max-width: 100%; height: auto }}
</style>
<h1>{title}</h1>
{drawing}
</html>
"""
