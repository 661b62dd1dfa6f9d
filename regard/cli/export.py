"""regard export: a run in the form of another project."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Run


def export(
    run: Run,
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")],
    form: Annotated[
        str, typer.Option("--format", help="huggingface: a folder that transformers loads.")
    ] = "huggingface",
    family: Annotated[
        str | None,
        typer.Option(help="bert, roberta, distilbert, ...; else the first that can hold it."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="float32, float16 or bfloat16: how weights are kept.")
    ] = "float32",
    shard: Annotated[
        float, typer.Option(help="Gigabytes of weights in one file; what is more is split.")
    ] = 5.0,
) -> None:
    """Write a trained run so that other programs load it."""
    from regard.core.errors import above_zero, choose
    from regard.pretrained import save_pretrained
    from regard.run import load

    choose("format", form, {"huggingface": save_pretrained})
    opened = load(run, "cpu")
    files = save_pretrained(
        opened, out, family=family, dtype=dtype, shard_bytes=int(above_zero("shard", shard) * 1e9)
    )
    typer.echo(f"{len(files)} files and the tokeniser in {out}")
