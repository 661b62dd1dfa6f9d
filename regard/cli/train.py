"""regard train: train a model from a recipe.

regard resume: go on with a training that was stopped.
"""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    ChangesOption,
    DataOption,
    DeviceOption,
    RunArgument,
    TestOption,
    ValidationOption,
)

if TYPE_CHECKING:
    from regard.runs.run import Run


def train_recipe(
    recipe: Annotated[
        list[str],
        typer.Argument(
            help="A shipped recipe (see regard zoo) or a TOML file; with --task, the training data."
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(help="Train without a recipe: classify, tag, translate, language_model, ..."),
    ] = None,
    validation: ValidationOption = None,
    test: TestOption = None,
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
    from regard.data.text.table import base_name
    from regard.runs.draft import draft_recipe
    from regard.runs.places import find_data
    from regard.runs.recipe import parse_recipe, read_recipe
    from regard.runs.run import create
    from regard.train.parallel.world import process_group

    if task is None:
        chosen = read_recipe(
            _one_recipe(recipe, [*(validation or ()), *(test or ())]), changes or []
        )
        called = Path(recipe[0]).stem
    else:
        files = {"validation": validation or (), "test": test or ()}
        text = draft_recipe(task, recipe, **files, changes=changes or (), absolute=True)
        chosen = parse_recipe(text, f"--task {task}")
        first = base_name(recipe[0])
        called = task if first == "train" else f"{first}-{task}"
    folder = runs / (name or called)
    with process_group(device_of_rank(device)) as world:
        chosen, place = find_data(chosen, data)
        run = create(chosen, folder, place, device, overwrite=overwrite)
        for note in run.began if world.is_main else ():
            typer.echo(note)
        finish(run)


def _one_recipe(given: Sequence[str], files: Sequence[str]) -> str:
    """The single recipe of a command line without --task."""
    from regard.core.errors import UserError

    if len(given) == 1 and not files:
        return given[0]
    raise UserError(
        "without --task, give one recipe and no files; its data are in its [data] table"
        if not files
        else "--validation and --test are for --task; in a recipe, set data.validation, data.test"
    )


def finish(run: "Run") -> None:
    """Train to the end, and say what came of it."""
    from regard.core.errors import command
    from regard.train.parallel.world import process_group

    result = run.train()
    with process_group(next(run.model.parameters()).device) as world:
        if not world.is_main:
            return
    if result.outcome == "interrupted":
        typer.echo(f"saved at update {result.update}; go on with: {command('resume', run.folder)}")
        raise typer.Exit(130)
    typer.echo(f"{result.outcome} after {result.update} updates, {result.seconds / 60:.1f} minutes")
    typer.echo((run.folder / "metrics.json").read_text(encoding="utf-8").rstrip())
    typer.echo(f"in {run.folder}; try: {run.task.usage.format(run=quote(str(run.folder)))}")


def resume(
    run: RunArgument,
    changes: ChangesOption = None,
    data: DataOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Go on from the last checkpoint, to the same bits as if it had never stopped.

    A finished training goes on for longer with --set train.epochs=20.
    """
    from regard.core.device import device_of_rank
    from regard.runs.resume import with_changes
    from regard.runs.run import open_run
    from regard.train.parallel.world import process_group

    with process_group(device_of_rank(device)):
        finish(with_changes(open_run(run, data, device), changes or []))
