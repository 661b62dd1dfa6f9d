"""regard import: a checkpoint of another project as a run."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import ChangesOption, DataOption


def import_folder(
    folder: Annotated[
        str, typer.Argument(help="A folder with config.json, weights and a tokeniser.")
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The run folder; else runs/ and its name.")
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="Read it as another than its config says: BertModel, say.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch a name of the Hugging Face hub.")
    ] = False,
    changes: ChangesOption = None,
    data: DataOption = None,
) -> None:
    """Make a run of a checkpoint of BERT, RoBERTa and their kin, GPT, GPT-2 or Marian.

    Then every verb works on it: predict, generate, translate, look, audit, serve; and a recipe can
    begin with it by model.source.
    """
    from regard.runs.pretrained import from_pretrained, import_run, usage_of
    from regard.runs.run import data_folder

    opened = from_pretrained(
        folder, architecture=architecture, changes=changes or [], download=download, device="cpu"
    )
    place = out or Path("runs") / Path(folder).resolve().name
    run = import_run(opened, place, data_folder(data))
    parameters = sum(each.numel() for each in run.model.parameters())
    typer.echo(f"{run.recipe.kind} of {parameters:,} parameters in {place}")
    for note in run.began:
        typer.echo(f"- {note}")
    typer.echo(usage_of(run))
