"""The summary of all results: one row for each shipped recipe, as a table in Markdown.

`python -m bench.summary` writes it into RESULTS.md from the files in results/.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from regard.core.errors import UserError
from regard.experiments.results import Result, digest_now, read_results
from regard.runs.recipe import Figure, Recipe, parse_recipe, shipped_recipes

HEADS = ("recipe", "figure", "ours", "to reach", "published", "verdict", "minutes", "source")
"""The columns of the table."""

MARKS = (
    "<!-- summary: made by python -m bench.summary, do not edit -->",
    "<!-- summary ends -->",
)
"""The lines between which the table stands."""


def summary_table(folder: Path) -> str:
    """The table of all shipped recipes and of the variants in the results of a folder."""
    recipes = {name: parse_recipe(text, name) for name, text in shipped_recipes().items()}
    rows = [row for name in sorted(recipes) for row in _rows(name, recipes[name], folder)]
    lines = [HEADS, ("---",) * len(HEADS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replace_summary(page: str, table: str) -> str:
    """A page with the table between its two marks.

    >>> page = replace_summary(f"# Results\\n{MARKS[0]}\\nold\\n{MARKS[1]}\\nmore", "new")
    >>> "new" in page, "old" in page, page.endswith("more")
    (True, False, True)
    """
    first, last = (page.find(mark) for mark in MARKS)
    if not 0 <= first < last:
        raise UserError(f"the page must have these two lines: {MARKS[0]} and {MARKS[1]}")
    return f"{page[: first + len(MARKS[0])]}\n\n{table}\n\n{page[last:]}"


def _rows(name: str, recipe: Recipe, folder: Path) -> list[tuple[str, ...]]:
    """The row of a recipe, and those of its variants."""
    path = folder / f"{name}.json"
    runs = read_results(path).runs if path.exists() else ()
    by_changes: dict[tuple[str, ...], list[Result]] = {(): []}
    for run in runs:
        by_changes.setdefault(run.changes, []).append(run)
    figure = recipe.figure
    assert figure is not None, f"{name} promises no figure"  # a test holds it for all
    return [
        (
            f"`{name}`" + "".join(f" {each}" for each in changes),
            *_cells(name, figure, changes, made),
        )
        for changes, made in by_changes.items()
    ]


def _cells(
    name: str, figure: Figure, changes: tuple[str, ...], runs: Sequence[Result]
) -> tuple[str, ...]:
    """The cells of a row after its name."""
    told = f"{figure.split} {figure.metric}"
    reach = f"{figure.reach:g}" if not changes else ""
    published = f"{figure.value:g}" if figure.published and not changes else ""
    source = figure.source.replace("|", "/") if not changes else "a variant, beside the recipe"
    chosen, remark = _newest(runs, digest_now(name, changes))
    values = [_value(name, figure, run) for run in chosen]
    if not values:
        return told, "not run", reach, published, "", "", source
    ours = _spread(values, figure, sum(run.seeds for run in chosen)) + remark
    verdict = "" if changes else figure.verdict(fmean(values))
    return told, ours, reach, published, verdict, _minutes(chosen), source


def _newest(runs: Sequence[Result], digest: str | None) -> tuple[list[Result], str]:
    """The runs of the recipe as it is; without any, those of unknown or of other recipes."""
    fresh = [run for run in runs if run.digest is not None and run.digest == digest]
    by_hand = [run for run in runs if run.by_hand is not None]
    stale = [run for run in runs if run not in fresh and run not in by_hand]
    for chosen, remark in ((fresh, ""), (stale, "; stale"), (by_hand, "; by hand")):
        if chosen:
            return chosen, remark
    return [], ""


def _value(name: str, figure: Figure, run: Result) -> float:
    """The figure of a recipe in one of its results."""
    metrics: Mapping[str, float] = run.metrics.get(figure.split, {})
    if figure.metric not in metrics:
        raise UserError(
            f"results/{name}.json: the run with seed {run.seed} has no {figure.split} "
            f"{figure.metric}; it has: {', '.join(metrics) or 'nothing'}"
        )
    return metrics[figure.metric]


def _spread(values: Sequence[float], figure: Figure, seeds: int) -> str:
    """The mean, and the least and the most of several seeds."""
    digits = 4 if max(abs(each) for each in (*values, figure.reach)) <= 10 else 2
    mean = f"{fmean(values):.{digits}f}"
    if seeds == 1:
        return f"{mean}, one seed"
    least_and_most = f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return f"{mean}{least_and_most if len(values) > 1 else ''}, {seeds} seeds"


def _minutes(runs: Sequence[Result]) -> str:
    """The mean minutes of the runs that have kept them."""
    known = [run.minutes for run in runs if run.minutes is not None]
    return f"{fmean(known):.3g}" if known else ""
