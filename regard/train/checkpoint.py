"""Checkpoint: a folder from which training goes on, or which is known to be torn.

A checkpoint is `NAME/` with safetensors files, `facts.json`, and `manifest.json`, which holds the
length and the SHA-256 sum of each file and of itself. It is written as `NAME.draft`, synced to the
disk and renamed, so that whatever happens in between leaves those before it as they were. Reading
one checks every byte.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from regard.core.atomic import settle
from regard.core.errors import UserError
from regard.train.durable import Sum, tensor_pieces, write

_FORMAT = 1
"""Goes up when an older version could no longer read what is written."""

MANIFEST, FACTS, TENSORS = "manifest.json", "facts.json", ".safetensors"


class TornError(UserError):
    """A checkpoint whose files are not the ones that were written."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Tensors by part (model, optimiser, ...) and by name, and whatever else JSON can say."""

    update: int
    """How many updates had been taken."""
    parts: Mapping[str, Mapping[str, Tensor]]
    facts: Mapping[str, object]


def as_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """A checkpoint as tensors alone, by `part/name`, to be sent to other processes."""
    about = {"update": checkpoint.update, "parts": [*checkpoint.parts], "facts": checkpoint.facts}
    text = bytearray(json.dumps(about).encode())
    return {FACTS: torch.frombuffer(text, dtype=torch.uint8)} | {
        f"{part}/{name}": tensor
        for part, tensors in checkpoint.parts.items()
        for name, tensor in tensors.items()
    }


def from_tensors(tensors: Mapping[str, Tensor]) -> Checkpoint:
    """The checkpoint that `as_tensors` was given.

    >>> sent = Checkpoint(update=2, parts={"model": {"w/a": torch.ones(1)}, "ema": {}}, facts={})
    >>> from_tensors(as_tensors(sent)) == sent
    True
    """
    about = json.loads(bytes(tensors[FACTS].tolist()))
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in about["parts"]}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        if name:
            parts[part][name] = tensor
    return Checkpoint(update=about["update"], parts=parts, facts=about["facts"])


@dataclass(frozen=True)
class Found:
    """The newest checkpoint that is whole, and what is wrong with those after it."""

    checkpoint: Checkpoint
    torn: Mapping[int, str]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one training, by how many updates they have seen."""

    folder: Path

    def place(self, update: int) -> Path:
        """Where the checkpoint of this update is or would be."""
        return self.folder / f"{update:08d}"

    def updates(self) -> list[int]:
        """The updates of which there is a checkpoint, whole or not, the oldest first."""
        if not self.folder.is_dir():
            return []
        names = (path.name for path in self.folder.iterdir())
        return sorted(int(name) for name in names if re.fullmatch(r"\d{8,}", name))

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint; either it is there afterwards or all is as it was."""
        place = self.place(checkpoint.update)
        draft = place.with_name(f"{place.name}.draft")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            draft.mkdir()
            sums = {
                f"{part}{TENSORS}": write(draft / f"{part}{TENSORS}", tensor_pieces(tensors))
                for part, tensors in checkpoint.parts.items()
            }
            sums[FACTS] = write(draft / FACTS, [json.dumps(checkpoint.facts, indent=1).encode()])
            write(draft / MANIFEST, [manifest(_FORMAT, sums)])
            settle(draft)
            self._remove(checkpoint.update)
            draft.rename(place)
            settle(self.folder)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise UserError(self._why_not_saved(place, error)) from error
        return place

    def load(self, update: int) -> Checkpoint:
        """Read a checkpoint; raises TornError if any byte is not the one that was written."""
        place = self.place(update)
        read = {name: _checked(place / name, wanted) for name, wanted in _listed(place).items()}
        return Checkpoint(
            update=update,
            parts={
                name.removesuffix(TENSORS): safetensors.torch.load(data)
                for name, data in read.items()
                if name.endswith(TENSORS)
            },
            facts=json.loads(read[FACTS]),
        )

    def newest(self) -> Found | None:
        """The newest checkpoint that is whole; None if there are none at all."""
        torn: dict[int, str] = {}
        for update in reversed(self.updates()):
            try:
                return Found(self.load(update), torn)
            except TornError as error:
                torn[update] = str(error)
        if torn:
            raise UserError(
                f"no checkpoint in {self.folder} is whole, so there is nothing to go on from: "
                + "; ".join(torn.values())
            )
        return None

    def set_aside(self, update: int) -> Path:
        """Rename a torn checkpoint, so that it is neither read nor counted again."""
        aside = self.folder / f"{update:08d}.torn"
        shutil.rmtree(aside, ignore_errors=True)
        try:
            return self.place(update).rename(aside)
        except OSError as error:
            raise UserError(f"cannot rename {self.place(update)}: {error.strerror}") from error

    def keep_only(self, updates: Collection[int]) -> None:
        """Remove all checkpoints but those of these updates."""
        for update in self.updates():
            if update not in updates:
                try:
                    self._remove(update)
                except OSError as error:
                    raise UserError(
                        f"cannot remove {self.place(update)}: {error.strerror}"
                    ) from error

    def _remove(self, update: int) -> None:
        # Renamed first, because a folder that is half removed would look like a torn checkpoint.
        place = self.place(update)
        if place.exists():
            shutil.rmtree(place.rename(place.with_name(f"{place.name}.old")))

    def _sweep(self) -> None:
        """Remove what a process that was killed has left lying about."""
        for pattern in ("*.draft", "*.old"):
            for path in self.folder.glob(pattern):
                shutil.rmtree(path)

    def _why_not_saved(self, place: Path, error: OSError) -> str:
        there = self.updates()
        last = (
            f"the last one, {self.place(there[-1])}, is still there" if there else "there is none"
        )
        return f"cannot save the checkpoint {place}: {error.strerror or error}; {last}"


def manifest(format_: int, sums: Mapping[str, Sum]) -> bytes:
    """The text of a manifest: what each file must be, and the sum of that."""
    files = {name: {"bytes": each.bytes, "sha256": each.sha256} for name, each in sums.items()}
    return _sealed({"format": format_, "files": files})


def _sealed(body: Mapping[str, object]) -> bytes:
    text = json.dumps(body, indent=1, sort_keys=True)
    seal = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({**body, "sha256": seal}, indent=1, sort_keys=True).encode()


def _listed(place: Path) -> dict[str, Sum]:
    """What the manifest of a checkpoint says of its files."""
    text = _bytes_of(place / MANIFEST)
    try:
        body = json.loads(text)
    except ValueError:
        raise TornError(f"{place / MANIFEST} is not readable as JSON") from None
    if isinstance(body, dict):
        body.pop("sha256", None)
    # Made anew and compared as a whole: not even a blank may differ.
    if not isinstance(body, dict) or _sealed(body) != text:
        raise TornError(f"{place / MANIFEST} does not match its own checksum")
    if body["format"] > _FORMAT:
        raise UserError(
            f"{place} has format {body['format']}, and this version of regard reads up to "
            f"{_FORMAT}: update regard to go on from it"
        )
    return {name: Sum(each["bytes"], each["sha256"]) for name, each in body["files"].items()}


def _checked(path: Path, wanted: Sum) -> bytes:
    """The bytes of a file, if they are the ones that were written."""
    data = _bytes_of(path)
    if len(data) != wanted.bytes:
        raise TornError(f"{path} has {len(data)} bytes instead of {wanted.bytes}")
    if hashlib.sha256(data).hexdigest() != wanted.sha256:
        raise TornError(f"{path} does not match its checksum")
    return data


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TornError(f"{path} cannot be read: {error.strerror or error}") from None
