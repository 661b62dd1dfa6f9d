"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(help="The folder of a run, such as runs/ptb-lstm.")]
DataOption = Annotated[
    Path | None,
    typer.Option(help="Where the data are; else beside the recipe, here, or in REGARD_DATA."),
]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto for the best there is.")]
ChangesOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PART.KEY=VALUE", help="Change one value of the recipe."),
]
SiteOption = Annotated[
    str | None,
    typer.Option(help="Attention by its name in the model, such as decoder.*; else all there is."),
]
HeadsOption = Annotated[
    list[int] | None, typer.Option("--head", help="A head by its number; may be said repeatedly.")
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        help="Processes of one thread that translate together; else all cores if there is much to "
        "translate with a small model, or this process alone."
    ),
]
WeightsOption = Annotated[
    str,
    typer.Option(
        help="float32; int8 is faster and a little less accurate; int8_weights is in between. "
        "`regard quantise` measures it."
    ),
]
ValidationOption = Annotated[
    list[str] | None,
    typer.Option(help="A validation file; else a share of the training data. Twice for a pair."),
]
TestOption = Annotated[list[str] | None, typer.Option(help="A test file; twice for a pair.")]
