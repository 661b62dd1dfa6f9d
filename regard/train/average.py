"""Average: weights that are a mean, over the updates of a training or over its last checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from regard.core.errors import UserError
from regard.train.durable import replace, tensor_pieces


class Ema:
    """An exponential moving average of a model's parameters.

    At update n the decay is at most (1 + n) / (10 + n), so that the first weights are forgotten
    also in a short training.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.live = dict(model.named_parameters())
        self.tensors = {name: each.detach().clone() for name, each in self.live.items()}

    def follow(self, update: int) -> None:
        """Move towards the weights that an update has made."""
        decay = min(self.decay, (1 + update) / (10 + update))
        get_ema_multi_avg_fn(decay)(list(self.tensors.values()), list(self.live.values()), update)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the model's weights and the average."""
        for name, live in self.live.items():
            kept = live.clone()
            live.copy_(self.tensors[name])
            self.tensors[name].copy_(kept)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the average's weights inside, and its own again afterwards."""
        self.swap()
        try:
            yield
        finally:
            self.swap()


def mean(models: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, added up in float64; whole numbers are those of the last model.

    >>> mean([{"a": torch.tensor(1.0)}, {"a": torch.tensor(2.0)}])
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
    """The mean of several safetensors files, written to another."""
    models = []
    for path in paths:
        try:
            models.append(load_file(path))
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path} cannot be read as safetensors: {error}") from error
    replace(out, tensor_pieces(mean(models)))
