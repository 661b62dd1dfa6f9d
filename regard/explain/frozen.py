"""Keep what a model computed before it came to some attention, while only the weights there change.

An encoder under an attention that is edited a hundred times gives the same states a hundred times.
Every module that was done before the site was first asked is remembered after one pass, and gives
what it gave, unasked.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

import torch
from torch import Tensor, nn

from regard.attention import Look, intervene


@contextmanager
def held(model: nn.Module, site: str, run: Callable[[], object]) -> Iterator[None]:
    """Run once; inside, modules that were done before the site was asked are not run again.

    >>> from regard.attention import Attend, ScaledDot
    >>> class Small(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.below, self.attend = nn.Linear(4, 4), Attend(ScaledDot(4))
    ...     def forward(self, x):
    ...         x = self.below(x)
    ...         return self.attend(x, self.attend.remember(x, x))
    >>> model, x = Small(), torch.ones(1, 1, 2, 4)
    >>> with held(model, "attend", lambda: model(x)):
    ...     torch.equal(model(x), model(0 * x))
    True
    """
    made = _outputs_before(model, site, run)
    for module, outputs in made.items():
        # In the instance, so that it hides the method of the class until it is taken away.
        module.__dict__["forward"] = _replayed(outputs)
    try:
        yield
    finally:
        for module in made:
            del module.__dict__["forward"]


def _outputs_before(
    model: nn.Module, site: str, run: Callable[[], object]
) -> dict[nn.Module, list[object]]:
    """What each module gave that was done, for this pass, before the site was asked."""
    made: dict[nn.Module, list[object]] = {}
    late: set[nn.Module] = set()
    asked = False

    def look(own: Tensor, look: Look) -> Tensor:
        nonlocal asked
        asked = True
        return own

    def began(module: nn.Module, given: object) -> None:
        if asked:
            late.add(module)

    def done(module: nn.Module, given: object, output: object) -> None:
        if not asked:
            made.setdefault(module, []).append(output)

    hooks = [each.register_forward_pre_hook(began) for each in model.modules()]
    hooks += [each.register_forward_hook(done) for each in model.modules()]
    try:
        with torch.no_grad(), intervene(model, {site: look}):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return {module: outputs for module, outputs in made.items() if module not in late}


def _replayed(outputs: Sequence[object]) -> Callable[..., object]:
    """A forward that gives these in turn, pass after pass, whatever it is given."""
    turn = cycle(outputs)
    return lambda *given, **named: next(turn)
