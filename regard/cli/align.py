"""regard align: which word of a sentence belongs to which of its translation."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, HeadsOption, RunArgument, SiteOption

if TYPE_CHECKING:
    from regard.data.text.alignment import Gold


def align(
    run: RunArgument,
    files: Annotated[
        list[str],
        typer.Argument(
            help="Sources and their translations, line by line; or one .tsv or .jsonl of both."
        ),
    ],
    fields: Annotated[
        str, typer.Option(help="Of one file: its two columns, or the names of its two fields.")
    ] = "1,2",
    gold: Annotated[
        Path | None,
        typer.Option(help="Alignments by people, 0-0 1?2: says the error rate (possible: ?)."),
    ] = None,
    first: Annotated[int, typer.Option(help="The number of the first word in --gold.")] = 0,
    site: SiteOption = None,
    heads: HeadsOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Align given translations word by word, a line each, in Pharaoh format: 0-0 1-2.

    With --gold, the alignment error rate is told at the end (Och and Ney 2003).
    """
    from regard.data.text.alignment import error_rate, pharaoh
    from regard.data.text.parallel import ParallelText
    from regard.inference.align import alignments
    from regard.inference.translate import SiteChoice
    from regard.runs.run import load
    from regard.tasks.abilities import AlignsWords, unsupported

    opened = load(run, device)
    if not isinstance(opened.task, AlignsWords):
        raise unsupported(run, opened.recipe.task, "word alignment")
    text = ParallelText(paths=tuple(files), fields=_two_fields(fields) if len(files) == 1 else None)
    golds = None if gold is None else list(_read_gold(gold, first))
    choice = SiteChoice(site, tuple(heads) if heads else None)
    pairs = ((pair.source, pair.target) for pair in text.pairs())
    found = []
    for links in alignments(opened.task, opened.model, pairs, choice):
        typer.echo(pharaoh(links))
        if golds is not None:
            found.append(links)
    if golds is not None:
        rate = error_rate(found, golds)
        typer.echo(f"alignment error rate {rate:.4f} over {len(found)} pairs", err=True)


def _two_fields(text: str) -> tuple[int | str, int | str]:
    """The two sides of a file that holds both."""
    from regard.core.errors import UserError

    named = [int(each) if each.isdecimal() else each for each in text.split(",")]
    if len(named) != 2:
        raise UserError(f"--fields takes the two sides, such as 1,2 or de,en, not {text!r}")
    return named[0], named[1]


def _read_gold(path: Path, first: int) -> "Iterator[Gold]":
    """The alignments of a file, a line each."""
    from regard.data.text.alignment import gold
    from regard.data.text.files import read_lines

    for line in read_lines(str(path)):
        yield gold(line.text, where=f"{path}:{line.number}", first=first)
