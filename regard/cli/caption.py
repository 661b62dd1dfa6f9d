"""regard caption: sentences about images, and where each word attends on them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import DeviceOption, RunArgument

_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")


def caption_images(
    run: RunArgument,
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Images, or folders of them; - or none reads paths from stdin."),
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Width of the beam; 1 is greedy.")] = None,
    nbest: Annotated[int, typer.Option(help="So many captions of each image.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object an image.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A picture or page of the maps of one image."),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Describe images: a name, a tab and a caption a line. -o maps.png shows where words attend."""
    from dataclasses import replace

    from regard.core.errors import UserError
    from regard.inference.pictures import view_run
    from regard.runs.run import load
    from regard.tasks.abilities import Translates, unsupported

    paths = list(_paths(images or ["-"]))
    if output is not None and len(paths) != 1:
        raise UserError(f"-o draws the maps of one image; {len(paths)} were given")
    opened = load(run, device)
    task = opened.task
    if not isinstance(task, Translates):
        raise unsupported(run, opened.recipe.task, "captions")
    usual = task.beam
    width = max(nbest, usual.width) if beam is None else beam
    search = replace(usual, width=width, n_best=nbest)
    wrong = 0
    for path in paths:
        try:
            given = task.parse(path, path)
        except UserError as problem:
            typer.echo(f"regard: {problem}", err=True)
            wrong += 1
            continue
        (found,) = task.translate(opened.model, [given], beam=search)
        if as_json:
            rows = [
                {"text": each.text, "score": round(each.hypothesis.score, 6)}
                for each in found.outputs
            ]
            typer.echo(json.dumps({"image": path, "captions": rows}, ensure_ascii=False))
        else:
            for each in found.outputs:
                typer.echo(f"{path}\t{each.text}")
        sys.stdout.flush()
    if output is not None and not wrong:
        drawn, what = view_run(run, paths[0], None, output, device=device)
        typer.echo(f"{drawn}: {what}", err=True)
    if wrong:
        raise typer.Exit(1)


def _paths(given: list[str]) -> Iterator[str]:
    """Every image of some arguments: files, the images of folders, lines of stdin."""
    for each in given:
        if each == "-":
            yield from (line.strip() for line in sys.stdin if line.strip())
        elif Path(each).is_dir():
            files = sorted(file for file in Path(each).iterdir() if file.is_file())
            yield from (str(file) for file in files if file.suffix.lower() in _SUFFIXES)
        else:
            yield each
