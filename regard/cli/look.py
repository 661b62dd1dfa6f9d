"""regard look: a page or a picture of where a model looks, and of what else is to be seen."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import DeviceOption, HeadsOption, RunArgument, SiteOption


def look(
    run: RunArgument,
    text: Annotated[
        str | None, typer.Argument(help="What the model is to read or translate.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A page, .html, or a picture: .png, .svg, .pdf."),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            help="matrix, heads, links, text, input, rollout, memory; reach, positions, curves."
        ),
    ] = None,
    site: SiteOption = None,
    heads: HeadsOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Show attention: a page to look around in, or one picture of it."""
    from regard.inference.pictures import view_run

    path, what = view_run(run, text, view, output, site=site, heads=heads, device=device)
    typer.echo(f"{path}: {what}")
