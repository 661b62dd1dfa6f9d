"""regard reproduce: run a recipe whole and compare with the figure it promises."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import ChangesOption, DataOption, DeviceOption
from regard.cli.train import finish

if TYPE_CHECKING:
    from regard.runs.recipe import Figure, Recipe


def reproduce(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe that promises a figure.")],
    changes: ChangesOption = None,
    data: DataOption = None,
    seed: Annotated[
        int | None, typer.Option(help="Another seed; the run is then called NAME-seedN.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name; else the recipe's.")] = None,
    runs: Annotated[Path, typer.Option(help="The folder in which runs are kept.")] = Path("runs"),
    record: Annotated[
        Path | None, typer.Option(help="Add what was measured to FOLDER/RECIPE.json.")
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Train (or go on training) and compare. Exit code 1 if the figure was missed."""
    from regard.core.errors import UserError, command
    from regard.experiments.results import record_result
    from regard.runs.recipe import read_recipe, shipped_recipes

    given, suffix = _with_seed(recipe, changes or [], seed)
    figure = read_recipe(recipe, given).figure
    if figure is None:
        raise UserError(f"{recipe} promises no figure; train it with {command('train', recipe)}")
    if record is not None and recipe not in shipped_recipes():
        raise UserError(f"--record keeps results of shipped recipes (see regard zoo), not {recipe}")
    folder = runs / (name or Path(recipe).stem + suffix)
    parts = [(change, folder / change.split("=")[1]) for change in figure.changes]
    values = []
    for change, place in parts:
        values.append(_reproduced(recipe, [*given, change], place, data, device))
        typer.echo(f"{recipe} {change}: {figure.split} {figure.metric} {values[-1]:.4f}")
    value = figure.joined(values or [_reproduced(recipe, given, folder, data, device)])
    typer.echo(f"{recipe}: {_compared(figure, value)}")
    if record is not None:
        typer.echo(f"recorded in {record_result(recipe, given, folder, record, parts)}")
    if not figure.is_reached(value):
        raise typer.Exit(1)


def _reproduced(
    recipe: str, changes: list[str], folder: Path, data: Path | None, device: str
) -> float:
    """The figure of one run, which is trained if it is not yet."""
    from regard.runs.places import find_data
    from regard.runs.recipe import read_recipe
    from regard.runs.run import create, open_run

    chosen = read_recipe(recipe, changes)
    assert chosen.figure is not None
    started = (folder / "recipe.toml").exists()
    if started:
        _refuse_another(chosen, folder)
    if not (folder / "metrics.json").exists():
        if started:
            run = open_run(folder, data, device)
        else:
            placed, place = find_data(chosen, data)
            run = create(placed, folder, place, device)
        finish(run)
    return _measured(chosen.figure, folder)


def _with_seed(recipe: str, changes: list[str], seed: int | None) -> tuple[list[str], str]:
    """The changes with a seed, and what it adds to the name of the run."""
    from regard.runs.recipe import read_recipe

    if seed is None or seed == read_recipe(recipe, changes).train.seed:
        return changes, ""
    return [*changes, f"train.seed={seed}"], f"-seed{seed}"


def _compared(figure: "Figure", value: float) -> str:
    """A value beside what it has to reach; only a published figure is called published."""
    goal = f"published {figure.value:g}" if figure.published else "own goal"
    after = ", set after a run" if figure.set_after_run else ""
    reached = "reached" if figure.is_reached(value) else "MISSED"
    return (
        f"{figure.split} {figure.metric} {value:.4f}; to reach {figure.reach:g}{after}; "
        f"{goal} ({figure.source}): {reached}"
    )


def _refuse_another(recipe: "Recipe", folder: Path) -> None:
    """A run of another recipe says nothing of this one."""
    from regard.core.errors import UserError
    from regard.core.folder import RECIPE_BYTES, read_text
    from regard.runs.recipe import differences, parse_recipe

    path = folder / "recipe.toml"
    ours = parse_recipe(read_text(path, RECIPE_BYTES), str(path), trusted=False)
    if differ := differences(recipe, ours):
        raise UserError(
            f"{folder}: there is a run of another recipe: {'; '.join(differ)}; "
            "choose another --name"
        )


def _measured(figure: "Figure", folder: Path) -> float:
    """The figure as a run has measured it."""
    from regard.core.errors import UserError, choose
    from regard.core.folder import read_json_object

    path = folder / "metrics.json"
    figures = read_json_object(path).get(figure.split)
    if not isinstance(figures, dict):
        raise UserError(f"{path}: nothing was measured on {figure.split}; choose another --name")
    return float(choose("metric of figure", figure.metric, figures))
