"""regard lectures: the story of attention in steps, each with commands that take minutes."""

from typing import Annotated

import typer


def lectures(
    step: Annotated[
        int | None, typer.Argument(help="A step by its number in the list; else the list.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The page docs/lectures.md.")
    ] = False,
    gallery: Annotated[bool, typer.Option("--gallery", help="The page docs/gallery.md.")] = False,
) -> None:
    """The story of attention: equation, file, commands, picture and exercise of each step."""
    from rich.console import Console
    from rich.table import Column, Table

    from regard.core.errors import UserError
    from regard.lectures import gallery_page, lecture_steps, lectures_page

    if markdown or gallery:
        typer.echo(lectures_page() if markdown else gallery_page(), nl=False)
        return
    steps = lecture_steps()
    if step is None:
        shown = Table("step", Column("title", no_wrap=True), "paper", "minutes")
        for place, each in enumerate(steps, 1):
            shown.add_row(str(place), each.title, each.paper, f"{each.minutes:g}")
        Console().print(shown)
        typer.echo("regard lectures STEP shows one of them")
        return
    if not 1 <= step <= len(steps):
        raise UserError(f"step {step}: there are {len(steps)} steps, from 1")
    each = steps[step - 1]
    commands = "\n".join(f"  {line}" for line in (*each.train, each.draw))
    typer.echo(
        f"{step}. {each.title} ({each.paper})\n\n{each.question}\n\n  {each.equation}\n\n"
        f"{each.file}\n\n{commands}\n\nabout {each.minutes:g} minutes; {each.picture}: "
        f"{each.caption}\n\nExercise: {each.exercise}"
    )
