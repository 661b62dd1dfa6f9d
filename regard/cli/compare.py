"""regard compare: parts of a recipe changed, all else the same, over several seeds."""

import json
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import ChangesOption, DataOption

if TYPE_CHECKING:
    from regard.experiments.compare import ComparisonRow, ComparisonTable


def compare(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe or a TOML file.")],
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="PART.KEY=VALUE,VALUE,...",
            help="What changes; the first value is what the others are measured by. An empty value "
            "leaves the key out. Several keys: every value with every other.",
        ),
    ],
    metric: Annotated[
        str | None,
        typer.Option(
            help="What is compared, such as accuracy or test.accuracy; else that of the recipe's "
            "figure, or the one in train.monitor."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each value.")] = 5,
    changes: ChangesOption = None,
    data: DataOption = None,
    name: Annotated[
        str | None, typer.Option(help="The comparison's folder in --runs; else compare-RECIPE.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="The folder in which runs are kept.")] = Path("runs"),
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time; else one for every two cores.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Draw quality by cost: .png, .svg, .pdf.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a value.")] = False,
) -> None:
    """Train every value with every seed (or go on), and say which differs by more than chance."""
    from regard.experiments.compare import (
        Comparison,
        comparison_folder,
        parse_vary,
        run_comparison,
    )
    from regard.runs.places import find_data
    from regard.runs.recipe import read_recipe

    comparison = Comparison(
        recipe=recipe,
        vary=parse_vary(vary),
        seeds=seeds,
        changes=tuple(changes or ()),
        metric=metric,
    )

    def progress(line: str) -> None:
        typer.echo(line, err=True)

    folder = comparison_folder(recipe, comparison.vary, runs, name)
    _, place = find_data(read_recipe(recipe, changes or ()), data)
    table = run_comparison(comparison, folder, place, workers=workers, progress=progress)
    if as_json:
        for row in table.rows:
            typer.echo(json.dumps(_described(table, row)))
    else:
        _shown(table)
    if output is not None:
        _drawn(table, output)
        typer.echo(f"{output}: {table.split} {table.metric} by seconds of training")


def _shown(table: "ComparisonTable") -> None:
    """The table for people."""
    from rich.console import Console
    from rich.table import Table as Lines

    way = "lower is better" if table.better == "lower" else "higher is better"
    seeds = table.comparison.seeds
    several = seeds > 1
    lines = Lines(
        *table.comparison.vary,
        f"{table.split} {table.metric}",
        *(("95 % interval", "p") if several else ()),
        "parameters",
        "seconds",
        "MB",
        title=f"{table.comparison.recipe}, {seeds} seed{'s' * several}; {way}",
    )
    for row in table.rows:
        sure = row.metric
        lines.add_row(
            *(value or "(none)" for value in row.values),
            f"{sure.mean:.4f}",
            *((f"{sure.low:.4f} to {sure.high:.4f}", _chance(row)) if several else ()),
            f"{row.parameters:,}",
            f"{row.seconds:.1f}",
            f"{row.memory / 1e6:.0f}",
            style="bold" if several and row is table.best else None,
        )
    Console().print(lines)


def _chance(row: "ComparisonRow") -> str:
    """How likely the difference from the first value is by chance."""
    if row.p is None:
        return "the first"
    return "" if isnan(row.p) else f"{row.p:.3f}"


def _described(table: "ComparisonTable", row: "ComparisonRow") -> dict[str, object]:
    """A row as an object; what is not known is null."""
    sure = row.metric
    return {
        **dict(zip(table.comparison.vary, row.values, strict=True)),
        "metric": table.metric,
        "split": table.split,
        "mean": sure.mean,
        "low": None if isnan(sure.low) else sure.low,
        "high": None if isnan(sure.high) else sure.high,
        "p": None if row.p is None or isnan(row.p) else row.p,
        "values": [run.metric for run in row.runs],
        "parameters": row.parameters,
        "seconds": row.seconds,
        "peak_bytes": row.memory,
    }


def _drawn(table: "ComparisonTable", path: Path) -> None:
    """Quality by cost."""
    from regard.look import tradeoff

    points = {
        row.name: (row.seconds, row.metric.mean, row.metric.low, row.metric.high)
        for row in table.rows
    }
    tradeoff(points, path, cost="seconds of training", quality=f"{table.split} {table.metric}")
