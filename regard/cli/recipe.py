"""regard recipe: show a shipped recipe, write one for your own files, list every key."""

import json
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import ChangesOption, TestOption, ValidationOption

if TYPE_CHECKING:
    from regard.runs.keys import Key

recipes = typer.Typer(
    no_args_is_help=True,
    help="Recipes: show a shipped one, write one for your own files, list every key.",
)


@recipes.command("show")
def show_recipe(
    name: Annotated[
        str | None, typer.Argument(help="A shipped recipe; without it, the names of all.")
    ] = None,
) -> None:
    """Print a shipped recipe, to read or to copy: regard recipe show dates > mine.toml."""
    from regard.core.errors import choose
    from regard.runs.recipe import shipped_recipes

    texts = shipped_recipes()
    if name is not None:
        typer.echo(choose("recipe", name.removesuffix(".toml"), texts), nl=False)
        return
    for each, text in texts.items():
        typer.echo(f"{each:<26}{text.partition(chr(10))[0].removeprefix('# ')}")


@recipes.command("new")
def new_recipe(
    files: Annotated[list[str], typer.Argument(help="The training data.")],
    task: Annotated[str, typer.Option(help="classify, tag, translate, language_model, ...")],
    validation: ValidationOption = None,
    test: TestOption = None,
    changes: ChangesOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; else stdout.")
    ] = None,
) -> None:
    """Write a working recipe for your own files, from a look at them."""
    from regard.core.errors import UserError, command
    from regard.runs.draft import draft_recipe
    from regard.runs.recipe import parse_recipe

    text = draft_recipe(
        task, files, validation=validation or (), test=test or (), changes=changes or ()
    )
    parse_recipe(text, "the new recipe")
    if output is None:
        typer.echo(text, nl=False)
        return
    if output.exists():
        raise UserError(f"{output}: there is such a file already; choose another name with -o")
    from regard.core.atomic import replace_atomically

    with replace_atomically(output) as file:
        file.write(text.encode())
    typer.echo(f"wrote {output}; go on with: {command('train', output)}")


@recipes.command("keys")
def recipe_keys(
    table: Annotated[
        str | None,
        typer.Argument(help="train, data.classify, model.gpt, ...; without it, all tables."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    markdown: Annotated[bool, typer.Option(help="All tables as a page of Markdown.")] = False,
) -> None:
    """Print every key of a table with its type, default and meaning."""
    from regard.runs.keys import keys_in, reference, tables_of_recipes

    if markdown:
        typer.echo(reference(), nl=False)
        return
    tables = list(tables_of_recipes())
    if table is None and not as_json:
        typer.echo("A recipe has `task`, and these tables; regard recipe keys TABLE lists keys:\n")
        for part in (
            ["about", "figure", "train"],
            *([n for n in tables if n.startswith(p)] for p in ("data.", "model.")),
        ):
            typer.echo(
                textwrap.fill("  ".join(part), 78, initial_indent="  ", subsequent_indent="  ")
            )
        return
    for each in tables if table is None else [table]:
        for key in keys_in(each):
            typer.echo(json.dumps(key._asdict()) if as_json else _described(key))


def _described(key: "Key") -> str:
    """A key in two lines or more, as wide as the terminal."""
    width = max(40, min(shutil.get_terminal_size().columns, 100))
    default = key.default if key.default == "required" else f"default {key.default}"
    head = f"{key.path}   {key.type}   ({default})"
    about = textwrap.fill(key.meaning, width, initial_indent="    ", subsequent_indent="    ")
    return f"{head}\n{about}"
