"""Compare values of recipe keys over several seeds, with all else the same.

Every value and seed is a run in one folder, trained by a process of its own. Finished runs are
reused, and an interrupted comparison resumes. Values are paired by seed for the significance test.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from regard.core.errors import UserError, positive
from regard.core.protocols import ProgressCallback, no_progress
from regard.explain.statistics import Interval, interval, paired_p
from regard.inference.workers import cores
from regard.runs.recipe import Recipe, read_recipe, shipped_recipes
from regard.runs.run import write_text

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


def run_comparison(
    comparison: Comparison,
    folder: Path,
    data: Path,
    *,
    workers: int | None = None,
    progress: ProgressCallback = no_progress,
) -> ComparisonTable:
    """Train all runs that are not finished, and collect their figures."""
    wanted = [
        (values, seed, _prepare_folder(comparison, folder, values, seed))
        for values in comparison.rows
        for seed in range(comparison.seeds)
    ]
    missing = [where for _, _, where in wanted if not (where / "metrics.json").exists()]
    if missing:
        progress(f"{len(missing)} of {len(wanted)} runs to train, in {folder}")
        _train_all(missing, data, workers or max(1, cores() // 2), progress)
    return _collect(comparison, wanted)


def _prepare_folder(comparison: Comparison, folder: Path, values: _Values, seed: int) -> Path:
    """The folder of one run, with its recipe beside it; a different recipe there is an error."""
    named = (f"{key}={value}" for key, value in zip(comparison.vary, values, strict=True))
    name = "".join(each if each.isalnum() or each in "-_.=," else "-" for each in ",".join(named))
    recipe = comparison.read(values, seed)
    where = folder / name / f"seed-{recipe.train.seed}"
    file = where.with_suffix(".toml")
    text = recipe.to_toml()
    if file.exists() and file.read_text(encoding="utf-8") != text:
        raise UserError(
            f"{file}: this is a comparison of another recipe; choose another folder with "
            f"--runs, or remove {folder}"
        )
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
    return where


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
    metric, split, better = _metric_of(comparison.read(baseline, 0))
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


def _metric_of(recipe: Recipe) -> tuple[str, str, str]:
    """Metric, split and direction: those of the figure of the recipe, else the validation loss."""
    figure = recipe.figure
    if figure is None:
        return "loss", "validation", "lower"
    return figure.metric, figure.split, figure.better


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


def comparison_folder(recipe: str, keys: Iterable[str], runs: Path) -> Path:
    """The folder of the runs of a comparison."""
    name = recipe if recipe in shipped_recipes() else Path(recipe).stem
    return runs / f"compare-{name}" / ",".join(keys).replace(".", "-")
