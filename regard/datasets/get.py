"""Get a dataset and check what is there.

A dataset is made in a folder of its own beside its place, checked against the known digests, and
moved to its place when it is whole. SOURCE.json in its folder keeps where it came from, and the
digests of the first download, against which `check_dataset` compares from then on.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from regard.core.atomic import os_errors_as_user_errors, sync_folder, write_json_file
from regard.core.errors import UserError, command
from regard.datasets.convert import CONVERTERS
from regard.datasets.download import (
    Progress,
    Wanted,
    check_digest,
    download_file,
    file_digest,
)
from regard.datasets.table import MadeFile, MadeFolder, MadePack, Original, PublicDataset
from regard.datasets.write import (
    extract_folder,
    folder_digest,
    pack_digest,
    repack,
    unpacked_digest,
    write_files,
)

SOURCE_FILE = "SOURCE.json"
"""What `get_dataset` leaves beside the files of a dataset."""
DOWNLOADS = ".downloads"
"""Where originals are, in the data folder, until they are converted."""

DataState = Literal["as published", "as downloaded", "present", "missing", "differs"]
"""Of a file: its digest is the known one; is that of the first download; is not known; ..."""

_MODULES = {"speech": "soundfile", "vision": "PIL"}


@dataclass(frozen=True, kw_only=True)
class FileState:
    """A file or folder of a dataset, and whether it is what it should be."""

    path: str
    state: DataState
    digest: str | None = None


def check_dataset(dataset: PublicDataset, data: Path) -> list[FileState]:
    """The state of every file of a dataset in the data folder."""
    folder = data / dataset.name
    first = _first_digests(folder)
    rows: tuple[MadeFile | MadeFolder, ...] = (*dataset.file, *dataset.folder, *dataset.pack)
    made = {each.path: each for each in rows}
    states = []
    for path in dataset.paths:
        place = folder / path
        if not place.exists():
            states.append(FileState(path=path, state="missing"))
            continue
        row = made.get(path)
        digest = _digest(place, row)
        known = row.sha256 if row is not None else None
        state = _state(digest, known, first.get(path))
        states.append(FileState(path=path, state=state, digest=digest))
    return states


def _state(digest: str, known: str | None, first: str | None) -> DataState:
    if known is not None:
        return "as published" if digest == known else "differs"
    if first is not None:
        return "as downloaded" if digest == first else "differs"
    return "present"


def _digest(place: Path, row: MadeFile | MadeFolder | None) -> str:
    if isinstance(row, MadePack):
        return pack_digest(place)[1]
    return folder_digest(place)[1] if place.is_dir() else unpacked_digest(place)


def _first_digests(folder: Path) -> dict[str, str]:
    """The digests of the first download."""
    try:
        kept = json.loads((folder / SOURCE_FILE).read_text())
        return {str(path): str(digest) for path, digest in kept["files"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {}


def get_dataset(
    dataset: PublicDataset,
    data: Path,
    *,
    given: Path | None = None,
    keep: bool = False,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> list[FileState]:
    """Download and convert a dataset, unless it is there; the state of its files.

    `given` is a folder with the originals (or the one original): nothing is downloaded then.
    `keep` leaves the downloads where they are. Files that differ stay, unless `overwrite`.
    """
    _check_packages(dataset)
    before = check_dataset(dataset, data)
    differing = [each.path for each in before if each.state == "differs"]
    if differing and not overwrite:
        raise UserError(
            f"{data / dataset.name / differing[0]}: is not what {dataset.name} has there. Move it "
            f"away, or replace it: {command('data', 'get', dataset.name, '--overwrite')}"
        )
    if not overwrite and all(each.state != "missing" for each in before):
        return before
    with _lock(data, dataset.name) as downloads:
        originals = _originals(dataset, given, downloads, on_progress)
        kept = {} if overwrite else {each.path: each for each in before if each.state != "missing"}
        _make(dataset, originals, data, kept)
        if given is None and not keep:
            shutil.rmtree(downloads)
    return check_dataset(dataset, data)


def _check_packages(dataset: PublicDataset) -> None:
    for extra in dataset.needs:
        if find_spec(_MODULES[extra]) is None:
            raise UserError(
                f"{dataset.name}: the conversion needs {_MODULES[extra]}: "
                f"pip install 'regard[{extra}]'"
            )


@contextmanager
def _lock(data: Path, name: str) -> Iterator[Path]:
    """The folder of the downloads of a dataset, for one process at a time."""
    downloads = data / DOWNLOADS / name
    with os_errors_as_user_errors(downloads):
        downloads.mkdir(parents=True, exist_ok=True)
        file = (data / DOWNLOADS / f"{name}.lock").open("w")
    with file:
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"{name}: another process is getting it into {data}") from None
        yield downloads


def _originals(
    dataset: PublicDataset, given: Path | None, downloads: Path, on_progress: Progress | None
) -> dict[str, Path]:
    if given is not None:
        return {each.name: _given(dataset, each, given) for each in dataset.original}
    if not dataset.is_downloadable:
        names = ", ".join(each.name for each in dataset.original)
        raise UserError(
            f"{dataset.name} is given on request only, at {dataset.home} ({dataset.licence}). Put "
            f"{names} into a folder, then: {command('data', 'get', dataset.name)} --from FOLDER"
        )
    return {
        each.name: download_file(_wanted(each), downloads, on_progress) for each in dataset.original
    }


def _wanted(original: Original) -> Wanted:
    return Wanted(
        name=original.name, urls=original.urls, bytes=original.bytes, sha256=original.sha256
    )


def _given(dataset: PublicDataset, original: Original, given: Path) -> Path:
    """An original that the user has."""
    path = given
    if given.is_dir() or len(dataset.original) > 1:
        path = given / original.name
    if not path.is_file():
        names = ", ".join(each.name for each in dataset.original)
        raise UserError(f"{path}: no such file; {dataset.name} is made from {names}")
    check_digest(path, _wanted(original))
    return path


def _make(
    dataset: PublicDataset,
    originals: Mapping[str, Path],
    data: Path,
    kept: Mapping[str, FileState],
) -> None:
    """Write all files beside their place, check them, and move them there, but for those kept."""
    target = data / dataset.name
    with os_errors_as_user_errors(target):
        made = Path(tempfile.mkdtemp(prefix=f".{dataset.name}.", dir=data))
        try:
            made.chmod(0o777 & ~_umask())
            _write(dataset, originals, made)
            digests = _checked(dataset, made)
            digests |= {path: each.digest for path, each in kept.items() if each.digest}
            for path in kept:
                _remove(made / path)
            source = {
                "name": dataset.name,
                "home": dataset.home,
                "licence": dataset.licence,
                "originals": {
                    each.name: {
                        "urls": list(each.urls),
                        "bytes": originals[each.name].stat().st_size,
                        "sha256": file_digest(originals[each.name]),
                    }
                    for each in dataset.original
                },
                "files": digests,
            }
            write_json_file(made / SOURCE_FILE, source)
            _move(made, target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        sync_folder(data)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write(dataset: PublicDataset, originals: Mapping[str, Path], folder: Path) -> None:
    write_files(dataset.file, originals, folder)
    for each in dataset.folder:
        extract_folder(each, originals[each.original], folder)
    for pack in dataset.pack:
        repack(pack, originals[pack.original], folder)
    if dataset.converter:
        CONVERTERS[dataset.converter](originals, folder)


def _checked(dataset: PublicDataset, folder: Path) -> dict[str, str]:
    """The digest of every file that was made; an error if one is not the known one."""
    states = check_dataset(dataset.model_copy(update={"name": folder.name}), folder.parent)
    wrong = [each for each in states if each.state in ("missing", "differs")]
    if wrong:
        raise UserError(
            f"{dataset.name}: {wrong[0].path} {_problem(wrong[0])}; the originals are not those "
            "that are known, and nothing was kept of them"
        )
    return {each.path: each.digest for each in states if each.digest is not None}


def _problem(state: FileState) -> str:
    return "was not made" if state.state == "missing" else f"has the digest {state.digest}"


def _move(made: Path, target: Path) -> None:
    """Move a folder to its place; files that are there with other names stay."""
    if not target.exists():
        made.replace(target)
        return
    for path in sorted(made.rglob("*")):
        if path.is_file():
            place = target / path.relative_to(made)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
