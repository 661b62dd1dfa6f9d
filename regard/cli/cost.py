"""regard cost: what self-attention, recurrence and convolution take as texts grow."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption

if TYPE_CHECKING:
    from regard.experiments.cost import Cost


def cost(
    recipe: Annotated[
        str, typer.Argument(help="A shipped recipe or a TOML file, for its width and heads.")
    ],
    lengths: Annotated[
        str, typer.Option(help="Positions: 32..4096, doubling, or 32,100,500.")
    ] = "32..4096",
    width: Annotated[int | None, typer.Option(help="Another width than the recipe's.")] = None,
    heads: Annotated[int | None, typer.Option(help="Another number of heads.")] = None,
    kernel: Annotated[int, typer.Option(help="Positions that a convolution sees.")] = 3,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Draw the curves: .png, .svg, .pdf.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Count multiplications, steps and paths, and measure time and memory, at each length."""
    from regard.core.device import pick_device
    from regard.core.errors import UserError
    from regard.experiments.cost import measure_costs, parse_lengths
    from regard.runs.recipe import read_recipe

    model = read_recipe(recipe).model.model_dump()
    chosen = width or model.get("width")
    if not isinstance(chosen, int):
        raise UserError(f"{recipe} says no width; give one with --width")
    several = heads or model.get("heads") or 1
    found = measure_costs(
        chosen,
        parse_lengths(lengths),
        heads=int(several),
        kernel=kernel,
        device=pick_device(device),
        progress=lambda line: typer.echo(line, err=True),
    )
    if as_json:
        for each in found:
            typer.echo(json.dumps(asdict(each)))
    else:
        _shown(found, chosen)
    if output is not None:
        _drawn(found, output)
        typer.echo(f"{output}: multiplications, time and memory by length")


def _shown(found: "list[Cost]", width: int) -> None:
    """The table for people, and the crossings below it."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    heads = ("length", "layer", "table", "products", "steps", "path")
    names = (*heads, "weights", "MB", "ms")
    table = Table(box=SIMPLE, title=f"Layers of width {width}", padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(name, no_wrap=True, justify="left" if name in _TEXTS else "right")
    for each in found:
        table.add_row(
            f"{each.length:,}",
            each.layer,
            each.formula,
            f"{each.multiplications / 1e6:,.2f} M",
            f"{each.steps:,}",
            f"{each.path:,}",
            f"{each.parameters:,}",
            f"{each.saved_bytes / 1e6:.2f}",
            f"{each.milliseconds:.2f}",
        )
    console = Console()
    console.print(table)
    for title, every in _crossings(found).items():
        for where, what in every:
            console.print(f"{title}: self-attention costs more than {what} from {where:.0f} on")
    console.print(
        "Products are multiplications of the layer's core, in millions. MB are kept of the whole "
        "layer for its backward pass; ms are forward and backward with a batch of one."
    )


_TEXTS = ("layer", "table")
"""Columns that are no numbers."""

_MEASURES = {
    "multiplications": "multiplications",
    "milliseconds": "milliseconds",
    "bytes saved for the backward pass": "saved_bytes",
}
"""What is drawn, by title."""


def _crossings(found: "list[Cost]") -> dict[str, list[tuple[float, str]]]:
    """Where self-attention begins to cost more than the others."""
    from regard.experiments.cost import crossing_length

    names = list(dict.fromkeys(each.layer for each in found))
    marked: dict[str, list[tuple[float, str]]] = {}
    for title, of in _MEASURES.items():
        for other in names[1:]:
            where = crossing_length(found, names[0], other, of)
            if where is not None:
                marked.setdefault(title, []).append((where, other))
    return marked


def _drawn(found: "list[Cost]", path: Path) -> None:
    """Three panels: counted, timed, kept."""
    from regard.look import growth

    names = list(dict.fromkeys(each.layer for each in found))
    panels = {
        title: {
            name: [
                (float(each.length), float(getattr(each, of)))
                for each in found
                if each.layer == name
            ]
            for name in names
        }
        for title, of in _MEASURES.items()
    }
    growth(panels, path, crossings=_crossings(found))
