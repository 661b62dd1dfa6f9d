"""regard report: how well a model does, class by class."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Data, Device, Run


def report(
    run: Run,
    split: Annotated[
        str, typer.Option(help="train, validation or test; else the last of them that there is.")
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Draw which class is taken for which: .png, .svg, .pdf."
        ),
    ] = None,
    data: Data = None,
    device: Device = "auto",
) -> None:
    """Precision, recall and F1 of each class or kind of chunk, and a picture of the confusion."""
    from regard.core.errors import UserError, choose
    from regard.look import confusion
    from regard.run import load
    from regard.tasks.classify import Classification
    from regard.tasks.tag import Tagging

    opened = load(run, device, data)
    splits = {str(each): each for each in opened.task.splits}
    chosen = choose("split", split or list(splits)[-1], splits)
    task = opened.task
    if isinstance(task, Tagging):
        typer.echo(task.report(opened.model, chosen).table())
        if output is not None:
            raise UserError("a picture of the confusion is for classification, not for tagging")
        return
    if not isinstance(task, Classification):
        raise UserError(f"{run}: a run of {opened.recipe.task} has no classes")
    counted = task.confusion(opened.model, chosen)
    typer.echo(counted.table())
    if output is not None:
        confusion(counted.labels, counted.counts, output)
        typer.echo(f"{output}: {counted.texts} texts of {chosen}")
