"""regard heads: which heads of a run matter, and the run without those that do not."""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import DataOption, DeviceOption, RunArgument


def rank_heads(
    run: RunArgument,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Also the loss without each head: a pass for each.")
    ] = False,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "validation",
    batches: Annotated[int, typer.Option(help="How many batches of it are read.")] = 8,
    keep: Annotated[
        float | None, typer.Option(help="The share of heads that stays in the run written to -o.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A run without the least important heads.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a head.")] = False,
    data: DataOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Rank the heads of a run by how much its loss depends on them (Michel et al. 2019).

    With --keep 0.5 -o FOLDER the lesser half is taken out, and what is left is a run of its own:
    smaller, faster, and perhaps to be trained on.
    """
    from regard.core.errors import UserError, choose
    from regard.experiments.heads import head_importance, heads_to_keep, save_pruned
    from regard.runs.run import data_folder, load

    if (keep is None) != (out is None):
        raise UserError("--keep and -o belong together: what share of heads stays, and where")
    opened = load(run, device, data)
    splits = {str(each): each for each in opened.task.splits}
    ranked = head_importance(opened, choose("split", split, splits), batches, ablate=ablate)
    for each in ranked:
        if as_json:
            typer.echo(json.dumps(vars(each)))
        else:
            loss = "" if each.loss_without is None else f"\t{each.loss_without:+.5f}"
            typer.echo(f"{each.site}\t{each.head}\t{each.importance:.4f}{loss}")
    if keep is not None and out is not None:
        kept = heads_to_keep(ranked, keep)
        left = save_pruned(opened, out, data_folder(data), kept)
        before, after = (
            sum(each.numel() for each in one.model.parameters()) for one in (opened, left)
        )
        count = sum(len(each) for each in kept.values())
        typer.echo(
            f"{count} of {len(ranked)} heads and {after:,} of {before:,} parameters left in {out}",
            err=True,
        )
