"""regard zoo: every recipe that comes with the package."""

import json
from typing import Annotated

import typer


def zoo(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List every recipe: its model, paper, figure and time."""
    from rich.console import Console
    from rich.table import Table

    from regard.recipe import parsed, shipped

    recipes = {name: parsed(text, name) for name, text in shipped().items()}
    if as_json:
        for name, recipe in recipes.items():
            figure = recipe.figure.model_dump() if recipe.figure else None
            about = recipe.about.model_dump()
            typer.echo(
                json.dumps({"recipe": name, "model": recipe.kind, **about, "figure": figure})
            )
        return
    shown = Table("recipe", "model", "after", "promises", "minutes")
    for name, recipe in recipes.items():
        promise = recipe.figure
        goal = f"{promise.split} {promise.metric} {promise.reach:g}" if promise else ""
        shown.add_row(name, recipe.kind, recipe.about.paper, goal, f"{recipe.about.minutes:g}")
    Console().print(shown)
