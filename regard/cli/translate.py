"""regard translate: lines of text through a trained translator."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    DeviceOption,
    HeadsOption,
    RunArgument,
    SiteOption,
    WeightsOption,
    WorkersOption,
)
from regard.cli.predict import inputs_at_a_time

if TYPE_CHECKING:
    from regard.decode.beam import Beam
    from regard.inference.translate import OutputLines


def translate_lines(
    run: RunArgument,
    beam: Annotated[int | None, typer.Option(help="Width of the beam; 1 is greedy.")] = None,
    nbest: Annotated[int, typer.Option(help="So many translations of each line.")] = 1,
    length_penalty: Annotated[str | None, typer.Option(help="none, gnmt or average.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Exponent of the length penalty.")] = None,
    coverage: Annotated[
        float, typer.Option(help="How much a source that was not looked at costs; 0 is off.")
    ] = 0.0,
    min_length: Annotated[int, typer.Option(help="The fewest tokens of a translation.")] = 0,
    max_length: Annotated[int | None, typer.Option(help="The most tokens.")] = None,
    no_repeat: Annotated[
        int | None, typer.Option(help="No n-gram of this size twice; 0 is off.")
    ] = None,
    groups: Annotated[int, typer.Option(help="Groups of a diverse beam search.")] = 1,
    diversity: Annotated[float, typer.Option(help="How different the groups are.")] = 0.0,
    prefixes: Annotated[
        bool,
        typer.Option(
            "--prefixes", help="Lines hold a source, a tab, and how its translation is to begin."
        ),
    ] = False,
    scores: Annotated[bool, typer.Option("--scores", help="Add the score of each.")] = False,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Add word alignments, 0-0 1-2, by attention.")
    ] = False,
    site: SiteOption = None,
    heads: HeadsOption = None,
    chunk: Annotated[
        int | None,
        typer.Option(help="Lines held at a time; else 1 on a terminal, and 1024 elsewhere."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a translation.")] = False,
    others: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            help="A further run that translates together with the first (an ensemble), such as one "
            "of another seed; repeatedly for more.",
        ),
    ] = None,
    workers: WorkersOption = None,
    weights: WeightsOption = "float32",
    device: DeviceOption = "auto",
) -> None:
    """Translate stdin line by line to stdout; scores and alignments are columns behind tabs.

    For a run that takes images, sounds or the like, each line is the path of a file.
    """
    from dataclasses import replace

    from regard.inference.translate import SiteChoice
    from regard.inference.workers import translate as translations
    from regard.runs.run import load
    from regard.tasks.abilities import Translates, unsupported

    opened = load(run, device, weights=weights)
    if others:
        from regard.core.errors import UserError
        from regard.runs.ensemble import together

        if workers not in (None, 1) or alignments:
            raise UserError("an ensemble (--with) has one process, and no alignments of its own")
        opened = together(opened, [load(each, device, weights=weights) for each in others])
        workers = 1
    task = opened.task
    if not isinstance(task, Translates):
        raise unsupported(run, opened.recipe.task, "translation")
    usual = task.beam
    chosen = replace(
        usual,
        width=max(nbest, usual.width) if beam is None else beam,
        n_best=nbest,
        length_penalty=usual.length_penalty if length_penalty is None else length_penalty,
        alpha=usual.alpha if alpha is None else alpha,
        coverage=coverage,
        min_length=min_length,
        max_length=usual.max_length if max_length is None else max_length,
        no_repeat=usual.no_repeat if no_repeat is None else no_repeat,
        groups=groups,
        diversity=diversity,
    )
    choice = SiteChoice(site, tuple(heads) if heads else None) if alignments else None
    lines = (line.rstrip("\n") for line in sys.stdin)
    every = translations(
        opened,
        map(_parted, lines) if prefixes else lines,
        beam=chosen,
        choice=choice,
        chunk=inputs_at_a_time([]) if chunk is None else chunk,
        name="stdin",
        workers=1 if workers is None and sys.stdin.isatty() else workers,
    )
    for number, line in enumerate(every):
        for row in _rows(number, line, chosen, scores, as_json):
            typer.echo(row)
        sys.stdout.flush()


def _parted(line: str) -> tuple[str, str]:
    """A source and how its translation is to begin; nothing if there is no tab."""
    source, _, begins = line.partition("\t")
    return source, begins


def _rows(
    number: int, line: "OutputLines", beam: "Beam", scores: bool, as_json: bool
) -> Iterator[str]:
    """The rows of one line: one for each translation, or an empty one for an empty line."""
    if not line.outputs:
        row: dict[str, object] = {"line": number, "text": ""}
        yield json.dumps(row, ensure_ascii=False) if as_json else ""
    for output in line.outputs:
        row = {"line": number, "text": output.text}
        if scores or as_json:
            row["score"] = round(output.score, 6)
        if output.alignment is not None:
            row["alignment"] = output.alignment
        if as_json:
            yield json.dumps(row, ensure_ascii=False)
        else:
            shown = row.values() if beam.n_best > 1 else list(row.values())[1:]
            yield "\t".join(str(each) for each in shown)
