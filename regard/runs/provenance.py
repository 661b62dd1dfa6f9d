"""Where a result comes from: the commit of this package, the processor and the versions.

>>> sorted(provenance())
['commit', 'processor', 'threads', 'torch']
"""

import platform
import subprocess
from pathlib import Path

import torch

_PACKAGE = Path(__file__).parent.parent


def provenance() -> dict[str, str | int | None]:
    """What to keep beside a measured figure."""
    return {
        "commit": _commit(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _commit() -> str | None:
    """The commit of the package if git tracks it, with `+` if its files differ from the commit.

    A copy that was installed into an environment inside someone's repository has none.

    >>> held = _commit()
    >>> held is None or len(held.rstrip("+")) == 12
    True
    """
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None or _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return head + ("+" if _git("status", "--porcelain", "--", str(_PACKAGE)) else "")


def _git(*words: str) -> str | None:
    """What git answers about the folder of the package; None without git or a repository."""
    command = ["git", "-C", str(_PACKAGE), *words]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            command, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    """The model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
