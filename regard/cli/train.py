"""regard train: train a model from a recipe.

regard resume: go on with a training that was stopped.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import ChangesOption, DataOption, DeviceOption

if TYPE_CHECKING:
    from regard.runs.run import Run
from regard.cli.options import RunArgument


def train_recipe(
    recipe: Annotated[
        str, typer.Argument(help="A shipped recipe (see regard zoo) or a TOML file.")
    ],
    changes: ChangesOption = None,
    data: DataOption = None,
    name: Annotated[str | None, typer.Option(help="The run's name; else the recipe's.")] = None,
    runs: Annotated[Path, typer.Option(help="The folder in which runs are kept.")] = Path("runs"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run of that name, if there is one.")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Train a model; leaves everything in runs/NAME. Ctrl-C saves and says how to go on."""
    from regard.core.device import device_of_rank
    from regard.runs.recipe import read_recipe
    from regard.runs.run import create, data_folder
    from regard.train.parallel.world import process_group

    chosen = read_recipe(recipe, changes or [])
    folder = runs / (name or Path(recipe).stem)
    with process_group(device_of_rank(device)) as world:
        run = create(chosen, folder, data_folder(data), device, overwrite=overwrite)
        for note in run.began if world.is_main else ():
            typer.echo(note)
        finish(run)


def finish(run: "Run") -> None:
    """Train to the end, and say what came of it."""
    from regard.train.parallel.world import process_group

    result = run.train()
    with process_group(next(run.model.parameters()).device) as world:
        if not world.is_main:
            return
    if result.outcome == "interrupted":
        typer.echo(f"saved at update {result.update}; go on with: regard resume {run.folder}")
        raise typer.Exit(130)
    typer.echo(f"{result.outcome} after {result.update} updates, {result.seconds / 60:.1f} minutes")
    typer.echo((run.folder / "metrics.json").read_text(encoding="utf-8").rstrip())
    typer.echo(f"in {run.folder}; try: {run.task.usage.format(run=run.folder)}")


def resume(run: RunArgument, data: DataOption = None, device: DeviceOption = "auto") -> None:
    """Go on from the last checkpoint, to the same bits as if it had never stopped."""
    from regard.core.device import device_of_rank
    from regard.runs.run import open_run
    from regard.train.parallel.world import process_group

    with process_group(device_of_rank(device)):
        finish(open_run(run, data, device))
