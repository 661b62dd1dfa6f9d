"""regard quantise: what rounded weights cost in accuracy."""

import json
from typing import Annotated

import typer

from regard.cli.options import DataOption, RunArgument


def quantise(
    run: RunArgument,
    weights: Annotated[
        list[str] | None, typer.Option(help="int8 or int8_weights; else both, one after another.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="train, validation or test; else the last of them that there is.")
    ] = "",
    data: DataOption = None,
) -> None:
    """Measure a run with its weights in float32 and rounded; prints JSON, a line for each.

    Nothing is written: say `--weights int8` to generate, translate, predict, serve or eval.
    """
    from regard.core.errors import choose
    from regard.layers.quantise import WEIGHTS
    from regard.runs.run import load

    rounded = weights or [name for name, kind in WEIGHTS.items() if kind is not None]
    for each in rounded:
        choose("weights", each, WEIGHTS)
    exact: dict[str, float] = {}
    for each in ("float32", *rounded):
        opened = load(run, "cpu", data, each)
        splits = {str(name): name for name in opened.task.splits}
        chosen = choose("split", split or list(splits)[-1], splits)
        figures = opened.evaluate(chosen)
        exact = exact or figures
        change = {name: value - exact[name] for name, value in figures.items()}
        size = sum(t.nbytes for t in opened.model.state_dict().values())
        row = {"weights": each, "split": chosen, "megabytes": round(size / 1e6, 3), **figures}
        typer.echo(json.dumps(row if each == "float32" else {**row, "change": change}))
