"""The table of public datasets: one TOML file in `sources/` for each.

A dataset has `original` files, as their authors publish them, and what is made of them for the
recipes: a `file`, a `folder` of files out of an archive, or a `pack`, an archive in another format.
What none of these can do is the work of a `converter` (convert.py).

>>> shakespeare = public_dataset("tinyshakespeare")
>>> shakespeare.original[0].name, shakespeare.file[0].path
('input.txt', 'input.txt.gz')
>>> command_to_get("tinyshakespeare/input.txt.gz")
'regard data get tinyshakespeare'
"""

import tomllib
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field as Bounded
from pydantic import PositiveInt

from regard.core.config import Config, parse
from regard.core.errors import choose, command

_Digest = Annotated[str, Bounded(pattern="^[0-9a-f]{64}$")]


class Original(Config):
    """A file as its authors publish it."""

    name: str
    """The name of the file."""
    urls: tuple[str, ...] = ()
    """Where it is published; the next one is tried where one fails. None: it is given on request,
    and `regard data get NAME --from FOLDER` converts it."""
    bytes: PositiveInt | None = None
    """Its size, where it is known."""
    sha256: _Digest | None = None
    """Its SHA-256, where it is known. Where it is not, the first download is trusted, and its
    digest is kept in SOURCE.json."""


class MadeFile(Config):
    """A file that recipes read; its name's suffix, .gz or .xz, is how it is compressed."""

    path: str
    """Its place in the folder of the dataset."""
    original: str | tuple[str, ...]
    """The original that it is made from, or several to be joined."""
    member: str | None = None
    """The file inside the original, which is an archive."""
    lines: PositiveInt | None = None
    """How many of the first lines are kept; else all."""
    bytes: PositiveInt | None = None
    """How many of the first bytes are kept; else all."""
    sha256: _Digest | None = None
    """Of the content, decompressed."""


class MadeFolder(Config):
    """A folder of files out of an archive."""

    path: str
    """Its place in the folder of the dataset."""
    original: str
    """The archive."""
    inside: str
    """The folder in the archive; `*` stands for any one name."""
    names: str = "*"
    """A pattern for the names of the files inside, such as `*.txt`; else all are taken."""
    files: PositiveInt
    """How many files there are."""
    sha256: _Digest | None = None
    """Of the list of all digests and names, sorted by name (`list_digest`)."""


class MadePack(MadeFolder):
    """An archive (.tar.xz or .zip) of files out of another."""

    name_as: str = ""
    """What stands in the new archive for `inside`."""


class PublicDataset(Config):
    """A dataset: its source, its licence, and what is made of it."""

    name: str
    """The name of the folder that recipes read."""
    title: str
    """What it is, in a line."""
    home: str
    """The page or repository of the people who publish it."""
    licence: str
    """Its licence, or what is known of it."""
    cite: str = ""
    """The paper."""
    note: str = ""
    """What else a user must know: how the files differ from the original, what is not verified."""
    needs: tuple[str, ...] = ()
    """Packages that the converter imports, by their name in `regard[...]`."""
    converter: str = ""
    """A name in CONVERTERS (convert.py), for what files, folders and packs cannot describe."""
    makes: tuple[str, ...] = ()
    """The files that the converter writes."""
    original: tuple[Original, ...]
    file: tuple[MadeFile, ...] = ()
    folder: tuple[MadeFolder, ...] = ()
    pack: tuple[MadePack, ...] = ()

    @property
    def size(self) -> int | None:
        """Bytes to download; None if that of any original is unknown."""
        sizes = [each.bytes for each in self.original]
        return None if None in sizes else sum(each for each in sizes if each is not None)

    @property
    def is_downloadable(self) -> bool:
        """Has every original an address?"""
        return all(each.urls for each in self.original)

    @property
    def paths(self) -> tuple[str, ...]:
        """All files and folders that are made."""
        rows: tuple[MadeFile | MadeFolder, ...] = (*self.file, *self.folder, *self.pack)
        return (*(each.path for each in rows), *self.makes)


@cache
def public_datasets() -> dict[str, PublicDataset]:
    """Every dataset of the table, by name."""
    made = {}
    folder = resources.files("regard.datasets").joinpath("sources")
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".toml"):
            name = file.name.removesuffix(".toml")
            values = {"name": name, **tomllib.loads(file.read_text(encoding="utf-8"))}
            made[name] = parse(PublicDataset, values, at=file.name)
    return made


def public_dataset(name: str) -> PublicDataset:
    """A dataset by its name."""
    return choose("dataset", name, public_datasets())


def command_to_get(path: str) -> str | None:
    """The command that provides a file of the data folder; None if no dataset has it.

    >>> command_to_get("mine/train.txt") is None
    True
    """
    first = PurePosixPath(path).parts[:1]
    return command("data", "get", *first) if first and first[0] in public_datasets() else None
