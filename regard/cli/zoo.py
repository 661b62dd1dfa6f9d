"""regard zoo: every model, and every recipe that comes with the package."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.runs.recipe import Recipe


def zoo(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table of the README.")] = False,
) -> None:
    """List every model: what it is, its recipes, what they reach, their parameters and minutes."""
    from rich.console import Console
    from rich.table import Table

    from regard.models import MODELS
    from regard.runs.recipe import parse_recipe, shipped_recipes

    recipes = {name: parse_recipe(text, name) for name, text in shipped_recipes().items()}
    unused = [kind for kind in MODELS if kind not in {each.kind for each in recipes.values()}]
    if as_json:
        for name, recipe in recipes.items():
            typer.echo(json.dumps({"recipe": name, **_described(recipe)}))
        for kind in unused:
            typer.echo(json.dumps({"recipe": None, "model": kind, "paper": _headline(kind)}))
        return
    rows = [
        (recipe.kind, _headline(recipe.kind), name, _promised(recipe), *_size(recipe))
        for name, recipe in recipes.items()
    ]
    rows += [(kind, _headline(kind), "", "", "", "") for kind in unused]
    rows.sort(key=lambda row: (list(MODELS).index(row[0]), row[2]))
    heads = ("model", "after", "recipe", "to reach", "parameters", "minutes")
    if markdown:
        for row in (heads, ("---",) * len(heads), *rows):
            typer.echo(f"| {' | '.join(row)} |")
        return
    shown = Table(*heads)
    for row in rows:
        shown.add_row(*row)
    Console().print(shown)


def _headline(kind: str) -> str:
    """The first line of a model's file."""
    from regard.models import MODELS

    text = sys.modules[MODELS[kind].__module__].__doc__ or ""
    return text.strip().split("\n")[0].rstrip(".")


def _described(recipe: "Recipe") -> dict[str, object]:
    """A recipe as an object."""
    figure = recipe.figure.model_dump() if recipe.figure else None
    return {"model": recipe.kind, **recipe.about.model_dump(), "figure": figure}


def _promised(recipe: "Recipe") -> str:
    """What a recipe promises to reach."""
    figure = recipe.figure
    return f"{figure.split} {figure.metric} {figure.reach:g}" if figure else ""


def _size(recipe: "Recipe") -> tuple[str, str]:
    """How large it is, and how long it takes."""
    about = recipe.about
    count = "" if about.parameters is None else f"{about.parameters:,}"
    return count, "" if about.minutes is None else f"{about.minutes:g}"
