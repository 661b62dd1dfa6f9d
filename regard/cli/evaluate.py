"""regard eval: measure a trained model."""

import json
from typing import Annotated

import typer

from regard.cli.options import DataOption, DeviceOption, RunArgument, WeightsOption, WorkersOption


def evaluate_run(
    run: RunArgument,
    split: Annotated[
        str, typer.Option(help="train, validation or test; else the last of them that there is.")
    ] = "",
    data: DataOption = None,
    workers: WorkersOption = None,
    weights: WeightsOption = "float32",
    device: DeviceOption = "auto",
) -> None:
    """Measure a model on one of its splits; prints JSON."""
    from regard.core.errors import choose
    from regard.runs.run import load

    opened = load(run, device, data, weights)
    splits = {str(each): each for each in opened.task.splits}
    chosen = choose("split", split or list(splits)[-1], splits)
    typer.echo(json.dumps({"run": str(run), "split": chosen, **opened.evaluate(chosen, workers)}))
