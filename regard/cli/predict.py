"""regard predict: what a trained model says of texts."""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Run, Weights

if TYPE_CHECKING:
    from regard.runs.run import Predicts


def predict(
    run: Run,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of texts, or of a run trained on a folder, such folders; else stdin, a "
            "text a line, a pair apart by a tab."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a text, with probabilities.")
    ] = False,
    chunk: Annotated[int, typer.Option(help="Texts held at a time; 1 answers at once.")] = 1024,
    weights: Weights = "float32",
    device: Device = "auto",
) -> None:
    """Say what each text is, or what each of its words is; with --json how likely that is.

    A file is read as the recipe reads its own if its name ends in .tsv, .csv or .jsonl, and a text
    a line otherwise; of a run whose texts were files, a file is a text. An empty line is a text
    without words.
    """
    from regard.core.errors import positive
    from regard.runs.run import load

    opened = load(run, device, weights=weights)
    positive("chunk", chunk)
    number = 0
    for some in _chunks(opened.predicts, files or [], chunk):
        for answer in opened.predicts.answers(opened.model, some):
            number += 1
            if as_json:
                typer.echo(json.dumps({"number": number, **answer.fields}, ensure_ascii=False))
            else:
                typer.echo(answer.text)
        sys.stdout.flush()


def _chunks(task: "Predicts", files: Sequence[str], size: int) -> Iterator[list[tuple[str, ...]]]:
    """The texts of all files, or of stdin, so many at a time."""
    from regard.data.text.files import STDIN, lines_if_any

    texts: Iterator[tuple[str, ...]]
    if files:
        texts = (text for path in files for text in task.inputs(path))
    else:
        read = lines_if_any(STDIN)
        texts = (task.parted(line, f"stdin:{number}") for number, (line,) in read)
    while some := list(islice(texts, size)):
        yield some
