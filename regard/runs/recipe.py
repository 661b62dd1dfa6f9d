"""A recipe: task, data, model and training settings in one TOML file.

Recipes shipped with the package have names, `regard train NAME`; any other is a file. `--set a.b=c`
changes one value. Unknown keys are refused, and the error names the nearest known one. Models,
tasks, scores and weighings of your own are named as `file.py:Class` (plugins.py).
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Literal

import tomli_w
from pydantic import BaseModel, Field, PositiveFloat, PositiveInt, model_validator
from torch import nn

from regard.core.config import Config, parse
from regard.core.errors import UserError, choose, unknown
from regard.core.folder import RECIPE_BYTES, parse_toml, read_text
from regard.runs.plugins import config_of, find_part, load_plugins, resolve_names
from regard.tasks import TASKS
from regard.tasks.task import OpenTask
from regard.train.settings import Training

_PARTS = ("about", "figure", "task", "data", "model", "train")
_DEFAULTS = {"weights": "best"}
"""Of the training of one's own recipe. Shipped ones keep to what their figures were measured by."""

_TRAINED = ("task", "data", "model", "train")
"""The parts that change what is trained."""


class About(Config):
    """A description of the recipe."""

    title: str = "A model of one's own"
    paper: str = ""
    """Authors, year and title."""
    minutes: PositiveFloat | None = None
    """On two CPU cores."""
    parameters: PositiveInt | None = None
    """Of the model, with the vocabulary of its data."""
    note: str = ""
    """Departures from the paper."""


class Figure(Config):
    """The result that a recipe must reach, and where that figure comes from."""

    metric: str
    split: Literal["validation", "test"]
    value: float
    """The published figure if `published`, else an own goal."""
    published: bool = False
    """Is `value` a figure that others have published?"""
    reach: float
    """The worst value that still counts as reached."""
    set_after_run: bool = False
    """Was `reach` set after a run of this recipe? Then reaching it shows repeatability alone."""
    better: Literal["lower", "higher"] = "lower"
    source: str
    over: dict[str, tuple[int | str, ...]] = Field(default_factory=dict)
    """The figure is that of several runs: a key of the recipe, and a run for each value."""
    join: Literal["mean", "worst"] = "mean"
    """How the figures of several runs become one."""

    @model_validator(mode="after")
    def _agree(self) -> "Figure":
        if len(self.over) > 1 or not all(self.over.values()):
            raise UserError('over must be one key with its values: over = { "data.task" = [1] }')
        return self

    @property
    def changes(self) -> tuple[str, ...]:
        """What each of several runs changes in the recipe, as `--set` has it.

        >>> from regard.core.config import parse
        >>> given = {"metric": "error", "split": "test", "value": 1, "reach": 2, "source": "own"}
        >>> parse(Figure, {**given, "over": {"data.task": [1, 2]}}).changes
        ('data.task=1', 'data.task=2')
        """
        return tuple(f"{key}={value}" for key, held in self.over.items() for value in held)

    def joined(self, values: Sequence[float]) -> float:
        """The figure of several runs."""
        if self.join == "mean":
            return sum(values) / len(values)
        return max(values) if self.better == "lower" else min(values)

    def is_reached(self, value: float) -> bool:
        """Is this value good enough?"""
        return self._at_least(value, self.reach)

    def verdict(self, value: float) -> str:
        """Which of its two figures this value meets."""
        reached = self.is_reached(value)
        if self.published and self._at_least(value, self.value):
            return "published met" + ("" if reached else ", own goal missed")
        if not reached:
            return "missed"
        return "own goal met" + (", set after a run" if self.set_after_run else "")

    def _at_least(self, value: float, other: float) -> bool:
        return value <= other if self.better == "lower" else value >= other


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe with its configs."""

    about: About
    figure: Figure | None
    task: str
    """The name of the task in TASKS, or of a plugin."""
    data: Config
    kind: str
    """The name of the model in MODELS, or of a plugin."""
    model: Config
    train: Training
    folder: Path | None = field(default=None, compare=False)
    """Where its file is; None for a recipe that comes with the package."""

    @property
    def task_class(self) -> type[OpenTask]:
        """The class of the task."""
        task = find_part("task", self.task)
        assert issubclass(task, OpenTask)
        return task

    @property
    def model_class(self) -> type[nn.Module]:
        """The class of the model."""
        model = find_part("model", self.kind)
        assert issubclass(model, nn.Module)
        return model

    @property
    def source(self) -> str | None:
        """The run folder whose model this one starts from, if there is one."""
        given = getattr(self.model, "source", None)
        return None if given is None else str(given)

    @property
    def reads_as_source(self) -> bool:
        """Do the data use the tokeniser of that run?"""
        return getattr(self.data, "tokeniser", None) == "source"

    def to_toml(self) -> str:
        """The recipe as TOML, with the values of all defaults."""
        tables: dict[str, object] = {"task": self.task, "about": config_values(self.about)}
        if self.figure is not None:
            tables["figure"] = config_values(self.figure)
        tables["data"] = config_values(self.data)
        tables["model"] = {"kind": self.kind, **config_values(self.model)}
        tables["train"] = config_values(self.train)
        return tomli_w.dumps(tables)


def shipped_recipes() -> dict[str, str]:
    """The text of every recipe in the package, by name."""
    folder = resources.files("regard.recipes")
    files = sorted(folder.iterdir(), key=lambda each: each.name)
    return {
        each.name.removesuffix(".toml"): each.read_text(encoding="utf-8")
        for each in files
        if each.name.endswith(".toml")
    }


def read_recipe(name: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of that name, or in that file, with some values changed: `model.width=64`."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise UserError(f"{path}: no such recipe file")
        in_run = (path.parent / "config.json").exists()
        text = read_text(path if in_run else path.resolve(), RECIPE_BYTES)
        return parse_recipe(text, str(path), changes, folder=path.parent, trusted=not in_run)
    return parse_recipe(choose("recipe", name, shipped_recipes()), name, changes)


def parse_recipe(
    text: str,
    source: str,
    changes: Sequence[str] = (),
    *,
    folder: Path | None = None,
    trusted: bool = True,
) -> Recipe:
    """A recipe from its text; `source` is its name in errors.

    Files of plugins are relative to `folder`, those of `changes` to the working directory. A recipe
    that is not trusted imports only plugins that were named on the command line (plugins.py).
    """
    tables = parse_toml(text, source)
    if folder is not None and isinstance(train := tables.get("train"), dict):
        tables["train"] = {**_DEFAULTS, **train}
    resolve_names(tables, folder or Path.cwd())
    absent = []
    for change in changes:
        key, _, given = change.partition("=")
        if not given and not _has_key(tables, key.strip()):
            absent.append(key.strip())
        set_value(tables, change)
    resolve_names(tables, Path.cwd())
    try:
        load_plugins(tables, trusted=trusted)
        recipe = replace(build_recipe(tables), folder=folder)
        for key in absent:
            _require_key(recipe, key)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    return recipe


def build_recipe(tables: Mapping[str, object]) -> Recipe:
    """A recipe from its tables."""
    for name in tables:
        if name not in _PARTS:
            raise unknown("part of a recipe", name, _PARTS)
    if "task" not in tables:
        raise UserError(f"task is missing; it is one of {', '.join(TASKS)}, or your own")
    task = str(tables["task"])
    model = dict(_table(tables, "model"))
    kind = str(model.pop("kind", ""))
    figure = tables.get("figure")
    return Recipe(
        about=parse(About, _table({"about": {}, **tables}, "about"), at="about"),
        figure=None if figure is None else parse(Figure, _table(tables, "figure"), at="figure"),
        task=task,
        data=parse(config_of("task", task), _table(tables, "data"), at="data"),
        kind=kind,
        model=parse(config_of("model", kind), model, at="model"),
        train=parse(Training, _table(tables, "train"), at="train"),
    )


def _table(tables: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A table of the recipe, which must exist."""
    found = tables.get(name)
    if not isinstance(found, Mapping):
        raise UserError(f"the table [{name}] is missing")
    return found


def set_value(tables: dict[str, object], change: str) -> None:
    """Change one value: `train.optimiser.lr=0.1`; what is not a TOML value is taken as text.

    Without a value, the key is removed from the recipe: `model.source=`.
    """
    path, equals, given = change.partition("=")
    *outer, last = path.strip().split(".")
    if not equals or not all((*outer, last)):
        raise UserError(f"--set takes part.key=value, not {change!r}")
    here: dict[str, object] = tables
    for name in outer:
        inner = here.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {change}: {name} is a value, not a table")
        here = inner
    if not given:
        here.pop(last, None)
        return
    try:
        here[last] = tomllib.loads(f"value = {given}")["value"]
    except tomllib.TOMLDecodeError:
        here[last] = given


def _has_key(tables: Mapping[str, object], key: str) -> bool:
    """Does a recipe have this key?

    >>> _has_key({"model": {"layers": 2}}, "model.layers"), _has_key({}, "model.layers")
    (True, False)
    """
    here: object = tables
    for name in key.split("."):
        if not isinstance(here, Mapping) or name not in here:
            return False
        here = here[name]
    return True


def _require_key(recipe: Recipe, key: str) -> None:
    """Raise if no recipe of this task and model has the key: a removed key is not checked else."""
    here: object = recipe
    for name in key.split("."):
        known = tuple(type(here).model_fields) if isinstance(here, BaseModel) else _PARTS
        if name not in known:
            raise unknown("key", name, known)
        here = getattr(here, name)


def differences(one: Recipe, other: Recipe) -> list[str]:
    """The keys that make two recipes train differently, each with its value in both."""
    values, others = (dict(_flat(tomllib.loads(each.to_toml()))) for each in (one, other))
    return [
        f"{key} is {values.get(key, 'not given')} and was {others.get(key, 'not given')}"
        for key in sorted(values | others)
        if key.split(".")[0] in _TRAINED and values.get(key) != others.get(key)
    ]


def _flat(tables: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every value by its whole key.

    >>> list(_flat({"train": {"optimiser": {"lr": 0.1}}}))
    [('train.optimiser.lr', 0.1)]
    """
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def config_values(config: BaseModel) -> dict[str, object]:
    """The values of a config for TOML; None is left out."""
    values: dict[str, object] = config.model_dump(mode="json", exclude_none=True)
    return values
