"""Static files: what the page is made of, as a table, so that no path leads anywhere else."""

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

_FOLDERS = {"": files("regard.serve") / "static", "look/": files("regard.look") / "static"}
"""Folders of the package by the beginning of the paths that lead there."""

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
}
"""What is served, by how its name ends."""


@dataclass(frozen=True)
class File:
    """The bytes of a file, what they are, and a name for exactly these."""

    data: bytes
    kind: str
    tag: str


def static_files() -> dict[str, File]:
    """Every file by its path under /static/."""
    return {
        f"{prefix}{each.name}": _read_static(each)
        for prefix, folder in _FOLDERS.items()
        if folder.is_dir()
        for each in folder.iterdir()
        if each.name[each.name.rfind(".") :] in _TYPES
    }


def _read_static(path: Traversable) -> File:
    """One file, as it is now."""
    data = path.read_bytes()
    ending = path.name[path.name.rfind(".") :]
    return File(data, _TYPES[ending], f'"{sha256(data).hexdigest()[:32]}"')
