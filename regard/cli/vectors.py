"""regard vectors: the word vectors of a run as a file for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.neighbours import run_vectors
from regard.cli.options import RunArgument


def vectors(
    run: RunArgument,
    out: Annotated[Path, typer.Argument(help="The file: .bin is word2vec's binary, else text.")],
) -> None:
    """Write the vectors of a run as word2vec does: gensim and others read them."""
    from regard.data.text.vectors import write_vectors

    found = run_vectors(run, [])
    write_vectors(out, found)
    typer.echo(f"{len(found.words):,} vectors of {found.table.shape[1]} numbers in {out}")
