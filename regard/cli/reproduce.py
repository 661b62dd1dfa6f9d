"""regard reproduce: run a recipe whole and compare with the figure it promises."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import ChangesOption, DataOption, DeviceOption
from regard.cli.train import finish

if TYPE_CHECKING:
    from regard.runs.recipe import Figure, Recipe
    from regard.runs.run import Run


def reproduce(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe that promises a figure.")],
    changes: ChangesOption = None,
    data: DataOption = None,
    name: Annotated[str | None, typer.Option(help="The run's name; else the recipe's.")] = None,
    runs: Annotated[Path, typer.Option(help="The folder in which runs are kept.")] = Path("runs"),
    device: DeviceOption = "auto",
) -> None:
    """Train (or go on training) and compare. Exit code 1 if the figure was missed."""
    from regard.core.errors import UserError
    from regard.runs.recipe import read_recipe
    from regard.runs.run import create, data_folder, open_run

    chosen = read_recipe(recipe, changes or [])
    if chosen.figure is None:
        raise UserError(f"{recipe} promises no figure; train it with regard train {recipe}")
    folder = runs / (name or Path(recipe).stem)
    started = (folder / "recipe.toml").exists()
    if started:
        _refuse_another(chosen, folder)
    if not (folder / "metrics.json").exists():
        place = data_folder(data)
        run = open_run(folder, data, device) if started else create(chosen, folder, place, device)
        check_figure(chosen.figure, run)
        finish(run)
    figure, value = chosen.figure, _measured(chosen.figure, folder)
    reached = figure.is_reached(value)
    typer.echo(
        f"{recipe}: {figure.split} {figure.metric} {value:.4f}; to reach {figure.reach}; "
        f"published {figure.value} ({figure.source}): {'reached' if reached else 'MISSED'}"
    )
    if not reached:
        raise typer.Exit(1)


def _refuse_another(recipe: "Recipe", folder: Path) -> None:
    """A run of another recipe says nothing of this one."""
    from regard.core.errors import UserError
    from regard.runs.recipe import differences, parse_recipe
    from regard.runs.run import read_text

    path = folder / "recipe.toml"
    if differ := differences(recipe, parse_recipe(read_text(path), str(path), trusted=False)):
        raise UserError(
            f"{folder}: there is a run of another recipe: {'; '.join(differ)}; "
            "choose another --name"
        )


def check_figure(figure: "Figure", run: "Run") -> None:
    """Refuse a figure that will not be measured, as far as that can be told before training."""
    import torch

    from regard.core.errors import choose
    from regard.tasks.task import OpenTask
    from regard.train.evaluate import FirstBatch

    choose("split of figure", figure.split, dict.fromkeys(run.task.splits))
    if type(run.task).score is not OpenTask.score:
        return  # has metrics of whole predictions, which a model without training takes long for
    with torch.random.fork_rng(devices=[]):
        figures = run.measured(FirstBatch(run.task.evaluation(figure.split)))
    choose("metric of figure", figure.metric, figures)


def _measured(figure: "Figure", folder: Path) -> float:
    """The figure as a run has measured it."""
    from regard.core.errors import UserError, choose
    from regard.runs.run import read_json_file

    path = folder / "metrics.json"
    figures = read_json_file(path).get(figure.split)
    if not isinstance(figures, dict):
        raise UserError(f"{path}: nothing was measured on {figure.split}; choose another --name")
    return float(choose("metric of figure", figure.metric, figures))
