"""A recipe: everything a training needs to know, in one TOML file.

Recipes shipped with the package have names, `regard train NAME`; any other is a file. `--set a.b=c`
changes one value on the way. Unknown keys are refused, and the nearest known one is named.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import tomli_w
from pydantic import BaseModel, PositiveFloat, PositiveInt

from regard.core.config import Config, parse
from regard.core.errors import UserError, choose, unknown
from regard.models import MODELS
from regard.tasks import TASKS
from regard.train.settings import Training

_PARTS = ("about", "figure", "task", "data", "model", "train")
_TRAINED = ("task", "data", "model", "train")
"""Those on which it depends what is trained."""


class About(Config):
    """What a recipe is, for people."""

    title: str
    paper: str
    """Who wrote it, when, and what."""
    minutes: PositiveFloat
    """On two CPU cores."""
    parameters: PositiveInt | None = None
    """Of the model, with the vocabulary of its data."""
    note: str = ""
    """Departures from the paper."""


class Figure(Config):
    """What a recipe promises to reach, and where that figure comes from."""

    metric: str
    split: Literal["validation", "test"]
    value: float
    """As published or as set."""
    reach: float
    """The worst that still counts as reached."""
    better: Literal["lower", "higher"] = "lower"
    source: str

    def reached(self, value: float) -> bool:
        """Is this as good as promised?"""
        return value <= self.reach if self.better == "lower" else value >= self.reach


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe, read and checked."""

    about: About
    figure: Figure | None
    task: str
    data: Config
    kind: str
    """The model's name in MODELS."""
    model: Config
    train: Training

    @property
    def source(self) -> str | None:
        """The run folder that the model begins with, if it takes one."""
        given = getattr(self.model, "source", None)
        return None if given is None else str(given)

    @property
    def reads_as_source(self) -> bool:
        """Are the data in the tokeniser of that run?"""
        return getattr(self.data, "tokeniser", None) == "source"

    def to_toml(self) -> str:
        """Every value written out, also those that were not given."""
        tables: dict[str, object] = {"task": self.task, "about": written(self.about)}
        if self.figure is not None:
            tables["figure"] = written(self.figure)
        tables["data"] = written(self.data)
        tables["model"] = {"kind": self.kind, **written(self.model)}
        tables["train"] = written(self.train)
        return tomli_w.dumps(tables)


def shipped() -> dict[str, str]:
    """The text of every recipe in the package, by name."""
    folder = resources.files("regard.recipes")
    files = sorted(folder.iterdir(), key=lambda each: each.name)
    return {
        each.name.removesuffix(".toml"): each.read_text(encoding="utf-8")
        for each in files
        if each.name.endswith(".toml")
    }


def read(name: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of that name, or in that file, with some values changed: `model.width=64`."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise UserError(f"{path}: no such recipe file")
        text, source = text_in(path), str(path)
    else:
        text, source = choose("recipe", name, shipped()), name
    return parsed(text, source, changes)


def text_in(path: Path) -> str:
    """The text of a small file that is there."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1}, 0x{error.object[error.start]:02x}"
        raise UserError(f"{path}: {place}, is not UTF-8; save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def parsed(text: str, source: str, changes: Sequence[str] = ()) -> Recipe:
    """A recipe from its text."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source}: not TOML: {error}") from None
    absent = []
    for change in changes:
        key, _, given = change.partition("=")
        if not given and not _holds(tables, key.strip()):
            absent.append(key.strip())
        set_value(tables, change)
    try:
        recipe = checked(tables)
        for key in absent:
            _require_key(recipe, key)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    return recipe


def checked(tables: Mapping[str, object]) -> Recipe:
    """A recipe from its tables."""
    for name in tables:
        if name not in _PARTS:
            raise unknown("part of a recipe", name, _PARTS)
    task = choose("task", str(tables.get("task", "language_model")), TASKS)
    model = dict(table(tables, "model"))
    kind = str(model.pop("kind", ""))
    config = vars(choose("model", kind, MODELS))["Config"]
    assert isinstance(config, type)
    assert issubclass(config, Config)
    figure = tables.get("figure")
    return Recipe(
        about=parse(About, table(tables, "about"), at="about"),
        figure=None if figure is None else parse(Figure, table(tables, "figure"), at="figure"),
        task=str(tables.get("task", "language_model")),
        data=parse(task.Data, table(tables, "data"), at="data"),
        kind=kind,
        model=parse(config, model, at="model"),
        train=parse(Training, table(tables, "train"), at="train"),
    )


def table(tables: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A table of the recipe, which must be there."""
    found = tables.get(name)
    if not isinstance(found, Mapping):
        raise UserError(f"the table [{name}] is missing")
    return found


def set_value(tables: dict[str, object], change: str) -> None:
    """Change one value: `train.optimiser.lr=0.1`; what is no TOML value is taken as text.

    Nothing behind the sign takes the value out, as if the recipe did not have it: `model.source=`.
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


def _holds(tables: Mapping[str, object], key: str) -> bool:
    """Has a recipe this key?

    >>> _holds({"model": {"layers": 2}}, "model.layers"), _holds({"task": "tag"}, "model.layers")
    (True, False)
    """
    here: object = tables
    for name in key.split("."):
        if not isinstance(here, Mapping) or name not in here:
            return False
        here = here[name]
    return True


def _require_key(recipe: Recipe, key: str) -> None:
    """Refuse a key that no recipe of this task and model has: what is taken out is not checked."""
    here: object = recipe
    for name in key.split("."):
        known = tuple(type(here).model_fields) if isinstance(here, BaseModel) else _PARTS
        if name not in known:
            raise unknown("key", name, known)
        here = getattr(here, name)


def differences(one: Recipe, other: Recipe) -> list[str]:
    """Where two recipes do not train the same: each key with its value in both."""
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


def written(config: BaseModel) -> dict[str, object]:
    """The values of a config that TOML can hold; None is left out."""
    values: dict[str, object] = config.model_dump(mode="json", exclude_none=True)
    return values
