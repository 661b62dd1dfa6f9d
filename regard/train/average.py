"""Averages of weights: an exponential moving average, and the mean of several checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from regard.core.errors import UserError
from regard.train.durable import replace_file, tensor_pieces


class Ema:
    """An exponential moving average of a model's parameters.

    At update n the decay is at most (1 + n) / (10 + n), so that the initial weights fade out in a
    short training too.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.live = dict(model.named_parameters())
        self.tensors = {name: each.detach().clone() for name, each in self.live.items()}

    def update(self, update: int) -> None:
        """Move the average towards the weights after an update."""
        decay = min(self.decay, (1 + update) / (10 + update))
        get_ema_multi_avg_fn(decay)(list(self.tensors.values()), list(self.live.values()), update)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the model's weights and the average."""
        for name, live in self.live.items():
            own = live.clone()
            live.copy_(self.tensors[name])
            self.tensors[name].copy_(own)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards it has its own again."""
        self.swap()
        try:
            yield
        finally:
            self.swap()


def mean_weights(models: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, computed in float64; integer tensors are those of the last model.

    >>> mean_weights([{"a": torch.tensor(1.0)}, {"a": torch.tensor(2.0)}])
    {'a': tensor(1.5000)}
    """
    if not models:
        raise UserError("there are no models to average")
    last = models[-1]
    for number, model in enumerate(models, start=1):
        shapes = [{name: each.shape for name, each in m.items()} for m in (model, last)]
        if shapes[0] != shapes[1]:
            raise UserError(
                f"model {number} of {len(models)} differs from the last in its tensors: "
                + ", ".join(sorted(name for name, _ in shapes[0].items() ^ shapes[1].items())[:3])
            )
    return {
        name: _mean([model[name] for model in models]) if each.is_floating_point() else each
        for name, each in last.items()
    }


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(tensors[0], dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(tensors[0].dtype)


def average_files(paths: Sequence[Path], out: Path) -> None:
    """Write the mean of several safetensors files to another file."""
    models = []
    for path in paths:
        try:
            models.append(load_file(path))
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path} cannot be read as safetensors: {error}") from error
    replace_file(out, tensor_pieces(mean_weights(models)))
