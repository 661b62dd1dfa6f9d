"""regard export: a run in the form of another program."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import RunArgument

if TYPE_CHECKING:
    from regard.runs.run import Run as Opened


def export_run(
    run: RunArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder or file to write.")],
    form: Annotated[
        str,
        typer.Option("--format", help="huggingface, onnx or ctranslate2: who is to load it."),
    ] = "huggingface",
    family: Annotated[
        str | None,
        typer.Option(
            help="For huggingface: bert, roberta, distilbert, ...; else the first that can hold it."
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="For huggingface: float32, float16 or bfloat16.")
    ] = "float32",
    shard: Annotated[
        float,
        typer.Option(help="For huggingface: gigabytes of weights in one file; more is split."),
    ] = 5.0,
) -> None:
    """Write a trained run so that other programs load it."""
    from regard.core.errors import above_zero, choose
    from regard.runs.run import load

    write = choose("format", form, _FORMATS)
    opened = load(run, "cpu")
    typer.echo(write(opened, out, family, dtype, int(above_zero("shard", shard) * 1e9)))


def huggingface(run: "Opened", out: Path, family: str | None, dtype: str, shard: int) -> str:
    """A folder that transformers loads."""
    from regard.runs.pretrained import save_pretrained

    files = save_pretrained(run, out, family=family, dtype=dtype, shard_bytes=shard)
    return f"{len(files)} files and the tokeniser in {out}"


def onnx(run: "Opened", out: Path, *_: object) -> str:
    """A graph in a file."""
    from regard.export.onnx import export_onnx

    out.parent.mkdir(parents=True, exist_ok=True)
    off = export_onnx(run.model, out)
    return f"{out}, which says what the run says, to {off:.1g}"


def ctranslate2(run: "Opened", out: Path, *_: object) -> str:
    """A folder for fast decoding."""
    from regard.core.errors import UserError
    from regard.export.ctranslate2 import export_ctranslate2
    from regard.runs.pretrained import specials_of
    from regard.tasks.abilities import Translates

    task = run.task
    specials = dict(specials_of(task))
    if isinstance(task, Translates):
        specials = {**specials, "bos": task.beam.bos, "eos": task.beam.eos}
    words = [[side.token(number) for number in range(side.vocabulary)] for side in task.tokenisers]
    if not words:
        raise UserError(f"{run.folder}: task {run.recipe.task} has no tokeniser to write")
    off = export_ctranslate2(
        run.model, out, words=words[-1], source_words=words[0], specials=specials
    )
    return f"{out}, which finds texts as likely as the run does, to {off:.1g}"


_FORMATS: dict[str, Callable[["Opened", Path, str | None, str, int], str]] = {
    "huggingface": huggingface,
    "onnx": onnx,
    "ctranslate2": ctranslate2,
}
"""Who runs can be written for: each writes, and tells what it wrote."""
