"""regard analogy: what is to c as b is to a."""

from typing import Annotated

import typer

from regard.cli.neighbours import AsJson, Count, Place, show_words, vectors_at


def analogy(
    place: Place,
    a: Annotated[str, typer.Argument(help="As in: man")],
    b: Annotated[str, typer.Argument(help="is to: king")],
    c: Annotated[str, typer.Argument(help="so is to: woman")],
    count: Count = 10,
    as_json: AsJson = False,
) -> None:
    """Show what is to C as B is to A: the words nearest to B - A + C."""
    found = vectors_at(place, [a, b, c]).analogy(a, b, c, count)
    show_words({"a": a, "b": b, "c": c}, f"{a} : {b} = {c} : ?", found, as_json)
