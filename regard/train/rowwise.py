"""Adagrad that touches only the rows of a table that a batch has looked up (Duchi et al. 2011).

An embedding with `sparse=True` gives its gradient as a few rows. A dense optimiser would walk over
the whole table for them; this one reads and writes those rows alone, and gives what
torch.optim.Adagrad gives. Dense gradients are followed as well.

>>> table = nn.Embedding(5, 2, sparse=True)
>>> optimiser = RowAdagrad(table.parameters(), lr=0.25)
>>> table(torch.tensor([3, 3])).sum().backward()
>>> before = table.weight.detach().clone()
>>> optimiser.step()
>>> ((table.weight - before)[2:4] / 0.25).round().tolist()
[[0.0, 0.0], [-1.0, -1.0]]
"""

from collections.abc import Iterable

import torch
from torch import nn, optim


class RowAdagrad(optim.Optimizer):
    """w -= lr · g / √(Σ g²), number by number."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | list[dict[str, object]],
        lr: float,
        *,
        weight_decay: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "eps": eps})
        for group in self.param_groups:
            for each in group["params"]:
                self.state[each]["sum"] = torch.zeros_like(each)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Follow the gradients once."""
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    self._follow(each, group["lr"], group["weight_decay"], group["eps"])

    def _follow(self, weight: nn.Parameter, lr: float, decay: float, eps: float) -> None:
        total, gradient = self.state[weight]["sum"], weight.grad
        assert gradient is not None
        if not gradient.is_sparse:
            gradient = gradient + decay * weight if decay else gradient
            total.addcmul_(gradient, gradient)
            weight.addcdiv_(gradient, total.sqrt().add_(eps), value=-lr)
            return
        gradient = gradient.coalesce()
        rows, values = gradient.indices()[0], gradient.values()
        squares = total.index_select(0, rows).addcmul_(values, values)
        total.index_copy_(0, rows, squares)
        weight.index_add_(0, rows, values / squares.sqrt_().add_(eps), alpha=-lr)
