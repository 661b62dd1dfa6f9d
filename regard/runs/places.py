"""Where the files of a recipe are: beside it, in the current folder, or in REGARD_DATA.

They are looked for in that order, each file by itself. Where all are in one folder, that is the
data folder of the run, and it keeps their names as they are; others become absolute.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from glob import has_magic
from pathlib import Path

from regard.core.config import Config, parse
from regard.runs.recipe import Recipe, config_values
from regard.tasks.task import found

_FILE_KEYS = ("train", "validation", "test", "vectors", "reference")
"""The keys of `[data]` that name files."""


def find_data(recipe: Recipe, given: Path | None) -> tuple[Recipe, Path]:
    """A recipe whose files were found, and its data folder; `given` is the one of `--data`."""
    if given is not None:
        return recipe, given
    folders = _folders(recipe)
    data = config_values(recipe.data)
    names = [name for key in _FILE_KEYS for name in _names(data.get(key))]
    origin = str(data.get("origin", ""))
    homes = {name: _home(name, folders, origin) for name in names}
    last = list(folders.values())[-1]
    base = next(iter(homes.values())) if len(set(homes.values())) == 1 else last
    moved = {name: str((home / name).resolve()) for name, home in homes.items() if home != base}
    if not moved:
        return recipe, base
    tables = {key: _moved(each, moved) if key in _FILE_KEYS else each for key, each in data.items()}
    config: Config = parse(type(recipe.data), tables, at="data")
    return replace(recipe, data=config), base


def _folders(recipe: Recipe) -> dict[str, Path]:
    """The folders to look in, by what errors call them; each once."""
    known: dict[str, Path] = {}
    if recipe.folder is not None:
        known[f"beside the recipe ({recipe.folder})"] = recipe.folder
    known["in the current folder"] = Path()
    if "REGARD_DATA" in os.environ:
        place = os.environ["REGARD_DATA"]
        known[f"in REGARD_DATA ({place})"] = Path(place)
    else:
        known["in REGARD_DATA (which is not set)"] = Path()
    return known


def _home(name: str, folders: Mapping[str, Path], origin: str) -> Path:
    """The first of the folders that has a file."""
    for folder in folders.values():
        if _has(folder, name):
            return folder
    found(list(folders.values())[-1], name, origin, list(folders))
    raise AssertionError("a file that is nowhere")


def _has(folder: Path, name: str) -> bool:
    """Is there such a file? `*` in a name matches anything, and so does a word in braces."""
    pattern = re.sub(r"\{\w+\}", "*", name)
    if not has_magic(pattern):
        return (folder / name).exists()
    return next(folder.glob(pattern), None) is not None


def _names(value: object) -> Iterator[str]:
    """The relative names of files in a value; stdin is none."""
    if isinstance(value, str):
        if value != "-" and not Path(value).is_absolute():
            yield value
    elif isinstance(value, Sequence):
        for each in value:
            yield from _names(each)


def _moved(value: object, moved: Mapping[str, str]) -> object:
    """A value with some names replaced."""
    if isinstance(value, str):
        return moved.get(value, value)
    return [_moved(each, moved) for each in value] if isinstance(value, Sequence) else value
