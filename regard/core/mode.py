"""Training mode and evaluation mode of a model, put back as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The model in eval mode inside; afterwards each module is in the mode it was in.

    >>> model = nn.Dropout()
    >>> with eval_mode(model):
    ...     print(model.training)
    False
    >>> model.training
    True
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
