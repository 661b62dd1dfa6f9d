"""Checkpoints on disk, written atomically and verified by checksum when they are read.

A checkpoint is a folder with safetensors files, `facts.json` and `manifest.json`, which has the
length and the SHA-256 sum of each file and of itself. It is written as `NAME.draft`, synced to the
disk and renamed, so that a crash at any time leaves the previous checkpoints intact.
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

from regard.core.atomic import sync_folder
from regard.core.errors import UserError
from regard.core.folder import SETTINGS_BYTES, read_bytes
from regard.train.durable import FileDigest, tensor_pieces, write_durably

_FORMAT = 1
"""The version of the format; increased when older versions can no longer read it."""

MANIFEST_FILE, FACTS_FILE, TENSORS_SUFFIX = "manifest.json", "facts.json", ".safetensors"


class CorruptCheckpointError(UserError):
    """A checkpoint whose files differ from what was written."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Tensors by part (model, optimiser, ...) and by name, and facts as JSON."""

    update: int
    """The number of updates before it."""
    parts: Mapping[str, Mapping[str, Tensor]]
    facts: Mapping[str, object]


def checkpoint_as_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """A checkpoint as tensors only, by `part/name`, for sending it to other processes."""
    about = {"update": checkpoint.update, "parts": [*checkpoint.parts], "facts": checkpoint.facts}
    text = bytearray(json.dumps(about).encode())
    return {FACTS_FILE: torch.frombuffer(text, dtype=torch.uint8)} | {
        f"{part}/{name}": tensor
        for part, tensors in checkpoint.parts.items()
        for name, tensor in tensors.items()
    }


def checkpoint_from_tensors(tensors: Mapping[str, Tensor]) -> Checkpoint:
    """The inverse of `checkpoint_as_tensors`.

    >>> sent = Checkpoint(update=2, parts={"model": {"w/a": torch.ones(1)}, "ema": {}}, facts={})
    >>> checkpoint_from_tensors(checkpoint_as_tensors(sent)) == sent
    True
    """
    about = json.loads(bytes(tensors[FACTS_FILE].tolist()))
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in about["parts"]}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        if name:
            parts[part][name] = tensor
    return Checkpoint(update=about["update"], parts=parts, facts=about["facts"])


@dataclass(frozen=True)
class NewestCheckpoint:
    """The newest valid checkpoint, and the corrupt ones after it."""

    checkpoint: Checkpoint
    corrupt: Mapping[int, str]
    """The reason for each corrupt checkpoint, by its update."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one training, by their number of updates."""

    folder: Path

    def path(self, update: int) -> Path:
        """The folder of the checkpoint of an update, whether it exists or not."""
        return self.folder / f"{update:08d}"

    def updates(self) -> list[int]:
        """The updates that have a checkpoint, valid or not, in ascending order."""
        if not self.folder.is_dir():
            return []
        names = (path.name for path in self.folder.iterdir())
        return sorted(int(name) for name in names if re.fullmatch(r"\d{8,}", name))

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint; if that fails, the earlier ones stay intact."""
        path = self.path(checkpoint.update)
        draft = path.with_name(f"{path.name}.draft")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            draft.mkdir()
            sums = {
                f"{part}{TENSORS_SUFFIX}": write_durably(
                    draft / f"{part}{TENSORS_SUFFIX}", tensor_pieces(tensors)
                )
                for part, tensors in checkpoint.parts.items()
            }
            sums[FACTS_FILE] = write_durably(
                draft / FACTS_FILE, [json.dumps(checkpoint.facts, indent=1).encode()]
            )
            write_durably(draft / MANIFEST_FILE, [manifest(_FORMAT, sums)])
            sync_folder(draft)
            self._remove(checkpoint.update)
            draft.rename(path)
            sync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise UserError(self._save_failed(path, error)) from error
        return path

    def load(self, update: int) -> Checkpoint:
        """Read a checkpoint; raises CorruptCheckpointError if any byte has changed."""
        path = self.path(update)
        digests = read_manifest(path / MANIFEST_FILE)
        if FACTS_FILE not in digests:
            raise CorruptCheckpointError(f"{path / MANIFEST_FILE} has no {FACTS_FILE}")
        contents = {name: _read_checked(path / name, each) for name, each in digests.items()}
        return Checkpoint(
            update=update,
            parts={
                name.removesuffix(TENSORS_SUFFIX): safetensors.torch.load(data)
                for name, data in contents.items()
                if name.endswith(TENSORS_SUFFIX)
            },
            facts=json.loads(contents[FACTS_FILE]),
        )

    def newest(self) -> NewestCheckpoint | None:
        """The newest valid checkpoint; None if there are no checkpoints."""
        corrupt: dict[int, str] = {}
        for update in reversed(self.updates()):
            try:
                return NewestCheckpoint(self.load(update), corrupt)
            except CorruptCheckpointError as error:
                corrupt[update] = str(error)
        if corrupt:
            raise UserError(
                f"all checkpoints in {self.folder} are corrupt; there is nothing to resume from: "
                + "; ".join(corrupt.values())
            )
        return None

    def set_aside(self, update: int) -> Path:
        """Rename a corrupt checkpoint to `NAME.corrupt`, so that it is no longer listed."""
        aside = self.folder / f"{update:08d}.corrupt"
        shutil.rmtree(aside, ignore_errors=True)
        try:
            return self.path(update).rename(aside)
        except OSError as error:
            raise UserError(f"cannot rename {self.path(update)}: {error.strerror}") from error

    def keep_only(self, updates: Collection[int]) -> None:
        """Remove all checkpoints except those of these updates."""
        for update in self.updates():
            if update not in updates:
                try:
                    self._remove(update)
                except OSError as error:
                    raise UserError(
                        f"cannot remove {self.path(update)}: {error.strerror}"
                    ) from error

    def _remove(self, update: int) -> None:
        # Renamed first: a partly removed folder would look like a corrupt checkpoint.
        path = self.path(update)
        if path.exists():
            shutil.rmtree(path.rename(path.with_name(f"{path.name}.old")))

    def _sweep(self) -> None:
        """Remove the leftovers of killed processes."""
        for pattern in ("*.draft", "*.old"):
            for path in self.folder.glob(pattern):
                shutil.rmtree(path)

    def _save_failed(self, path: Path, error: OSError) -> str:
        updates = self.updates()
        last = f"the last one, {self.path(updates[-1])}, is intact" if updates else "there is none"
        return f"cannot save the checkpoint {path}: {error.strerror or error}; {last}"


def manifest(format_: int, sums: Mapping[str, FileDigest]) -> bytes:
    """The text of a manifest: the length and sum of each file, and the sum of the manifest."""
    files = {name: {"bytes": each.bytes, "sha256": each.sha256} for name, each in sums.items()}
    return _sealed({"format": format_, "files": files})


def _sealed(body: Mapping[str, object]) -> bytes:
    text = json.dumps(body, indent=1, sort_keys=True)
    seal = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({**body, "sha256": seal}, indent=1, sort_keys=True).encode()


def read_manifest(path: Path) -> dict[str, FileDigest]:
    """The digest of each file of a manifest's folder."""
    text = _read_bytes(path)
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise CorruptCheckpointError(f"{path} is not readable as JSON") from None
    if isinstance(body, dict):
        body.pop("sha256", None)
    # Serialised again and compared byte by byte: even whitespace must match.
    if not isinstance(body, dict) or _sealed(body) != text:
        raise CorruptCheckpointError(f"{path} does not match its own checksum")
    if not _is_manifest(body):
        raise CorruptCheckpointError(f"{path} is no manifest")
    if body["format"] > _FORMAT:
        raise UserError(
            f"{path} has format {body['format']}, and this version of regard reads up to "
            f"{_FORMAT}: update regard to read it"
        )
    return {name: FileDigest(each["bytes"], each["sha256"]) for name, each in body["files"].items()}


def _is_manifest(body: Mapping[str, object]) -> bool:
    """Does it have a format, and the length and sum of files of its own folder?"""
    files = body.get("files")
    return (
        type(body.get("format")) is int
        and isinstance(files, dict)
        and all(
            Path(name).name == name
            and isinstance(each, dict)
            and type(each.get("bytes")) is int
            and isinstance(each.get("sha256"), str)
            for name, each in files.items()
        )
    )


def _read_checked(path: Path, digest: FileDigest) -> bytes:
    """The bytes of a file, verified against its digest."""
    data = _read_bytes(path, max(digest.bytes, SETTINGS_BYTES))
    if len(data) != digest.bytes:
        raise CorruptCheckpointError(f"{path} has {len(data)} bytes instead of {digest.bytes}")
    if hashlib.sha256(data).hexdigest() != digest.sha256:
        raise CorruptCheckpointError(f"{path} does not match its checksum")
    return data


def _read_bytes(path: Path, most: int = SETTINGS_BYTES) -> bytes:
    try:
        return read_bytes(path, most)
    except UserError as error:
        raise CorruptCheckpointError(str(error)) from None
