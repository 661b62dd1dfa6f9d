"""regard predict: the predictions of a trained model."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, RunArgument, WeightsOption

if TYPE_CHECKING:
    from regard.tasks.abilities import Prediction


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
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse texts longer than the model reads.")
    ] = False,
    chunk: Annotated[
        int | None,
        typer.Option(help="Texts held at a time; else 1 on a terminal, and 1024 elsewhere."),
    ] = None,
    weights: WeightsOption = "float32",
    device: DeviceOption = "auto",
) -> None:
    """Predict the class of each text, the tag of each word or the next token.

    A file is read as the recipe reads its own if its name ends in .tsv, .csv or .jsonl, and a text
    a line otherwise; of a run whose texts were files, a file is a text. An empty line is a text
    without words. A text that cannot be answered has an empty line, or an object with `error`, and
    the exit code is 2.
    """
    from regard.core.errors import UserError, positive
    from regard.inference.each_input import inputs_of, predict_each, truncation
    from regard.runs.run import load

    opened = load(run, device, weights=weights)
    size = positive("chunk", inputs_at_a_time(files or []) if chunk is None else chunk)
    given = inputs_of(opened.predicts, files or [])
    refused, truncated = 0, 0
    for number, (each, answer) in enumerate(
        predict_each(opened, given, chunk=size, strict=strict), start=1
    ):
        if isinstance(answer, UserError):
            refused += 1
            typer.echo(f"regard: {answer}", err=True)
            shown = json.dumps({"number": number, "error": str(answer)}) if as_json else ""
        elif as_json:
            shown = json.dumps({"number": number, **answer.fields}, ensure_ascii=False)
        else:
            shown = answer.text or _choices(answer)
        typer.echo(shown)
        if number % size == 0:
            sys.stdout.flush()
        if not isinstance(answer, UserError) and (problem := truncation(opened, each)):
            truncated += 1
            if truncated == 1:
                typer.echo(f"regard: {problem}; the rest is not read", err=True)
    sys.stdout.flush()
    if truncated > 1:
        typer.echo(f"regard: {truncated:,} texts were longer than the model reads", err=True)
    if refused:
        raise typer.Exit(2)


def inputs_at_a_time(files: Sequence[str]) -> int:
    """How many inputs are held at a time: one if a person types them."""
    return 1 if not files and sys.stdin.isatty() else 1024


def _choices(prediction: "Prediction") -> str:
    """The first choices of a prediction that has no text, as a line."""
    return "\t".join(
        f"{json.dumps(each.text, ensure_ascii=False)} {each.probability:.3f}"
        for each in prediction.choices[:5]
    )
