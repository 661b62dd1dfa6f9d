"""regard reproduce: run a recipe whole and compare with the figure it promises."""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Changes, Data, Device
from regard.cli.train import finish


def reproduce(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe that promises a figure.")],
    changes: Changes = None,
    data: Data = None,
    runs: Annotated[Path, typer.Option(help="The folder in which runs are kept.")] = Path("runs"),
    device: Device = "auto",
) -> None:
    """Train (or go on training) and compare. Exit code 1 if the figure was missed."""
    from regard.core.errors import UserError
    from regard.recipe import read
    from regard.run import create, data_folder, open_run

    chosen = read(recipe, changes or [])
    if chosen.figure is None:
        raise UserError(f"{recipe} promises no figure; train it with regard train {recipe}")
    folder = runs / Path(recipe).stem
    if not (folder / "metrics.json").exists():
        started = (folder / "recipe.toml").exists()
        place = data_folder(data)
        finish(open_run(folder, data, device) if started else create(chosen, folder, place, device))
    figure = chosen.figure
    measured = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    value = measured[figure.split][figure.metric]
    reached = figure.reached(value)
    typer.echo(
        f"{recipe}: {figure.split} {figure.metric} {value:.4f}; to reach {figure.reach}; "
        f"published {figure.value} ({figure.source}): {'reached' if reached else 'MISSED'}"
    )
    if not reached:
        raise typer.Exit(1)
