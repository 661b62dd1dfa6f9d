"""regard doctor: what this machine has, and what is missing."""

import platform
import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import typer

import regard

_EXTRAS: dict[str, tuple[str, ...]] = {
    "look": ("matplotlib",),
    "serve": ("fastapi", "uvicorn"),
    "track": ("tensorboard",),
    "export": ("onnx", "onnxruntime", "ctranslate2"),
    "speech": ("kaldi_native_fbank", "soundfile", "jiwer"),
    "music": ("symusic",),
    "vision": ("PIL", "av"),
    "sweep": ("optuna",),
}
"""What each extra installs, by the name it is imported under."""


def _used_extras() -> dict[str, tuple[str, ...]]:
    """The extras that some file of the package imports."""
    text = "".join(path.read_text("utf-8") for path in Path(regard.__file__).parent.rglob("*.py"))
    imported = set(re.findall(r"^ *(?:from|import) ([a-z_A-Z0-9]+)", text, re.MULTILINE))
    imported |= {"tensorboard"} if "torch.utils.tensorboard" in text else set()
    return {name: held for name, held in _EXTRAS.items() if imported.intersection(held)}


def doctor() -> None:
    """Versions, threads, which precision works here, and which extras are missing."""
    import torch

    from regard.core.device import PRECISIONS, pick_device, precision_problem

    typer.echo(
        f"python      {platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    for package in ("regard", "torch", "tokenizers", "safetensors", "pydantic"):
        typer.echo(f"{package:<11} {_installed(package)}")
    device = pick_device("auto")
    typer.echo(f"device      {device} ({torch.get_num_threads()} threads)")
    for precision in PRECISIONS:
        why = precision_problem(precision, device)
        typer.echo(f"{precision:<11} {'works' if why is None else why}")
    for extra, packages in _used_extras().items():
        missing = [each for each in packages if find_spec(each) is None]
        said = (
            f"missing {', '.join(missing)}: pip install 'regard[{extra}]'" if missing else "there"
        )
        typer.echo(f"{extra:<11} {said}")


def _installed(package: str) -> str:
    """The version of a package, or that there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
