"""The lengths and SHA-256 sums of the files of a finished run, so that a changed one is noticed.

`digests.json` has the form of a checkpoint's manifest. What a run is made of is in it: recipe,
weights, tokenisers, labels; not `config.json`, whose data folder may move, nor what is measured.
"""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regard.core.errors import UserError
from regard.core.folder import open_file
from regard.train import durable
from regard.train.checkpoint import CorruptCheckpointError, manifest, read_manifest
from regard.train.durable import FileDigest

DIGESTS = "digests.json"
_FORMAT = 1
_OTHERS = ("config.json", "metrics.json", DIGESTS)
"""JSON files of a run that may change."""
_CHUNK = 1 << 22
_LARGE = 1 << 24
"""Files with more bytes are read in a thread of their own while the model is built."""


def write_digests(folder: Path) -> None:
    """Write the digests of the files of a run as they are now."""
    sums = {path.name: _digest(path) for path in sorted(_files(folder))}
    durable.replace_file(folder / DIGESTS, [manifest(_FORMAT, sums)])


def remove_digests(folder: Path) -> None:
    """Remove them, since the files are about to change."""
    (folder / DIGESTS).unlink(missing_ok=True)


def begin_check(folder: Path) -> Callable[[], None]:
    """Compare the files of a run with their digests, if it has some.

    Small files are compared now; large ones in a thread, whose result the returned function awaits.
    """
    if not (folder / DIGESTS).exists() or not (folder / "model.safetensors").exists():
        return lambda: None  # an earlier version has written it, or it is not finished
    sums = read_manifest(folder / DIGESTS)
    large = [name for name, each in sums.items() if each.bytes > _LARGE]
    for name in sums.keys() - set(large):
        _check(folder / name, sums[name])
    if not large:
        return lambda: None
    pool = ThreadPoolExecutor(1, thread_name_prefix="digests")
    checks = [pool.submit(_check, folder / name, sums[name]) for name in large]
    pool.shutdown(wait=False)

    def wait() -> None:
        for each in checks:
            each.result()

    return wait


def _check(path: Path, expected: FileDigest) -> None:
    """Raise an error that names the file, unless it is as it was."""
    try:
        found = _digest(path, expected.bytes)
    except UserError as error:
        raise CorruptCheckpointError(str(error)) from None
    if found != expected:
        raise CorruptCheckpointError(
            f"{path}: has changed since the run was finished (its SHA-256 is not that in "
            f"{DIGESTS}); copy the run anew, or, if you changed it yourself, remove {DIGESTS}"
        )


def _digest(path: Path, most: int = 2**40) -> FileDigest:
    """The length and sum of a file, read in pieces."""
    digest, length = hashlib.sha256(), 0
    with open_file(path, max(most, _CHUNK)) as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
            length += len(piece)
    return FileDigest(length, digest.hexdigest())


def _files(folder: Path) -> Iterator[Path]:
    """The files that a run is made of."""
    for path in folder.iterdir():
        ours = path.suffix in (".safetensors", ".json") and path.name not in _OTHERS
        if path.is_file() and (ours or path.name == "recipe.toml"):
            yield path
