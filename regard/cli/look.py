"""regard look: a picture of where a model looks."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Device, Heads, Run, Site


def look(
    run: Run,
    text: Annotated[str, typer.Argument(help="What the model is to read or translate.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture: .png, .svg, .pdf or .html.")
    ] = Path("attention.png"),
    site: Site = None,
    heads: Heads = None,
    device: Device = "auto",
) -> None:
    """Draw attention: one matrix for one head, else all heads of all layers side by side."""
    from regard.look import draw
    from regard.run import load

    found = load(run, device).look(text, site, heads or None)
    draw(found, output, title=text)
    typer.echo(f"{output}: {', '.join(each.site for each in found)}")
