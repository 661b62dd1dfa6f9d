"""Compare: a part of a recipe changed, or several, all else the same, over several seeds.

Every value and seed is a run of its own in one folder, trained by a process of its own. What has
been trained is kept: a comparison that was interrupted goes on where it was, and one that is asked
for again only reads. Values are paired by seed, so that a difference can be told from chance.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from regard.core.errors import UserError, positive
from regard.explain.statistics import Interval, interval, paired_p
from regard.inference.workers import cores
from regard.runs.recipe import Recipe, read_recipe, shipped_recipes
from regard.runs.run import write_text

_Told = Callable[[str], None]
"""Who is told how far it is."""

_Values = tuple[str, ...]
"""One value of each key that varies, as `--set` takes them; an empty one takes the key out."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared: a recipe, the keys that vary, their values and the seeds."""

    recipe: str
    """The name of a shipped recipe, or a file."""
    vary: Mapping[str, tuple[str, ...]]
    """The values of each key, such as `model.score`; the first of all are what the others are
    measured by."""
    seeds: int = 5
    changes: tuple[str, ...] = ()
    """What else differs from the recipe, for all values alike."""

    def __post_init__(self) -> None:
        positive("seeds", self.seeds)
        for key, values in self.vary.items():
            if len(set(values)) != len(values) or not values:
                raise UserError(f"--vary {key} needs values that differ: {', '.join(values)}")
        for values in self.rows:  # every one is a recipe, or nothing is begun
            self.read(values, 0)

    @property
    def rows(self) -> list[_Values]:
        """Every value of one key with every value of the others."""
        return list(product(*self.vary.values()))

    def read(self, values: _Values, seed: int) -> Recipe:
        """The recipe of one run; seeds count from the recipe's own."""
        varied = [f"{key}={value}" for key, value in zip(self.vary, values, strict=True)]
        own = read_recipe(self.recipe, [*self.changes, *varied]).train.seed
        return read_recipe(self.recipe, [*self.changes, *varied, f"train.seed={own + seed}"])


def varied(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What varies, of texts such as `model.score=dot,additive`.

    >>> varied(["model.score=dot,additive", "model.source=,runs/elmo"])
    {'model.score': ('dot', 'additive'), 'model.source': ('', 'runs/elmo')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for key, values in map(_one_varied, texts):
        if key in found:
            raise UserError(f"--vary {key} stands twice; write all its values behind one")
        found[key] = values
    return found


def _one_varied(text: str) -> tuple[str, tuple[str, ...]]:
    """A key and its values; brackets keep their commas.

    >>> _one_varied("train.optimiser={name='sgd',lr=1},{name='adam',lr=0.1}")[1][1]
    "{name='adam',lr=0.1}"
    """
    key, equals, given = text.partition("=")
    if not equals or not given:
        raise UserError(f"--vary takes part.key=value,value,..., not {text!r}")
    values, depth = [""], 0
    for letter in given:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            values.append("")
        else:
            values[-1] += letter
    return key.strip(), tuple(value.strip() for value in values)


@dataclass(frozen=True)
class Trained:
    """One finished run."""

    seed: int
    measured: float
    parameters: int
    seconds: float
    memory: int
    """The most bytes that its process held."""


@dataclass(frozen=True)
class Row:
    """One value of each key, over all seeds."""

    values: _Values
    runs: tuple[Trained, ...]
    measured: Interval
    chance: float | None
    """How likely so large a difference from the first value is by chance; None of the first."""

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
        """Of training, on average."""
        return sum(run.seconds for run in self.runs) / len(self.runs)

    @property
    def memory(self) -> int:
        """The most bytes of any run."""
        return max(run.memory for run in self.runs)


@dataclass(frozen=True)
class Table:
    """What a comparison found."""

    comparison: Comparison
    metric: str
    split: str
    better: str
    rows: tuple[Row, ...]


def compare(
    comparison: Comparison,
    folder: Path,
    data: Path,
    *,
    workers: int | None = None,
    told: _Told = lambda text: None,
) -> Table:
    """Train all that is not trained yet, and gather the figures."""
    wanted = [
        (values, seed, _prepared(comparison, folder, values, seed))
        for values in comparison.rows
        for seed in range(comparison.seeds)
    ]
    missing = [where for _, _, where in wanted if not (where / "metrics.json").exists()]
    if missing:
        told(f"{len(missing)} of {len(wanted)} runs to train, in {folder}")
        _train_all(missing, data, workers or max(1, cores() // 2), told)
    return _gathered(comparison, wanted)


def _prepared(comparison: Comparison, folder: Path, values: _Values, seed: int) -> Path:
    """The folder of one run, with its recipe beside it; another recipe there is refused."""
    named = (f"{key}={value}" for key, value in zip(comparison.vary, values, strict=True))
    name = "".join(each if each.isalnum() or each in "-_.=," else "-" for each in ",".join(named))
    recipe = comparison.read(values, seed)
    where = folder / name / f"seed-{recipe.train.seed}"
    file = where.with_suffix(".toml")
    text = recipe.to_toml()
    if file.exists() and file.read_text(encoding="utf-8") != text:
        raise UserError(
            f"{file}: a comparison of another recipe was made here; choose another folder with "
            f"--runs, or remove {folder}"
        )
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
    return where


def _train_all(folders: Sequence[Path], data: Path, workers: int, told: _Told) -> None:
    """Train so many at a time; the first that fails ends it, and what was saved stays saved."""
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
                    told(f"{done}/{len(folders)} {folder.parent.name} {folder.name}")
        finally:
            pool.shutdown(cancel_futures=True)


def train_one(folder: Path, data: Path, threads: int) -> None:
    """Train, or go on training, in a process of its own.

    It has so many threads, unless the user has set OMP_NUM_THREADS: more threads than there are
    free cores wait for each other, and were seen to take thirty times as long.
    """
    begun = (folder / "recipe.toml").exists()
    verb = (
        ["resume", str(folder)]
        if begun
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
    made = subprocess.run(  # noqa: S603 - our own interpreter and our own files
        command, env=environment, capture_output=True, text=True, check=False
    )
    if made.returncode:
        said = made.stderr.strip().splitlines() or [f"it ended with {made.returncode}"]
        raise UserError(f"{folder}: training failed: {said[-1]}")


def _gathered(comparison: Comparison, wanted: Iterable[tuple[_Values, int, Path]]) -> Table:
    """The figures of finished runs, as a table."""
    leader = comparison.rows[0]
    metric, split, better = _judged(comparison.read(leader, 0))
    trained: dict[_Values, list[Trained]] = {values: [] for values in comparison.rows}
    for values, seed, folder in wanted:
        trained[values].append(_measured(folder, seed, metric, split))
    rows: list[Row] = []
    for values, runs in trained.items():
        figures = [run.measured for run in runs]
        first = [run.measured for run in trained[leader]]
        chance = None if not rows else paired_p(first, figures)
        rows.append(Row(values, tuple(runs), interval(figures), chance))
    return Table(comparison, metric, split, better, tuple(rows))


def _judged(recipe: Recipe) -> tuple[str, str, str]:
    """Metric, split and which way is better: those of the recipe's figure, else the loss."""
    figure = recipe.figure
    if figure is None:
        return "loss", "validation", "lower"
    return figure.metric, figure.split, figure.better


def _measured(folder: Path, seed: int, metric: str, split: str) -> Trained:
    """What a finished run left."""
    path = folder / "metrics.json"
    figures = json.loads(path.read_text(encoding="utf-8"))
    training = figures["training"]
    if metric not in figures.get(split, {}):
        known = ", ".join(sorted(figures.get(split, {})))
        raise UserError(f"{path}: there is no {split} {metric}; there are {known}")
    return Trained(
        seed,
        figures[split][metric],
        training["parameters"],
        training["seconds"],
        training["peak_bytes"],
    )


def folder_for(recipe: str, keys: Iterable[str], runs: Path) -> Path:
    """Where the runs of a comparison are kept."""
    name = recipe if recipe in shipped_recipes() else Path(recipe).stem
    return runs / f"compare-{name}" / ",".join(keys).replace(".", "-")
