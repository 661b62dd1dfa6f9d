"""Reuse what a model computes before an attention site, while only the weights there change.

An encoder below a site that is edited a hundred times returns the same states a hundred times.
Every module that finishes before the first call of the site runs once; then its outputs are
returned again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

import torch
from torch import Tensor, nn

from regard.attention import Look, intervene


@contextmanager
def replay_before(model: nn.Module, site: str, run: Callable[[], object]) -> Iterator[None]:
    """Call `run` once; inside, modules that finished before the site return the same outputs.

    >>> from regard.attention import Attend, ScaledDot
    >>> class Small(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.below, self.attend = nn.Linear(4, 4), Attend(ScaledDot(4))
    ...     def forward(self, x):
    ...         x = self.below(x)
    ...         return self.attend(x, self.attend.remember(x, x))
    >>> model, x = Small(), torch.ones(1, 1, 2, 4)
    >>> with replay_before(model, "attend", lambda: model(x)):
    ...     torch.equal(model(x), model(0 * x))
    True
    """
    replayed = _outputs_before(model, site, run)
    for module, outputs in replayed.items():
        # In the instance, where it hides the method of the class until it is deleted.
        module.__dict__["forward"] = _replay(outputs)
    try:
        yield
    finally:
        for module in replayed:
            del module.__dict__["forward"]


def _outputs_before(
    model: nn.Module, site: str, run: Callable[[], object]
) -> dict[nn.Module, list[object]]:
    """The outputs of each module whose calls all finish before the site is called."""
    outputs: dict[nn.Module, list[object]] = {}
    late: set[nn.Module] = set()
    reached = False

    def reach(own: Tensor, look: Look) -> Tensor:
        nonlocal reached
        reached = True
        return own

    def before(module: nn.Module, given: object) -> None:
        if reached:
            late.add(module)

    def after(module: nn.Module, given: object, output: object) -> None:
        if not reached:
            outputs.setdefault(module, []).append(output)

    hooks = [each.register_forward_pre_hook(before) for each in model.modules()]
    hooks += [each.register_forward_hook(after) for each in model.modules()]
    try:
        with torch.no_grad(), intervene(model, {site: reach}):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return {module: each for module, each in outputs.items() if module not in late}


def _replay(outputs: Sequence[object]) -> Callable[..., object]:
    """A forward method that returns these in turn, again and again, for any arguments."""
    turn = cycle(outputs)
    return lambda *given, **named: next(turn)
