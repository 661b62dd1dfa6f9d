"""Results: what runs of the shipped recipes measured, kept in one JSON file for each recipe.

`regard reproduce NAME --record results` adds a run to results/NAME.json. Each one has the digest of
its recipe, so a result whose recipe has changed since is recognised as stale.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, PositiveInt

from regard.core.atomic import write_json_file
from regard.core.config import Config, parse
from regard.core.errors import UserError
from regard.core.folder import read_json_object
from regard.runs.recipe import Recipe, parse_recipe, read_recipe, shipped_recipes

_DIGITS = 16
"""Of a digest: enough to tell recipes apart, short enough to be read."""

_NO_EFFECT = ("seed", "log_every", "tensorboard")
"""Keys of `[train]` that are no part of a digest: the seed is kept beside it."""


class Result(Config):
    """One run of a recipe, and what it measured."""

    seed: int
    changes: tuple[str, ...] = ()
    """What differs from the shipped recipe, as for `--set`."""
    digest: str | None = None
    """Of the recipe, with its changes; None if it is not known."""
    commit: str | None = None
    processor: str | None = None
    threads: int | None = None
    torch: str | None = None
    minutes: float | None = None
    """Of training."""
    metrics: dict[str, dict[str, float]]
    """Every metric by split."""
    by_hand: str | None = None
    """Where the figure was copied from, if no run folder was at hand."""
    seeds: PositiveInt = 1
    """How many seeds a figure that was copied by hand is the mean of."""


class Results(Config):
    """All results of one recipe."""

    recipe: str
    runs: tuple[Result, ...] = ()


def recipe_digest(recipe: Recipe) -> str:
    """Of what a recipe trains: its given values without the seed, and those of its source.

    >>> text = shipped_recipes()["dates"]
    >>> same = parse_recipe(text, "dates", ["train.seed=7", "about.minutes=3"])
    >>> recipe_digest(parse_recipe(text, "dates")) == recipe_digest(same)
    True
    >>> recipe_digest(parse_recipe(text, "dates", ["model.width=7"])) == recipe_digest(same)
    False
    """
    model, train = _given(recipe.model), _given(recipe.train)
    if recipe.source is not None:
        model["source"] = _source_digest(recipe.source)
    values = {
        "task": recipe.task,
        "data": _given(recipe.data),
        "model": {"kind": recipe.kind, **model},
        "train": {key: value for key, value in train.items() if key not in _NO_EFFECT},
    }
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _given(config: BaseModel) -> dict[str, object]:
    """The values that a recipe gives, without the defaults of the others."""
    values: dict[str, object] = config.model_dump(mode="json", exclude_unset=True)
    return values


def _source_digest(folder: str) -> str:
    """Of the shipped recipe that the source run is named after, else the name of its folder."""
    name = Path(folder).name
    text = shipped_recipes().get(name)
    return name if text is None else f"{name} {recipe_digest(parse_recipe(text, name))}"


def digest_now(name: str, changes: Sequence[str] = ()) -> str | None:
    """The digest that a shipped recipe with some changes has now; None if it cannot be read."""
    try:
        return recipe_digest(read_recipe(name, changes))
    except UserError:
        return None


def record_result(
    name: str,
    changes: Sequence[str],
    run: Path,
    folder: Path,
    parts: Sequence[tuple[str, Path]] = (),
) -> Path:
    """Add a finished run to the results of a shipped recipe; returns the file.

    A run with the same seed and changes takes the place of the one that was there. A figure over
    several runs has `parts`: what each of them changes, and its folder.
    """
    if name not in shipped_recipes():
        raise UserError(
            f"--record keeps results of shipped recipes (see regard zoo), not of {name}"
        )
    recipe = read_recipe(name, changes)
    kept = _kept_changes(name, changes)
    made = _joined(recipe, kept, parts) if parts else _result(recipe, kept, run)
    path = folder / f"{name}.json"
    held = read_results(path).runs if path.exists() else ()
    others = [each for each in held if (each.seed, each.changes) != (made.seed, made.changes)]
    runs = sorted((*others, made), key=lambda each: (each.changes, each.seed))
    results = Results(recipe=name, runs=tuple(runs))
    write_json_file(path, results.model_dump(mode="json", exclude_defaults=True))
    return path


def _kept_changes(name: str, changes: Sequence[str]) -> tuple[str, ...]:
    """Changes that make it another experiment: not the seed, nor the place of the same source.

    >>> _kept_changes("sst-bert", ["train.seed=2", "model.source=/far/imdb-bert", "train.epochs=1"])
    ('train.epochs=1',)
    """
    source = read_recipe(name).source
    same = "" if source is None else Path(source).name
    return tuple(
        sorted(
            change
            for change in changes
            if not change.startswith(tuple(f"train.{key}=" for key in _NO_EFFECT))
            and not (same and change.startswith("model.source=") and change.endswith(f"/{same}"))
        )
    )


def _result(recipe: Recipe, changes: tuple[str, ...], run: Path) -> Result:
    """What a run folder says of itself."""
    measured = read_json_object(run / "metrics.json")
    training = measured.get("training")
    about = dict(training) if isinstance(training, dict) else {}
    return parse(
        Result,
        {
            "seed": recipe.train.seed,
            "changes": changes,
            "digest": recipe_digest(recipe),
            **{key: about.get(key) for key in ("commit", "processor", "threads", "torch")},
            "minutes": round(float(about.get("seconds", 0.0)) / 60, 2),
            "metrics": {key: each for key, each in measured.items() if key != "training"},
        },
        at=str(run / "metrics.json"),
    )


def _joined(recipe: Recipe, changes: tuple[str, ...], parts: Sequence[tuple[str, Path]]) -> Result:
    """Several runs as one result: their joined metrics, and the figure of each beside them."""
    figure = recipe.figure
    assert figure is not None
    runs = [(change, _result(recipe, changes, run)) for change, run in parts]
    metrics: dict[str, dict[str, float]] = {}
    for split, first in runs[0][1].metrics.items():
        shared = [key for key in first if all(key in run.metrics[split] for _, run in runs)]
        metrics[split] = {
            key: figure.joined([run.metrics[split][key] for _, run in runs]) for key in shared
        }
        metrics[split] |= {
            f"{figure.metric} {change}": run.metrics[split][figure.metric]
            for change, run in runs
            if figure.metric in run.metrics[split]
        }
    minutes = [run.minutes or 0.0 for _, run in runs]
    return runs[0][1].model_copy(update={"metrics": metrics, "minutes": round(sum(minutes), 2)})


def read_results(path: Path) -> Results:
    """The results in one file."""
    return parse(Results, read_json_object(path), at=str(path))
