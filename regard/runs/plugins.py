"""Your own models, scores, weighings and tasks, named in a recipe: no fork needed.

A recipe names a class in a file or in an installed module where it could name one of ours:

    task = "mine.py:MyTask"
    [model]
    kind = "mine.py:MyModel"
    score = "mypackage.scores:Cubic"

A file is relative to the recipe, or to the working directory in `--set model.kind=mine.py:MyModel`.
A package can give its parts plain names with entry points in the groups `regard.models`,
`regard.scores`, `regard.weighs` and `regard.tasks`.

A recipe that you train from may import. A run folder may not: it could come from anyone. To open a
run that was made with a plugin, name the plugin again, `--plugin mine.py:MyModel` or
`regard.load(folder, plugins=["mine.py:MyModel"])`. Entry points are found without that, since they
belong to packages that you installed.
"""

import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from torch import nn

from regard.attention import SCORES, WEIGHS, Score, Weigh, register_score, register_weigh
from regard.core.config import Config
from regard.core.errors import UserError, nearest, unknown
from regard.models import MODELS
from regard.tasks import TASKS
from regard.tasks.task import OpenTask

_ALLOWED = "REGARD_PLUGINS"
"""The environment variable with the plugins that run folders may use, so that child processes have
them too."""

_SPEC = re.compile(r"(?P<place>[^:]+):(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class PartKind:
    """A kind of part that users can add."""

    noun: str
    table: Mapping[str, type]
    """Ours, by name."""
    base: type
    """What a class must derive from."""
    config: str | None = None
    """The class attribute that must be a Config."""

    @property
    def group(self) -> str:
        """The group of entry points."""
        return f"regard.{self.noun}s"


KINDS_OF_PARTS = {
    "model": PartKind("model", MODELS, nn.Module, "Config"),
    "task": PartKind("task", TASKS, OpenTask, "Data"),
    "score": PartKind("score", SCORES, Score),
    "weigh": PartKind("weigh", WEIGHS, Weigh),
}


@dataclass(frozen=True)
class Plugin:
    """A class by where it is."""

    place: str
    """The absolute path of a file, or the name of a module."""
    name: str

    @staticmethod
    def parse(text: str, folder: Path) -> "Plugin | None":
        """The plugin that a text names, its file relative to a folder; None if it names none.

        >>> Plugin.parse("mypackage.scores:Cubic", Path("."))
        Plugin(place='mypackage.scores', name='Cubic')
        >>> Plugin.parse("additive", Path("."))
        """
        match = _SPEC.fullmatch(text)
        if match is None:
            return None
        place, name = match["place"], match["name"]
        if place.endswith(".py") or "/" in place or os.sep in place:
            place = str((folder / Path(place).expanduser()).resolve())
        return Plugin(place, name)

    @property
    def is_file(self) -> bool:
        """Is it in a file, rather than in a module?"""
        return os.path.isabs(self.place)

    @property
    def home(self) -> str:
        """The module, or the file without its folder: the file may have moved since."""
        return Path(self.place).name if self.is_file else self.place

    def __str__(self) -> str:
        return f"{self.place}:{self.name}"


_LOADED: dict[tuple[str, str], type] = {}
"""The classes of plugins by the noun and the name in a recipe."""


def allow_plugin(text: str) -> None:
    """Let run folders import a plugin's file or module, in this process and in its children."""
    plugin = Plugin.parse(text, Path.cwd())
    if plugin is None:
        raise UserError(f"--plugin takes file.py:Class or package.module:Class, not {text!r}")
    listed = os.environ.get(_ALLOWED, "").split(",")
    if str(plugin) not in listed:
        os.environ[_ALLOWED] = ",".join([*filter(None, listed), str(plugin)])


def _allowed_places() -> dict[str, str]:
    """The files and modules that run folders may import, by `Plugin.home`."""
    texts = os.environ.get(_ALLOWED, "").split(",")
    plugins = [Plugin.parse(text.strip(), Path.cwd()) for text in texts]
    return {plugin.home: plugin.place for plugin in plugins if plugin is not None}


def resolve_names(tables: dict[str, object], folder: Path) -> None:
    """Make the file of every plugin in a recipe absolute, in place."""
    for holder, key, _ in _names(tables):
        plugin = Plugin.parse(str(holder[key]), folder)
        if plugin is not None:
            holder[key] = str(plugin)


def load_plugins(tables: dict[str, object], *, trusted: bool) -> None:
    """Import the plugins that a recipe names; if it is not trusted, only those that are allowed."""
    needed: list[tuple[PartKind, str, Plugin]] = []
    for holder, key, kind in _names(tables):
        text = str(holder[key])
        plugin = Plugin.parse(text, Path.cwd())
        if plugin is None:
            _load_entry_point(kind, text)
        else:
            needed.append((kind, text, plugin))
    if trusted:
        for _, text, _ in needed:
            allow_plugin(text)
    places = _allowed_places()
    missing = [plugin for _, _, plugin in needed if plugin.home not in places]
    if missing:
        names = ", ".join(f"{plugin.home}:{plugin.name}" for plugin in missing)
        options = " ".join(f"--plugin {plugin}" for plugin in missing)
        raise UserError(
            f"this run was made with {names}, and regard imports no code that only a run folder "
            f"names: if you trust it, name it again with {options}"
        )
    for kind, text, plugin in needed:
        _register(kind, text, _import_class(kind, Plugin(places[plugin.home], plugin.name)))


def _names(tables: dict[str, object]) -> Iterator[tuple[dict[str, object], str, PartKind]]:
    """Every place in a recipe that names a part: the table, the key and the kind of part."""
    if isinstance(tables.get("task"), str):
        yield tables, "task", KINDS_OF_PARTS["task"]
    model = tables.get("model")
    if not isinstance(model, dict):
        return
    if isinstance(model.get("kind"), str):
        yield model, "kind", KINDS_OF_PARTS["model"]
    yield from _attention_names(model)


def _attention_names(
    table: dict[str, object],
) -> Iterator[tuple[dict[str, object], str, PartKind]]:
    """The keys `score`, `weigh`, `encoder_score`, ... of a table and of those inside it."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _attention_names(value)
        elif isinstance(value, str) and key.endswith(("score", "weigh")):
            yield table, key, KINDS_OF_PARTS["score" if key.endswith("score") else "weigh"]


def find_part(noun: str, name: str) -> type:
    """The class of a name in a recipe: ours, a plugin that was loaded, or an entry point's."""
    kind = KINDS_OF_PARTS[noun]
    if name in kind.table:
        return kind.table[name]
    _load_entry_point(kind, name)
    if (noun, name) in _LOADED:
        return _LOADED[noun, name]
    known = {*kind.table, *entry_points(group=kind.group).names}
    hint = f"; your own is named as file.py:Class, or as an entry point of {kind.group}"
    raise UserError(f"{unknown(noun, name, known)}{hint}")


def config_of(noun: str, name: str) -> type[Config]:
    """The class with the settings of a model or of a task's data."""
    config: object = getattr(find_part(noun, name), KINDS_OF_PARTS[noun].config or "")
    assert isinstance(config, type)
    assert issubclass(config, Config)
    return config


def _load_entry_point(kind: PartKind, name: str) -> None:
    """Register the entry point of that name, if there is one and no part of ours has the name."""
    if name in kind.table or (kind.noun, name) in _LOADED:
        return
    for entry in entry_points(group=kind.group, name=name):
        plugin = Plugin.parse(entry.value.replace(" ", ""), Path.cwd())
        if plugin is None:
            raise UserError(f"entry point {name} of {kind.group}: {entry.value!r} names no class")
        _register(kind, name, _import_class(kind, plugin))


def _register(kind: PartKind, name: str, part: type) -> None:
    _LOADED[kind.noun, name] = part
    if issubclass(part, Score):
        register_score(name, part)
    if issubclass(part, Weigh):
        register_weigh(name, part)


def _import_class(kind: PartKind, plugin: Plugin) -> type:
    """The class of a plugin, checked."""
    module = _import_file(plugin) if plugin.is_file else _import_module(plugin)
    part: object = getattr(module, plugin.name, None)
    where = f"{plugin.place} has no {plugin.name}"
    if part is None:
        own = [name for name, value in vars(module).items() if isinstance(value, type)]
        guess = nearest(plugin.name, own)
        raise UserError(f"{where}" + (f"; did you mean {guess}?" if guess else ""))
    base = f"{kind.base.__module__}.{kind.base.__qualname__}"
    if not isinstance(part, type) or not issubclass(part, kind.base):
        what = (
            f"a class without that base ({part.__mro__[1].__name__})"
            if isinstance(part, type)
            else f"a {type(part).__name__}"
        )
        raise UserError(f"{plugin}: a {kind.noun} must be a subclass of {base}, and this is {what}")
    if inspect.isabstract(part):
        missing = ", ".join(name for name in dir(part) if _is_abstract(part, name))
        raise UserError(f"{plugin}: this {kind.noun} lacks what {base} leaves open: {missing}")
    config: object = getattr(part, kind.config, None) if kind.config else Config
    if not isinstance(config, type) or not issubclass(config, Config):
        raise UserError(
            f"{plugin}: this {kind.noun} has no {kind.config}: a class inside it, derived from "
            "regard.core.config.Config, with what a recipe may choose"
        )
    return part


def _is_abstract(part: type, name: str) -> bool:
    return bool(getattr(getattr(part, name, None), "__isabstractmethod__", False))


def _import_module(plugin: Plugin) -> ModuleType:
    try:
        return import_module(plugin.place)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (plugin.place == missing or plugin.place.startswith(f"{missing}.")):
            raise UserError(
                f"{plugin}: there is no module {missing}; install its package, or name a file: "
                "path/to/file.py:Class"
            ) from None
        raise _import_error(plugin, error) from error


def _import_file(plugin: Plugin) -> ModuleType:
    """The module of a file, imported once; modules beside it can be imported by it."""
    path = Path(plugin.place)
    name = f"regard_plugin_{path.stem}_{sha256(plugin.place.encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise UserError(f"{plugin}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{plugin}: {path} is not a Python file (its name must end in .py)")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_error(plugin, error) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _import_error(plugin: Plugin, error: BaseException) -> UserError:
    """What went wrong while a plugin was imported, with the file and the line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == plugin.place] or list(frames)
    place, line, what = own[-1].filename, own[-1].lineno, str(error)
    if isinstance(error, SyntaxError):
        place, line, what = error.filename or place, error.lineno or line, error.msg
    return UserError(f"{plugin} cannot be imported: {place}:{line}: {type(error).__name__}: {what}")
