"""regard report: how well a model does, class by class, or by length of the input."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DataOption, DeviceOption

if TYPE_CHECKING:
    from regard.runs.run import Run
    from regard.tasks.abilities import Report


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="The folder of a run; those of several translators are compared."),
    ],
    split: Annotated[
        str, typer.Option(help="train, validation or test; else the last of them that there is.")
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Draw which class is predicted as which, or scores by length: .png, .svg, .pdf.",
        ),
    ] = None,
    score: Annotated[
        str, typer.Option(help="Of translators: a score by its name; else the recipe's first.")
    ] = "",
    bands: Annotated[
        str, typer.Option(help="Of translators: the longest sources of each band, in words.")
    ] = "10,20,30,40,50,60",
    data: DataOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Precision, recall and F1 of each class or kind of chunk; of translators, scores by length."""
    from regard.core.errors import UserError, choose
    from regard.runs.run import load
    from regard.tasks.abilities import Reports, ScoresByLength, unsupported

    opened = [load(run, device, data) for run in runs]
    first = opened[0]
    splits = {str(each): each for each in first.task.splits}
    chosen = choose("split", split or list(splits)[-1], splits)
    if all(isinstance(each.task, ScoresByLength) for each in opened):
        _by_length(opened, chosen, score, bands, output)
    elif len(opened) > 1:
        raise UserError("only translators are compared; give one run at a time")
    elif isinstance(first.task, Reports):
        found = first.task.report(first.model, chosen)
        typer.echo(found.table)
        _draw_confusion(found, output, chosen)
    else:
        raise unsupported(runs[0], first.recipe.task, "reports")


def _draw_confusion(found: "Report", output: Path | None, split: str) -> None:
    """Draw which class was predicted as which, if there is a file to draw to."""
    if output is not None:
        from regard.look import confusion

        confusion(found.labels, found.counts, output)
        typer.echo(f"{output}: {sum(map(sum, found.counts))} {found.items} of {split}")


def _by_length(
    opened: "list[Run]", split: str, score: str, bands: str, output: Path | None
) -> None:
    """The score of each run for sources of similar length (Bahdanau et al. 2015, figure 2)."""
    from regard.core.errors import UserError, choose
    from regard.look import bars_by_length
    from regard.tasks.abilities import ScoresByLength

    try:
        ends = [int(each) for each in bands.split(",")]
    except ValueError:
        raise UserError(f"--bands takes whole numbers such as 10,20,30, not {bands!r}") from None
    found = []
    for run in opened:
        assert isinstance(run.task, ScoresByLength)
        score = score or run.task.scores[0]
        choose("score", score, dict.fromkeys(run.task.scores))
        known = {str(each): each for each in run.task.splits}
        found.append(run.task.by_length(run.model, choose("split", split, known), score, ends))
    sizes = [[(band.first, band.last, band.sentences) for band in each] for each in found]
    if any(each != sizes[0] for each in sizes):
        raise UserError(f"the {split} sentences of these runs are not the same")
    names = [run.folder.name for run in opened]
    typer.echo("\t".join(("words", "sentences", *names)))
    for band, *values in zip(sizes[0], *found, strict=True):
        first, last, count = band
        length = f"{first}+" if last is None else f"{first}-{last}"
        typer.echo("\t".join((length, str(count), *(f"{each.value:.2f}" for each in values))))
    if output is not None:
        systems = {
            name: [band.value for band in each] for name, each in zip(names, found, strict=True)
        }
        spans = [(first, last) for first, last, _ in sizes[0]]
        counts = [count for _, _, count in sizes[0]]
        bars_by_length(systems, spans, output, score=score, sentences=counts)
        typer.echo(f"{output}: {sum(counts)} sentences of {split}")
