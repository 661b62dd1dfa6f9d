"""Fit: train any module on a list of examples or a torch data set, without a recipe.

The loop, the checkpoints and the progress display are those of `regard train`. A training that was
stopped goes on when `fit` is called again with the same folder.

>>> import tempfile
>>> import torch.nn.functional as F
>>> examples = [{"x": torch.randn(3), "y": torch.zeros(1)} for _ in range(8)]
>>> def loss(model, batch):
...     return F.mse_loss(model(batch["x"]), batch["y"])
>>> with tempfile.TemporaryDirectory() as folder:
...     fit(nn.Linear(3, 1), examples, loss=loss, folder=folder, epochs=2, batch_size=4).update
4
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, overload, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from regard.core.config import parse
from regard.core.errors import UserError, positive
from regard.core.protocols import Batch, Batches, Carry, Loss
from regard.data.batch import (
    Shard,
    ShardableBatches,
    check_index,
    random_integers,
    random_permutation,
    tensor_digest,
)
from regard.train.display import Display
from regard.train.evaluate import device_of, evaluate
from regard.train.loop import TrainingResult, train
from regard.train.parallel.world import process_group
from regard.train.settings import Training

if TYPE_CHECKING:
    from regard.runs.run import Run

BatchLoss = Callable[[nn.Module, Batch], Tensor | Loss]
"""The mean loss of a model on a batch as one number, or a `Loss` with a sum and its items."""

_Collate = Callable[[list[object]], object]
"""Makes a batch of examples, as in torch's DataLoader."""


@runtime_checkable
class MapDataset(Protocol):
    """A list of examples, or a map-style torch data set."""

    def __len__(self) -> int:
        """The number of examples."""
        ...

    def __getitem__(self, index: int, /) -> object:
        """One example."""
        ...


class ExampleBatches(ShardableBatches):
    """Batches of examples, in an order that depends on seed and epoch alone.

    torch's random numbers in `__getitem__` and `collate`, as augmentation uses them, depend on
    seed, epoch and index, so a resumed training sees the same ones.

    >>> batches = ExampleBatches([torch.tensor(n) for n in range(5)], batch_size=2, seed=0)
    >>> sorted(n for index in range(3) for n in batches.batch(0, index)["inputs"].tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        examples: MapDataset,
        batch_size: int,
        *,
        seed: int = 0,
        collate: _Collate | None = None,
        shuffle: bool = True,
    ) -> None:
        super().__init__(positive("batch_size", batch_size))
        if not len(examples):
            raise UserError("there are no examples")
        self._examples, self._seed, self._shuffle = examples, seed, shuffle
        self._collate: _Collate = default_collate if collate is None else collate
        self._count = -(-len(examples) // batch_size)

    def __len__(self) -> int:
        return self._count

    def batch(self, epoch: int, index: int) -> Batch:
        """The examples of a batch, collated."""
        first = check_index(index, len(self)) * self.rows
        count = len(self._examples)
        order = (
            random_permutation(count, self._seed, epoch) if self._shuffle else torch.arange(count)
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random_integers(1, self._seed, epoch, index)))
            chosen = [self._examples[n] for n in order[first : first + self.rows].tolist()]
            return _named(self._collate(chosen))

    @property
    def digest(self) -> str:
        """Of some batches; of their number alone, where examples differ each time."""
        one, again = (sorted(self.batch(0, 0).items()) for _ in range(2))
        if all(torch.equal(a, b) for (_, a), (_, b) in zip(one, again, strict=True)):
            return super().digest
        return tensor_digest(torch.tensor([len(self._examples), self.rows]))

    def shard(self, rank: int, world: int) -> Shard:
        """The rows of one process; a last batch with too few rows for all processes is left out."""
        whole, left = copy(self), len(self._examples) % self.rows
        if 0 < left < world:
            whole._count = positive("the number of whole batches", self._count - 1)
        return super(ExampleBatches, whole).shard(rank, world)


def _named(collated: object) -> Batch:
    """A batch as named tensors: those of a dict, `inputs` and `targets` of a pair, or `inputs`."""
    if isinstance(collated, Tensor):
        return {"inputs": collated}
    if isinstance(collated, tuple | list) and len(collated) == 2:
        collated = dict(zip(("inputs", "targets"), collated, strict=True))
    if isinstance(collated, Mapping) and collated:
        batch = {str(name): each for name, each in collated.items() if isinstance(each, Tensor)}
        if len(batch) == len(collated):
            return batch
        other = next(name for name in collated if name not in batch)
        raise UserError(f"{other!r} of a batch is no tensor; give collate=, which makes one of it")
    raise UserError(
        "an example must be a dict of tensors and numbers, a pair (input, target) or a tensor; for "
        f"others give collate=, which returns a dict of tensors, not {type(collated).__name__}"
    )


@dataclass(frozen=True)
class _LossTask:
    """A loss function as the task of a training."""

    function: BatchLoss

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of a batch; a mean counts by the number of rows."""
        value = self.function(model, batch)
        if isinstance(value, Loss):
            return value
        if not isinstance(value, Tensor) or value.dim():
            raise UserError(
                "loss must return one number, the mean over the batch, or a regard.Loss; "
                f"it returned {_describe(value)}"
            )
        rows = len(next(iter(batch.values())))
        return Loss(total=value * rows, items=rows)


def _describe(value: object) -> str:
    return f"a tensor of {list(value.shape)}" if isinstance(value, Tensor) else repr(value)


@overload
def fit(
    model: str,
    data: object,
    *,
    validation: object = None,
    test: object = None,
    folder: str | Path | None = None,
    changes: Mapping[str, object] | None = None,
    device: str = "auto",
    overwrite: bool = False,
    display: Display | None = None,
) -> "Run": ...


@overload
def fit(
    model: nn.Module,
    data: Batches | MapDataset,
    *,
    loss: BatchLoss,
    folder: str | Path,
    validation: Batches | MapDataset | None = None,
    batch_size: int = 32,
    collate: _Collate | None = None,
    seed: int = 0,
    optimiser: str | Mapping[str, object] = "adamw",
    lr: float = 1e-3,
    display: Display | None = None,
    **training: object,
) -> TrainingResult: ...


def fit(model: str | nn.Module, data: object, **settings: object) -> "Run | TrainingResult":
    """Train a model of a task on your data, or a module of your own with its loss.

    `fit("classify", examples)` chooses a model from the data, trains it and returns the run.
    `data`, `validation` and `test` are files, lists of examples, data frames or torch data sets;
    `changes` are keys of the recipe (`regard recipe keys`): `{"train.epochs": 3}`.

    `fit(module, examples, loss=loss, folder=folder)` trains a module in place.
    """
    if isinstance(model, str):
        from regard.runs.door import fit_task

        return fit_task(model, data, **settings)  # type: ignore[arg-type]
    return fit_module(model, data, **settings)  # type: ignore[arg-type]


def fit_module(
    model: nn.Module,
    data: Batches | MapDataset,
    *,
    loss: BatchLoss,
    folder: str | Path,
    validation: Batches | MapDataset | None = None,
    batch_size: int = 32,
    collate: _Collate | None = None,
    seed: int = 0,
    optimiser: str | Mapping[str, object] = "adamw",
    lr: float = 1e-3,
    display: Display | None = None,
    **training: object,
) -> TrainingResult:
    """Train a model in place; go on from the newest checkpoint if the folder has one.

    `data` is a list of examples, a torch data set or your own `Batches`. `loss(model, batch)` is
    the mean over the batch. `training` are the keys of a recipe's `[train]` table, such as
    `epochs=3` or `updates=1000`, `clip=1.0`, `patience=5`. `optimiser` is a name, or its table:
    `{"name": "sgd", "lr": 0.1, "momentum": 0.9}`.
    """
    table = {"name": optimiser, "lr": lr} if isinstance(optimiser, str) else dict(optimiser)
    settings = parse(Training, {"seed": seed, "optimiser": table, **training}, at="fit")
    task = _LossTask(loss)

    def batches_of(given: Batches | MapDataset, *, shuffle: bool) -> Batches:
        if isinstance(given, Batches):
            return given
        if not isinstance(given, MapDataset):
            raise UserError(
                "data must be a list or a data set with a length and examples by number, not a "
                f"{type(given).__name__}; an iterable data set can be made a list first"
            )
        return ExampleBatches(given, batch_size, seed=seed, collate=collate, shuffle=shuffle)

    held_out = None if validation is None else batches_of(validation, shuffle=False)

    def validate() -> Mapping[str, float]:
        assert held_out is not None
        return evaluate(model, task, held_out).metrics()

    batches = batches_of(data, shuffle=True)
    with process_group(device_of(model)) as world:
        if world.size > 1 and isinstance(batches, ShardableBatches):
            batches = batches.shard(world.rank, world.size)
        return train(
            model,
            task,
            batches,
            settings,
            Path(folder),
            validate=None if held_out is None else validate,
            display=display,
        )
