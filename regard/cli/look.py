"""regard look: a picture of where a model looks, or the page of all of it."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Device, Heads, Run, Site


def look(
    run: Run,
    text: Annotated[str, typer.Argument(help="What the model is to read or translate.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="A page, .html, or a picture: .png, .svg, .pdf."),
    ] = Path("attention.html"),
    view: Annotated[
        str | None,
        typer.Option(help="matrix, heads, links, text or rollout; else what fits best."),
    ] = None,
    site: Site = None,
    heads: Heads = None,
    device: Device = "auto",
) -> None:
    """Show attention: a page to look around in, or one picture of it."""
    from regard.look import draw
    from regard.run import load

    found = load(run, device).look(text, site, heads or None)
    draw(found, output, title=text, view=view)
    typer.echo(f"{output}: {', '.join(each.site for each in found)}")
