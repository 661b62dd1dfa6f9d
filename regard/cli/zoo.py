"""regard zoo: every model, and every recipe that comes with the package."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.runs.recipe import Recipe


_WIDE = 150
"""From so many columns on, a terminal shows what each model is after, too."""


def zoo(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="Show what has all of these words in its row, such as attention."),
    ] = None,
    task: Annotated[str | None, typer.Option(help="Show the recipes of one task.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table of docs/zoo.md.")] = False,
) -> None:
    """List every model: what it is, its recipes, what they reach, their parameters and minutes.

    A narrow terminal shows the recipes alone.
    """
    from regard.core.errors import choose
    from regard.models import MODELS
    from regard.runs.recipe import parse_recipe, shipped_recipes
    from regard.tasks import TASKS

    recipes = {name: parse_recipe(text, name) for name, text in shipped_recipes().items()}
    unused = [kind for kind in MODELS if kind not in {each.kind for each in recipes.values()}]
    if task is not None:
        choose("task", task, TASKS)
        recipes, unused = {n: each for n, each in recipes.items() if each.task == task}, []
    for word in words or []:
        recipes = {n: each for n, each in recipes.items() if _has_word(word, n, each)}
        unused = [kind for kind in unused if word.lower() in f"{kind} {_headline(kind)}".lower()]
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
    _show(heads, rows, {name: recipe.task for name, recipe in recipes.items()})


def _show(heads: Sequence[str], rows: Sequence[tuple[str, ...]], tasks: Mapping[str, str]) -> None:
    """The table, as wide as the terminal is; elsewhere whole."""
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=_WIDE + 50)
    if console.width < _WIDE:
        heads = ("recipe", "task", "to reach", "min.")
        rows = [(name, tasks[name], due, time) for _, _, name, due, _, time in rows if name]
        rows = sorted(rows, key=lambda row: (row[1], row[0]))
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        shown.add_column(head, no_wrap=head not in ("after", "to reach"))
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


def _has_word(word: str, name: str, recipe: "Recipe") -> bool:
    """Is a word in what is shown of a recipe?"""
    about = recipe.about
    row = (name, recipe.kind, recipe.task, about.title, about.paper, _headline(recipe.kind))
    return word.lower() in " ".join(row).lower()


def _headline(kind: str) -> str:
    """The first line of a model's file."""
    from regard.models import MODELS

    text = sys.modules[MODELS[kind].__module__].__doc__ or ""
    return text.strip().split("\n")[0].rstrip(".")


def _described(recipe: "Recipe") -> dict[str, object]:
    """A recipe as an object."""
    figure = recipe.figure.model_dump() if recipe.figure else None
    about = recipe.about.model_dump()
    return {"task": recipe.task, "model": recipe.kind, **about, "figure": figure}


def _promised(recipe: "Recipe") -> str:
    """What a recipe promises to reach."""
    figure = recipe.figure
    if figure is None:
        return ""
    after = ", set after a run" if figure.set_after_run else ""
    return f"{figure.split} {figure.metric} {figure.reach:g}{after}"


def _size(recipe: "Recipe") -> tuple[str, str]:
    """How large it is, and how long it takes."""
    about = recipe.about
    count = "" if about.parameters is None else f"{about.parameters:,}"
    return count, "" if about.minutes is None else f"{about.minutes:g}"
