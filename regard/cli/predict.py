"""regard predict: the predictions of a trained model."""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, RunArgument, WeightsOption

if TYPE_CHECKING:
    from regard.core.inputs import Input
    from regard.tasks.abilities import Prediction, Predicts


def predict(
    run: RunArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of texts, or of a run trained on a folder, such folders; for other kinds "
            "of input, the files themselves. Else stdin: a text, a pair separated by a tab, or the "
            "path of a file a line."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a text, with probabilities.")
    ] = False,
    chunk: Annotated[int, typer.Option(help="Texts held at a time; 1 answers at once.")] = 1024,
    weights: WeightsOption = "float32",
    device: DeviceOption = "auto",
) -> None:
    """Predict the class of each text, the tag of each word or the next token.

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
        for prediction in opened.predicts.predict(opened.model, some):
            number += 1
            if as_json:
                typer.echo(json.dumps({"number": number, **prediction.fields}, ensure_ascii=False))
            else:
                typer.echo(prediction.text or _choices(prediction))
        sys.stdout.flush()


def _choices(prediction: "Prediction") -> str:
    """The first choices of a prediction that has no text, as a line."""
    return "\t".join(
        f"{json.dumps(each.text, ensure_ascii=False)} {each.probability:.3f}"
        for each in prediction.choices[:5]
    )


def _chunks(task: "Predicts", files: Sequence[str], size: int) -> "Iterator[list[Input]]":
    """The inputs of all files, or of stdin, so many at a time."""
    from regard.data.text.files import STDIN, read_lines_if_any

    inputs: Iterator[Input]
    if files:
        inputs = (each for path in files for each in task.inputs(path))
    else:
        read = read_lines_if_any(STDIN)
        inputs = (task.parse(line, f"stdin:{number}") for number, (line,) in read)
    while some := list(islice(inputs, size)):
        yield some
