"""regard data: public datasets by name. `list` them, `get` one, `check` what is there."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DataOption

if TYPE_CHECKING:
    from regard.datasets.download import Progress
    from regard.datasets.get import FileState
    from regard.datasets.table import PublicDataset

data_verbs = typer.Typer(
    no_args_is_help=True,
    help="Public datasets by name: list them, get one, check what is there. Nothing is downloaded "
    "but by `get`.",
)


@data_verbs.command("list")
def list_datasets(
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The table of docs/data.md.")
    ] = False,
) -> None:
    """List every dataset: what it is, its licence, its size, and whether it is there."""
    if markdown:
        typer.echo(markdown_table())
        return
    from rich.console import Console
    from rich.table import Column, Table

    from regard.datasets.table import public_datasets

    folder = _data_folder(data)
    users = recipes_by_dataset()
    if as_json:
        for name, dataset in public_datasets().items():
            kept = {"there": _is_there(dataset, folder), "recipes": users.get(name, [])}
            typer.echo(json.dumps(dataset.model_dump() | {"bytes": dataset.size} | kept))
        return
    console = Console()
    wide = console.width >= 110
    name_column = Column("name", no_wrap=True)
    shown = Table(name_column, "what", *(["licence"] if wide else []), "MB", "there", "recipes")
    for name, dataset in public_datasets().items():
        count = str(len(users.get(name, []))) if name in users else ""
        there = "yes" if _is_there(dataset, folder) else ""
        licence = [dataset.licence] if wide else []
        shown.add_row(name, dataset.title, *licence, _size(dataset), there, count)
    console.print(shown)
    typer.echo(f"regard data get NAME downloads and converts one; the data folder is {folder}")


def markdown_table() -> str:
    """The table of docs/data.md."""
    from regard.datasets.table import public_datasets

    rows = ["| name | what | licence | MB | verified by |", "| --- | --- | --- | --- | --- |"]
    for name, dataset in public_datasets().items():
        cells = (f"[{name}]({dataset.home})", dataset.title, dataset.licence, _size(dataset))
        rows.append(f"| {' | '.join(cells)} | {_trust(dataset)} |")
    return "\n".join(rows)


def _trust(dataset: "PublicDataset") -> str:
    """What the download is compared with."""
    made = [*(each.sha256 for each in dataset.file), *(each.sha256 for each in dataset.pack)]
    if made and all(made) and not dataset.folder:
        return "SHA-256 of the files"
    if all(each.sha256 for each in dataset.original):
        return "SHA-256 of the archive"
    return "first download"


@data_verbs.command("get")
def get_datasets(
    names: Annotated[list[str], typer.Argument(help="Datasets, or recipes: what they need.")],
    data: DataOption = None,
    given: Annotated[
        Path | None,
        typer.Option("--from", help="A folder with the authors' files: nothing is downloaded."),
    ] = None,
    keep: Annotated[bool, typer.Option(help="Keep the downloads.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace files that differ.")] = False,
) -> None:
    """Download datasets and convert them to what the recipes read."""
    from regard.datasets.get import get_dataset

    folder = _data_folder(data)
    for dataset in _wanted(names):
        typer.echo(
            f"{dataset.name}: {dataset.title}\n  {dataset.home}\n  {dataset.licence}", err=True
        )
        with _progress() as on_progress:
            states = get_dataset(
                dataset,
                folder,
                given=given,
                keep=keep,
                overwrite=overwrite,
                on_progress=on_progress,
            )
        _show(dataset, states, folder)
        if dataset.note:
            typer.echo(f"  {dataset.note}", err=True)


@data_verbs.command("check")
def check_datasets(
    names: Annotated[
        list[str] | None, typer.Argument(help="Datasets or recipes; else all that are there.")
    ] = None,
    data: DataOption = None,
) -> None:
    """Compare the files of the data folder with the known digests; fails if one differs."""
    from regard.datasets.get import check_dataset
    from regard.datasets.table import public_datasets

    folder = _data_folder(data)
    several = _wanted(names) if names else list(public_datasets().values())
    found = False
    wrong = []
    for dataset in several:
        if not names and not (folder / dataset.name).is_dir():
            continue
        found = True
        states = check_dataset(dataset, folder)
        _show(dataset, states, folder)
        bad = ("differs", "missing") if names else ("differs",)
        wrong += [f"{dataset.name}/{each.path}" for each in states if each.state in bad]
    if not found:
        typer.echo(f"{folder}: holds none of the known datasets (regard data list)")
    if wrong:
        raise typer.Exit(1)


def _data_folder(given: Path | None) -> Path:
    import os

    return given or Path(os.environ.get("REGARD_DATA", "."))


def recipes_by_dataset() -> dict[str, list[str]]:
    """The shipped recipes that read each dataset."""
    from regard.datasets.table import public_datasets
    from regard.runs.recipe import shipped_recipes

    return {
        name: users
        for name in public_datasets()
        if (users := [key for key, text in shipped_recipes().items() if f'"{name}/' in text])
    }


def _wanted(names: list[str]) -> list["PublicDataset"]:
    """The datasets of these names, and those that recipes of these names need."""
    from regard.core.errors import unknown
    from regard.datasets.table import public_datasets
    from regard.runs.recipe import shipped_recipes

    every, users = public_datasets(), recipes_by_dataset()
    found: dict[str, PublicDataset] = {}
    for name in names:
        if name in every:
            found[name] = every[name]
        elif name in shipped_recipes():
            needed = {each: every[each] for each, recipes in users.items() if name in recipes}
            if not needed:
                typer.echo(f"{name}: needs no data", err=True)
            found |= needed
        else:
            raise unknown("dataset", name, every)
    return list(found.values())


def _is_there(dataset: "PublicDataset", folder: Path) -> bool:
    return all((folder / dataset.name / path).exists() for path in dataset.paths)


def _size(dataset: "PublicDataset") -> str:
    if not dataset.is_downloadable:
        return "on request"
    size = dataset.size
    return "" if size is None else f"{size / 1e6:,.1f}"


def _show(dataset: "PublicDataset", states: "list[FileState]", folder: Path) -> None:
    for each in states:
        typer.echo(f"{each.state:<14} {folder / dataset.name / each.path}")


class _progress:  # noqa: N801 - a context manager
    """A bar for each file on a terminal, and nothing else."""

    def __enter__(self) -> "Progress | None":
        if not sys.stderr.isatty():
            return None
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TaskID,
            TextColumn,
            TransferSpeedColumn,
        )

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(stderr=True),
        )
        self._bars.start()
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: int, whole: int | None) -> None:
            if name not in tasks:
                tasks[name] = self._bars.add_task(name, total=whole)
            self._bars.update(tasks[name], completed=done, total=whole)

        return show

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_bars"):
            self._bars.stop()
