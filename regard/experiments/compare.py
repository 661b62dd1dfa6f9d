"""Compare values of recipe keys over several seeds, with all else the same.

Every value and seed is a run in one folder, trained by a process of its own. Finished runs are
reused, and an interrupted comparison resumes. Values are paired by seed for the significance test.
"""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from regard.core.atomic import os_errors_as_user_errors
from regard.core.errors import UserError, choose, positive
from regard.core.folder import RECIPE_BYTES, read_text
from regard.core.protocols import ProgressCallback, no_progress
from regard.explain.statistics import Interval, interval, paired_p
from regard.inference.workers import cores
from regard.runs.checks import check_run, scores_predictions
from regard.runs.recipe import Recipe, read_recipe, shipped_recipes
from regard.runs.run import prepare, write_text
from regard.tasks.task import OpenTask
from regard.train.parallel.world import World

_Values = tuple[str, ...]
"""One value of each key that varies, as for `--set`; an empty value removes the key."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A recipe, the keys that vary, their values and the number of seeds."""

    recipe: str
    """The name of a shipped recipe, or a file."""
    vary: Mapping[str, tuple[str, ...]]
    """The values of each key, such as `model.score`; the first values are the baseline."""
    seeds: int = 5
    changes: tuple[str, ...] = ()
    """Further changes of the recipe, for all values."""
    metric: str | None = None
    """What is compared, such as `accuracy` or `test.accuracy`; else the metric of the recipe's
    figure, or else that of `train.monitor`."""

    def __post_init__(self) -> None:
        positive("seeds", self.seeds)
        for key, values in self.vary.items():
            if len(set(values)) != len(values) or not values:
                raise UserError(f"--vary {key} needs values that differ: {', '.join(values)}")
        for values in self.rows:  # every one must be a valid recipe before any is trained
            self.read(values, 0)

    @property
    def rows(self) -> list[_Values]:
        """Every value of one key with every value of the others."""
        return list(product(*self.vary.values()))

    def read(self, values: _Values, seed: int) -> Recipe:
        """The recipe of one run; seeds count from that of the recipe."""
        varied = [f"{key}={value}" for key, value in zip(self.vary, values, strict=True)]
        own = read_recipe(self.recipe, [*self.changes, *varied]).train.seed
        return read_recipe(self.recipe, [*self.changes, *varied, f"train.seed={own + seed}"])


def parse_vary(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Keys and their values, from texts such as `model.score=dot,additive`.

    >>> parse_vary(["model.score=dot,additive", "model.source=,runs/elmo"])
    {'model.score': ('dot', 'additive'), 'model.source': ('', 'runs/elmo')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for key, values in map(_parse_values, texts):
        if key in found:
            raise UserError(f"--vary {key} is given twice; write all its values in one")
        found[key] = values
    return found


def _parse_values(text: str) -> tuple[str, tuple[str, ...]]:
    """A key and its values; commas within brackets do not separate.

    >>> _parse_values("train.optimiser={name='sgd',lr=1},{name='adam',lr=0.1}")[1][1]
    "{name='adam',lr=0.1}"
    """
    key, equals, given = text.partition("=")
    if not equals or not given:
        raise UserError(f"--vary takes part.key=value,value,..., not {text!r}")
    values, depth = [""], 0
    for character in given:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            values.append("")
        else:
            values[-1] += character
    return key.strip(), tuple(value.strip() for value in values)


@dataclass(frozen=True)
class RunFigures:
    """The figures of one finished run."""

    seed: int
    metric: float
    parameters: int
    seconds: float
    memory: int
    """The peak memory of its process, in bytes."""


@dataclass(frozen=True)
class ComparisonRow:
    """One value of each key, over all seeds."""

    values: _Values
    runs: tuple[RunFigures, ...]
    metric: Interval
    p: float | None
    """The p-value of the difference from the first row; None for the first."""

    @property
    def name(self) -> str:
        """The values, for people."""
        return ", ".join(value or "(none)" for value in self.values)

    @property
    def parameters(self) -> int:
        """Of the model."""
        return self.runs[0].parameters

    @property
    def seconds(self) -> float:
        """The mean time of training."""
        return sum(run.seconds for run in self.runs) / len(self.runs)

    @property
    def memory(self) -> int:
        """The largest peak memory of any run, in bytes."""
        return max(run.memory for run in self.runs)


@dataclass(frozen=True)
class ComparisonTable:
    """The result of a comparison."""

    comparison: Comparison
    metric: str
    split: str
    better: str
    rows: tuple[ComparisonRow, ...]

    @property
    def best(self) -> ComparisonRow:
        """The row with the best mean."""
        sign = 1 if self.better == "lower" else -1
        return min(self.rows, key=lambda row: sign * row.metric.mean)


def run_comparison(
    comparison: Comparison,
    folder: Path,
    data: Path,
    *,
    workers: int | None = None,
    progress: ProgressCallback = no_progress,
) -> ComparisonTable:
    """Train all runs that are not finished, and collect their figures."""
    every = list(product(comparison.rows, range(comparison.seeds)))
    places = [_place(comparison, folder, values, seed) for values, seed in every]
    unfinished = {
        values
        for (values, _), (_, where) in zip(every, places, strict=True)
        if not (where / "metrics.json").exists()
    }
    _check_rows(comparison, unfinished, folder, data)
    for recipe, where in places:
        _write_recipe(recipe, where, folder)
    wanted = [(*each, where) for each, (_, where) in zip(every, places, strict=True)]
    missing = [where for _, _, where in wanted if not (where / "metrics.json").exists()]
    if missing:
        progress(f"{len(missing)} of {len(wanted)} runs to train, in {folder}")
        _train_all(missing, data, workers or max(1, cores() // 2), progress)
    return _collect(comparison, wanted)


def _place(comparison: Comparison, folder: Path, values: _Values, seed: int) -> tuple[Recipe, Path]:
    """The recipe and the folder of one run; a different recipe there is an error."""
    named = (f"{key}={value}" for key, value in zip(comparison.vary, values, strict=True))
    name = "".join(each if each.isalnum() or each in "-_.=," else "-" for each in ",".join(named))
    recipe = comparison.read(values, seed)
    where = folder / name / f"seed-{recipe.train.seed}"
    file = where.with_suffix(".toml")
    if file.exists() and read_text(file, RECIPE_BYTES) != recipe.to_toml():
        raise UserError(
            f"{file}: this is a comparison of another recipe; choose another folder with "
            f"--runs, or remove {folder}"
        )
    return recipe, where


def _check_rows(
    comparison: Comparison, rows: Collection[_Values], folder: Path, data: Path
) -> None:
    """Raise if a run of any of these values could not be trained, before one is."""
    opened: dict[str, OpenTask] = {}
    for values in comparison.rows:
        if values not in rows:
            continue
        try:
            run, _ = prepare(comparison.read(values, 0), folder, data, "cpu", opened=opened)
            figures = check_run(run, World())
            metric, split, _ = _metric_of(run.recipe, comparison.metric)
            choose("split", split, dict.fromkeys(run.task.splits))
            if not scores_predictions(run.task):
                choose("metric", metric, figures)
        except UserError as error:
            pairs = zip(comparison.vary, values, strict=True)
            raise UserError(
                f"{', '.join(f'{key}={value}' for key, value in pairs)}: {error}"
            ) from None


def _write_recipe(recipe: Recipe, where: Path, folder: Path) -> None:
    """Leave the recipe of a run beside its folder."""
    file = where.with_suffix(".toml")
    if not file.exists():
        with os_errors_as_user_errors(folder):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, recipe.to_toml())


def _train_all(
    folders: Sequence[Path], data: Path, workers: int, progress: ProgressCallback
) -> None:
    """Train `workers` runs at a time; the first failure ends all, and checkpoints stay."""
    threads = max(1, cores() // workers)
    with ThreadPoolExecutor(workers) as pool:
        waiting: dict[Future[None], Path] = {
            pool.submit(train_one, folder, data, threads): folder for folder in folders
        }
        done = 0
        try:
            while waiting:
                finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for each in finished:
                    folder = waiting.pop(each)
                    each.result()
                    done += 1
                    progress(f"{done}/{len(folders)} {folder.parent.name} {folder.name}")
        finally:
            pool.shutdown(cancel_futures=True)


def train_one(folder: Path, data: Path, threads: int) -> None:
    """Train or resume a run in a process of its own.

    OMP_NUM_THREADS replaces `threads` if the user has set it. More threads than free cores wait for
    each other, which was measured to take thirty times as long.
    """
    started = (folder / "recipe.toml").exists()
    verb = (
        ["resume", str(folder)]
        if started
        else [
            "train",
            str(folder.with_suffix(".toml")),
            "--name",
            folder.name,
            "--runs",
            str(folder.parent),
        ]
    )
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    command = [sys.executable, "-m", "regard", *verb, "--data", str(data)]
    process = subprocess.run(  # noqa: S603 - our own interpreter and our own files
        command, env=environment, capture_output=True, text=True, check=False
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        raise UserError(f"{folder}: training failed: {lines[-1]}")


def _collect(
    comparison: Comparison, wanted: Iterable[tuple[_Values, int, Path]]
) -> ComparisonTable:
    """The figures of finished runs, as a table."""
    baseline = comparison.rows[0]
    metric, split, better = _metric_of(comparison.read(baseline, 0), comparison.metric)
    finished: dict[_Values, list[RunFigures]] = {values: [] for values in comparison.rows}
    for values, seed, folder in wanted:
        finished[values].append(_read_figures(folder, seed, metric, split))
    rows: list[ComparisonRow] = []
    for values, runs in finished.items():
        figures = [run.metric for run in runs]
        first = [run.metric for run in finished[baseline]]
        p = None if not rows else paired_p(first, figures)
        rows.append(ComparisonRow(values, tuple(runs), interval(figures), p))
    return ComparisonTable(comparison, metric, split, better, tuple(rows))


_LOWER_IS_BETTER = ("loss", "perplexity", "bits", "ter", "wer", "cer", "mse", "mae", "rmse")
"""How the names of metrics begin of which less is better."""


def _metric_of(recipe: Recipe, chosen: str | None = None) -> tuple[str, str, str]:
    """Metric, split and direction: as chosen, or of the recipe's figure, or as it monitors."""
    figure, train = recipe.figure, recipe.train
    if chosen is None and figure is not None:
        return figure.metric, figure.split, figure.better
    if chosen is None:
        return train.monitor, "validation", train.better
    split, _, name = chosen.rpartition(".")
    if name == train.monitor:
        better: str = train.better
    elif figure is not None and name == figure.metric:
        better = figure.better
    else:
        better = "lower" if name.startswith(_LOWER_IS_BETTER) else "higher"
    return name, split or "validation", better


def _read_figures(folder: Path, seed: int, metric: str, split: str) -> RunFigures:
    """The figures of a finished run."""
    path = folder / "metrics.json"
    figures = json.loads(path.read_text(encoding="utf-8"))
    training = figures["training"]
    if metric not in figures.get(split, {}):
        known = ", ".join(sorted(figures.get(split, {})))
        raise UserError(f"{path}: there is no {split} {metric}; there are {known}")
    return RunFigures(
        seed,
        figures[split][metric],
        training["parameters"],
        training["seconds"],
        training["peak_bytes"],
    )


def comparison_folder(
    recipe: str, keys: Iterable[str], runs: Path, name: str | None = None
) -> Path:
    """The folder of the runs of a comparison: of that name, or of its recipe and keys."""
    if name is not None:
        return runs / name
    own = recipe if recipe in shipped_recipes() else Path(recipe).stem
    return runs / f"compare-{own}" / ",".join(keys).replace(".", "-")
