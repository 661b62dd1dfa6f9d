"""regard: attention models to train, inspect, test and serve.

The names below load what they need when they are first used, so that `import regard` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard import attention as attention
    from regard import check as check
    from regard import data as data
    from regard import decode as decode
    from regard import experiments as experiments
    from regard import explain as explain
    from regard import export as export
    from regard import hub as hub
    from regard import inference as inference
    from regard import kernels as kernels
    from regard import layers as layers
    from regard import look as look
    from regard import models as models
    from regard import outputs as outputs
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
    "attention": "regard",
    "check": "regard",
    "data": "regard",
    "decode": "regard",
    "experiments": "regard",
    "explain": "regard",
    "export": "regard",
    "fit": "regard.train.fit",
    "from_pretrained": "regard.runs.pretrained",
    "hub": "regard",
    "inference": "regard",
    "intervene": "regard.attention",
    "kernels": "regard",
    "layers": "regard",
    "load": "regard.runs.run",
    "look": "regard",
    "models": "regard",
    "outputs": "regard",
    "record": "regard.attention",
}
__all__ = [
    "Loss",
    "UserError",
    "__version__",
    "attention",
    "check",
    "data",
    "decode",
    "experiments",
    "explain",
    "export",
    "fit",
    "from_pretrained",
    "hub",
    "inference",
    "intervene",
    "kernels",
    "layers",
    "load",
    "look",
    "models",
    "outputs",
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
