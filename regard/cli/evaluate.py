"""regard eval: measure a trained model."""

import json
from typing import Annotated, Literal

import typer

from regard.cli.options import Data, Device, Run


def evaluate(
    run: Run,
    split: Annotated[
        str, typer.Option(help="train, validation or test; else test if there is one.")
    ] = "",
    data: Data = None,
    device: Device = "auto",
) -> None:
    """Measure a model on one of its splits; prints JSON."""
    from regard.core.errors import unknown
    from regard.run import load

    opened = load(run, device, data)
    names: dict[str, Literal["train", "validation", "test"]] = {
        "train": "train",
        "validation": "validation",
        "test": "test",
    }
    chosen = split or ("test" if opened.recipe.data.test else "validation")
    if chosen not in names:
        raise unknown("split", chosen, names)
    figures = opened.evaluate(names[chosen])
    typer.echo(json.dumps({"run": str(run), "split": chosen, **figures}))
