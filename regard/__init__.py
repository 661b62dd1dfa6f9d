"""regard: attention models to train, inspect, test and serve.

The names below load what they need when they are first used, so that `import regard` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard import check as check
    from regard import explain as explain
    from regard import kernels as kernels
    from regard.attention import intervene as intervene
    from regard.attention import record as record
    from regard.core.errors import UserError as UserError
    from regard.core.protocols import Loss as Loss
    from regard.runs.pretrained import from_pretrained as from_pretrained
    from regard.runs.run import load as load
    from regard.train.fit import fit as fit

__version__ = "0.1.0"

_MODULES = {
    "Loss": "regard.core.protocols",
    "UserError": "regard.core.errors",
    "check": "regard",
    "explain": "regard",
    "fit": "regard.train.fit",
    "from_pretrained": "regard.runs.pretrained",
    "intervene": "regard.attention",
    "kernels": "regard",
    "load": "regard.runs.run",
    "record": "regard.attention",
}
__all__ = [
    "Loss",
    "UserError",
    "__version__",
    "check",
    "explain",
    "fit",
    "from_pretrained",
    "intervene",
    "kernels",
    "load",
    "record",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    module = _MODULES[name]
    return (
        import_module(f"regard.{name}")
        if module == "regard"
        else getattr(import_module(module), name)
    )


def __dir__() -> list[str]:
    return sorted(__all__)
