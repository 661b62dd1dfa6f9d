"""Weights to begin with: those of a trained model of the same kind and sizes.

>>> first, second = nn.Linear(3, 2), nn.Linear(3, 2)
>>> initialise_from(second, first)
>>> bool(torch.equal(first.weight, second.weight)), first.weight is second.weight
(True, False)
"""

import torch
from torch import nn

from regard.core.errors import UserError


@torch.no_grad()
def initialise_from(model: nn.Module, source: nn.Module) -> None:
    """Copy all weights of a source; a source that has others is refused, by name."""
    own, theirs = model.state_dict(), source.state_dict()
    wrong = [
        name
        for name in {**own, **theirs}
        if name not in own or name not in theirs or own[name].shape != theirs[name].shape
    ]
    if wrong:
        raise UserError(
            f"model.source is a {type(source).__name__} of other sizes: {', '.join(wrong[:3])}; "
            "give this recipe the kind and the sizes of that run"
        )
    model.load_state_dict(theirs)
