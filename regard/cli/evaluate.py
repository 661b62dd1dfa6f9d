"""regard eval: measure a trained model."""

import json
from dataclasses import replace
from typing import Annotated

import typer

from regard.cli.options import DataOption, DeviceOption, RunArgument, WeightsOption, WorkersOption


def evaluate_run(
    run: RunArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files like those it was trained on; for translation source and target. "
            "Without files, a split of its own data."
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="train, validation or test; else the last of them that there is.")
    ] = "",
    data: DataOption = None,
    workers: WorkersOption = None,
    weights: WeightsOption = "float32",
    device: DeviceOption = "auto",
) -> None:
    """Measure a model on files, or on one of its splits; prints JSON, a line for each file."""
    from regard.core.errors import UserError, choose
    from regard.runs.run import load

    opened = load(run, device, data, weights)
    if files and split:
        raise UserError(f"give files or --split {split}, not both")
    for name, task in opened.task.on_files(files or []):
        measured = replace(opened, task=task).evaluate("test", workers)
        typer.echo(json.dumps({"run": str(run), "file": name, **measured}))
    if files:
        return
    splits = {str(each): each for each in opened.task.splits}
    chosen = choose("split", split or list(splits)[-1], splits)
    typer.echo(json.dumps({"run": str(run), "split": chosen, **opened.evaluate(chosen, workers)}))
