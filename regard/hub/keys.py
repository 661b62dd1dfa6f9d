"""Names of tensors, ours and theirs, from one table both ways.

A row says where a tensor of ours stands in a foreign file: under another name, as several that are
joined (queries, keys and values), or turned on its side (GPT-2 keeps its matrices as x W). `{}` in
a name stands for the number of a layer.

>>> row = TensorRow("{}.project.weight", ("h.{}.q.weight", "h.{}.k.weight"))
>>> table = TensorTable((row,), layers=1)
>>> theirs = {"h.0.q.weight": torch.zeros(1, 2), "h.0.k.weight": torch.ones(1, 2)}
>>> ours, notes = tensors_to_ours(table, theirs, {"0.project.weight": torch.Size([2, 2])}, "file")
>>> ours["0.project.weight"].tolist(), notes
([[0.0, 0.0], [1.0, 1.0]], [])
>>> all(torch.equal(each, theirs[name]) for name, each in tensors_to_theirs(table, ours).items())
True
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from regard.core.errors import UserError
from regard.hub.store import list_names


@dataclass(frozen=True)
class TensorRow:
    """A tensor of ours, and the foreign ones that it is made of, joined along the first axis."""

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    unsqueezed: bool = False
    """Has the foreign one an axis more in front, of one element?"""

    def for_layer(self, layer: int) -> "TensorRow":
        """The row of one layer."""
        theirs = tuple(each.replace("{}", str(layer)) for each in self.theirs)
        return replace(self, ours=self.ours.replace("{}", str(layer)), theirs=theirs)


def weight_and_bias(
    ours: str, *theirs: str, transposed: bool = False, bias: bool = True
) -> list[TensorRow]:
    """The rows of a linear layer or a normalisation: weight and bias."""
    rows = [
        TensorRow(
            f"{ours}.weight", tuple(f"{each}.weight" for each in theirs), transposed=transposed
        )
    ]
    return (
        [*rows, TensorRow(f"{ours}.bias", tuple(f"{each}.bias" for each in theirs))]
        if bias
        else rows
    )


@dataclass(frozen=True)
class TensorTable:
    """All tensors of a model."""

    rows: Sequence[TensorRow]
    layers: int = 0
    prefix: str = ""
    """What foreign names begin with in some files and not in others: `bert.`"""
    bare: bool = False
    """Are names written without it?"""
    tied: Mapping[str, str] = field(default_factory=dict)
    """Foreign names that a file may hold besides the tensor that they are the same as."""
    ignored: tuple[str, ...] = ()
    """Patterns of foreign names that say nothing: tables of positions that anyone can count."""
    old: tuple[tuple[str, str], ...] = ()
    """How names ended once, and end now."""

    @property
    def all_rows(self) -> list[TensorRow]:
        """The rows with the numbers of layers in them."""
        found: list[TensorRow] = []
        for row in self.rows:
            many = "{}" in row.ours
            found += [row.for_layer(n) for n in range(self.layers)] if many else [row]
        return found

    def missing(self, names: Iterable[str]) -> list[str]:
        """Tensors that a file with these names does not hold."""
        held = self.renamed(names)
        held |= {first: name for name, first in self.tied.items() if name in held}
        return [each for row in self.all_rows for each in row.theirs if each not in held]

    def differing(self, tensors: Mapping[str, Tensor]) -> dict[str, str]:
        """Tied tensors that a file holds twice, with different numbers."""
        held = self.renamed(tensors)
        return {
            name: first
            for name, first in self.tied.items()
            if name in held
            and first in held
            and not torch.equal(tensors[held[name]], tensors[held[first]])
        }

    def renamed(self, names: Iterable[str]) -> dict[str, str]:
        """The names of a file by those that this table has for them."""
        known = {each for row in self.all_rows for each in row.theirs} | set(self.tied)
        found: dict[str, str] = {}
        for name in names:
            new = name
            for ended, ends in self.old:
                new = new.removesuffix(ended) + ends if new.endswith(ended) else new
            options = (new, self.prefix + new, new.removeprefix(self.prefix))
            meant = next((each for each in options if each in known), new)
            if meant in found and meant != name:  # held twice: the one that is spelled so counts
                meant = name
            elif meant in found:
                found[found[meant]] = found[meant]
            found[meant] = name
        return found


def tensors_to_ours(
    table: TensorTable, tensors: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], source: str
) -> tuple[dict[str, Tensor], list[str]]:
    """Our tensors from those of a file, and what there is to say of the file.

    `shapes` are those that the config asks for. A tensor that is missing, or of another shape, is
    refused; one that is not asked for is named.
    """
    names = table.renamed(tensors)
    held = {known: tensors[name] for known, name in names.items()}
    held |= {first: held[name] for name, first in table.tied.items() if name in held}
    notes: list[str] = []
    missing = table.missing(tensors)
    if missing:
        raise UserError(
            f"{source}: the weights lack {list_names(missing)}; the config asks for {len(missing)} "
            "tensors that are not there"
        )
    found = {row.ours: _joined(row, held, shapes, source) for row in table.all_rows}
    asked = {each for row in table.all_rows for each in row.theirs} | set(table.tied)
    surplus = [
        names[each]
        for each in held
        if each not in asked and not any(fnmatchcase(each, p) for p in table.ignored)
    ]
    if surplus:
        notes.append(f"left out, since this model has no place for it: {list_names(surplus)}")
    used = [held[each] for row in table.all_rows for each in row.theirs]
    kinds = {str(each.dtype).removeprefix("torch.") for each in used} - {"float32"}
    if kinds:
        notes.append(f"read as float32, and kept there as {', '.join(sorted(kinds))}")
    return found, notes


def _joined(
    row: TensorRow, held: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], source: str
) -> Tensor:
    """One tensor of ours, if its parts have the shapes that the config asks for."""
    wanted = list(shapes[row.ours])
    part = [wanted[0] // len(row.theirs), *wanted[1:]]
    part = part[::-1] if row.transposed else [1, *part] if row.unsqueezed else part
    for name in row.theirs:
        if list(held[name].shape) != part:
            raise UserError(
                f"{source}: {name} is {list(held[name].shape)}, and the config makes it {part}"
            )
        if not held[name].is_floating_point():
            raise UserError(f"{source}: {name} holds {held[name].dtype}, not weights")
    parts = [held[name].T if row.transposed else held[name] for name in row.theirs]
    parts = [each[0] for each in parts] if row.unsqueezed else parts
    joined = (parts[0] if len(parts) == 1 else torch.cat(parts)).float().contiguous()
    if not joined.isfinite().all():
        raise UserError(
            f"{source}: {' or '.join(row.theirs)} holds infinite numbers or none at all; the file "
            "was altered, or its training failed"
        )
    return joined


def tensors_to_theirs(table: TensorTable, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Foreign tensors from ours; all_rows one of ours must have a row."""
    rows = table.all_rows
    lost = sorted(set(tensors) - {row.ours for row in rows})
    if lost:
        raise UserError(f"this family has no place for {list_names(lost)}")
    found: dict[str, Tensor] = {}
    for row in rows:
        for name, part in zip(row.theirs, tensors[row.ours].chunk(len(row.theirs)), strict=True):
            written = name.removeprefix(table.prefix) if table.bare else name
            # A copy: parts of one tensor may not share its memory in a safetensors file.
            turned = part.T if row.transposed else part[None] if row.unsqueezed else part
            found[written] = turned.detach().clone().contiguous()
    return found
