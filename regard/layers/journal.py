"""Tensors that change in place, a few rows at a time, and can go back to any earlier version.

A `Version` is a value: whoever has one can read the tensors as they were then, however often they
have changed since. All versions share one copy of the tensors. Each change keeps the few rows it
replaces, and going back puts them in again (Baker 1978, shallow binding: persistent arrays). A
version that nobody has any more costs nothing.

>>> first = journal_of({"numbers": torch.zeros(4)})
>>> with first.change() as change:
...     change.keep("numbers", torch.tensor([2]))
...     _ = change["numbers"].index_fill_(0, torch.tensor([2]), 7.0)
>>> change.after.read("numbers").tolist(), first.read("numbers").tolist()
([0.0, 0.0, 7.0, 0.0], [0.0, 0.0, 0.0, 0.0])
>>> change.after.read("numbers").tolist()
[0.0, 0.0, 7.0, 0.0]
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch as torch
from torch import Tensor

Rows = tuple[str, Tensor, Tensor]
"""The name of a tensor, row numbers, and the values of these rows."""


class Journal:
    """The one copy of the tensors, at the version that was read or changed last."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)

    def put(self, rows: Rows) -> Rows:
        """Put rows in, and return those that they replace."""
        name, index, values = rows
        tensor = self.tensors[name]
        before = tensor.index_select(0, index)
        tensor.index_copy_(0, index, values)
        return name, index, before


class Version:
    """The tensors at one time."""

    __slots__ = ("journal", "newer", "replaced")

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.newer: Version | None = None
        """The version between this one and that of the tensors; None if they are at this one."""
        self.replaced: list[Rows] = []
        """What to put in to come here from `newer`."""

    def restore(self) -> None:
        """Bring the tensors to this version, from whichever they are at."""
        path: list[Version] = []
        version = self
        while version.newer is not None:
            path.append(version)
            version = version.newer
        for version in reversed(path):
            newer = version.newer
            assert newer is not None
            newer.replaced = [self.journal.put(rows) for rows in version.replaced][::-1]
            newer.newer = version
            version.newer, version.replaced = None, []

    def read(self, name: str) -> Tensor:
        """A tensor at this version; it is valid until another version is read or changed."""
        if self.newer is not None:
            self.restore()
        return self.journal.tensors[name]

    @contextmanager
    def change(self) -> Iterator["RowChange"]:
        """RowChange rows in place; `after` of the change is the new version."""
        self.restore()
        change = RowChange(self)
        yield change
        self.newer, self.replaced = change.after, change.kept[::-1]


class RowChange:
    """Changes that make one version of another."""

    def __init__(self, before: Version) -> None:
        self.before = before
        self.after = Version(before.journal)
        self.kept: list[Rows] = []

    def __getitem__(self, name: str) -> Tensor:
        return self.before.journal.tensors[name]

    def keep(self, name: str, index: Tensor) -> None:
        """Keep rows, right before they are changed."""
        self.kept.append((name, index, self[name].index_select(0, index)))


def journal_of(tensors: Mapping[str, Tensor]) -> Version:
    """The first version of some tensors, which belong to the journal from now on."""
    return Version(Journal(tensors))
