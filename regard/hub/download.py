"""Names on the Hugging Face hub: fetched only if that was asked for, and told at once if not.

Nothing else in the package opens a connection.
"""

from pathlib import Path

from regard.core.errors import UserError
from regard.hub.hints import foreign_folder, gguf_hint
from regard.hub.store import CONFIG_FILE, first_line

_SECONDS = 5.0
"""How long the hub may take to say whether it is there."""

_WANTED = ("*.json", "*.safetensors", "*.bin", "*.txt", "*.spm", "*.model")
"""Files that a checkpoint is made of here."""


def locate_checkpoint(name: str | Path, *, download: bool = False) -> Path:
    """The folder of that name; or one of the hub, fetched into its cache, if `download` says so."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        foreign = None if (folder / CONFIG_FILE).exists() else foreign_folder(folder)
        if foreign is not None:
            raise UserError(f"{folder}: this is {foreign}")
        return folder
    if folder.suffix == ".gguf" and folder.exists():
        raise UserError(f"{folder}: this is {gguf_hint()}")
    if folder.exists():
        raise UserError(f"{folder}: this is a file; give the folder that holds config.json")
    if not download:
        raise UserError(
            f"{name}: there is no such folder. If it is a name on the Hugging Face hub, say "
            "--download (download=True), and it is fetched from there"
        )
    return _fetched(str(name))


def _fetched(name: str) -> Path:
    """A checkpoint of the hub, in the cache of its own library."""
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError:
        raise UserError(
            f"{name}: to fetch it, install huggingface_hub: pip install huggingface_hub"
        ) from None
    try:
        HfApi().model_info(name, timeout=_SECONDS)
    except Exception as problem:  # of a dozen kinds, by what is missing: name, right or network
        kept = _held(name)
        if kept is not None:
            return kept
        raise UserError(
            f"{name}: cannot be fetched from the hub: {first_line(problem)}; without a connection, "
            "give a folder that is here"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=list(_WANTED)))
    except Exception as problem:
        raise UserError(f"{name}: was not fetched whole: {first_line(problem)}") from None


def _held(name: str) -> Path | None:
    """What an earlier download has left in the cache."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(_WANTED), local_files_only=True))
    except (OSError, ValueError):
        return None
