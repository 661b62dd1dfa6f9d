"""Optimisers from settings (SGD, Adam, AdamW, Adafactor, Adagrad, SM3), and gradient clipping.

Weight decay applies to matrices only, not to biases, norms and other vectors; embeddings can be
exempted too.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal, Protocol, runtime_checkable

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn, optim
from torch.nn.utils import get_total_norm

from regard.core.config import Config
from regard.core.errors import UserError
from regard.train.sm3 import SM3Optimizer
from regard.train.stages import Stages

_FUSED_ON = {"cpu", "cuda", "mps", "xpu"}
"""The devices with fused optimisers in torch: on a CPU they are 4 to 5 times as fast."""

_Fraction = Annotated[float, Field(ge=0, lt=1)]


_Group = dict[str, object]
"""A param_group of torch.optim: named parameters with the same weight decay."""


class RowAdagrad(optim.Optimizer):
    """Adagrad, w -= lr · g / √(Σ g²), of the rows with a gradient only (Duchi et al. 2011).

    An embedding with `sparse=True` has a gradient of a few rows. A dense optimiser would walk over
    the whole table; this one reads and writes those rows only, with the result of
    torch.optim.Adagrad. It takes dense gradients too.

    >>> table = nn.Embedding(5, 2, sparse=True)
    >>> optimiser = RowAdagrad(table.parameters(), lr=0.25)
    >>> table(torch.tensor([3, 3])).sum().backward()
    >>> before = table.weight.detach().clone()
    >>> optimiser.step()
    >>> ((table.weight - before)[2:4] / 0.25).round().tolist()
    [[0.0, 0.0], [-1.0, -1.0]]
    """

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
        """Take one step."""
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    self._step_parameter(each, group["lr"], group["weight_decay"], group["eps"])

    def _step_parameter(self, weight: nn.Parameter, lr: float, decay: float, eps: float) -> None:
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


class OptimiserConfig(Config, ABC):
    """The settings of an optimiser."""

    sparse: ClassVar[bool] = False
    """Does it support sparse gradients (`nn.Embedding(sparse=True)`)?"""

    lr: PositiveFloat
    """The learning rate, which the schedule multiplies."""
    weight_decay: float = Field(0.0, ge=0)
    decay_embeddings: bool = True
    """Does the weight decay apply to nn.Embedding too?"""

    @abstractmethod
    def create(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """The optimiser of these parameters."""


class SGD(OptimiserConfig):
    """Stochastic gradient descent, optionally with momentum."""

    name: Literal["sgd"] = "sgd"
    momentum: _Fraction = 0.0
    nesterov: bool = False

    def create(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """torch.optim.SGD."""
        if self.nesterov and not self.momentum:
            raise UserError("nesterov=true needs a momentum above zero")
        return optim.SGD(
            groups, self.lr, momentum=self.momentum, nesterov=self.nesterov, fused=fused
        )


class Adam(OptimiserConfig):
    """Adam (Kingma and Ba 2015); weight decay is added to the gradient."""

    name: Literal["adam"] = "adam"
    betas: tuple[_Fraction, _Fraction] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8

    def create(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """torch.optim.Adam."""
        return optim.Adam(groups, self.lr, betas=self.betas, eps=self.eps, fused=fused)


class AdamW(OptimiserConfig):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    name: Literal["adamw"] = "adamw"
    betas: tuple[_Fraction, _Fraction] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8

    def create(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """torch.optim.AdamW."""
        return optim.AdamW(groups, self.lr, betas=self.betas, eps=self.eps, fused=fused)


class Adafactor(OptimiserConfig):
    """Adam with factored second moments (Shazeer and Stern 2018).

    The learning rate is the largest relative step; the paper's is 0.01.
    """

    name: Literal["adafactor"] = "adafactor"
    lr: PositiveFloat = 0.01
    beta2_decay: float = Field(-0.8, lt=0)
    clip_update: PositiveFloat = 1.0
    """The paper's d: the largest root mean square of an update before it is scaled."""

    def create(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """torch.optim.Adafactor, which has no fused form."""
        return optim.Adafactor(
            groups, self.lr, beta2_decay=self.beta2_decay, d=self.clip_update, weight_decay=0.0
        )


class Adagrad(OptimiserConfig):
    """Adagrad (Duchi et al. 2011), for word vectors.

    Its steps shrink with the sum of squared gradients, so rare words take larger steps.
    """

    sparse = True
    name: Literal["adagrad"] = "adagrad"
    eps: PositiveFloat = 1e-10

    def create(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """`RowAdagrad`, which reads and writes only the rows that have a gradient."""
        return RowAdagrad(groups, self.lr, eps=self.eps)


class SM3(OptimiserConfig):
    """Adagrad with one number for each row and each column (Anil et al. 2019; train/sm3.py)."""

    name: Literal["sm3"] = "sm3"
    momentum: _Fraction = 0.9
    """β of the mean of updates, which is as large as the weights; 0 does not keep one."""
    variant: Literal[1, 2] = 2
    """SM3-I or SM3-II, which is the paper's choice."""

    def create(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """`SM3Optimizer`, which has no fused form."""
        return SM3Optimizer(groups, self.lr, momentum=self.momentum, variant=self.variant)


OPTIMISERS: dict[str, type[OptimiserConfig]] = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "adafactor": Adafactor,
    "adagrad": Adagrad,
    "sm3": SM3,
}
"""The optimisers by their names in recipes."""

Optimiser = Annotated[SGD | Adam | AdamW | Adafactor | Adagrad | SM3, Field(discriminator="name")]
"""Any optimiser, as a key of a recipe: `optimiser = { name = "adam", lr = 0.001 }`."""


def build_optimiser(
    config: OptimiserConfig, model: nn.Module, stages: Stages | None = None
) -> optim.Optimizer:
    """The optimiser of all trainable parameters; with stages, each has its own learning rate.

    >>> optimiser = build_optimiser(AdamW(lr=0.1, weight_decay=0.5), nn.Linear(3, 2))
    >>> [(group["param_names"], group["weight_decay"]) for group in optimiser.param_groups]
    [(['weight'], 0.5), (['bias'], 0.0)]
    """
    learns = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    if not learns:
        raise UserError(f"{type(model).__name__} has no trainable parameter (requires_grad)")
    _check_sparse(config, model)
    tables = {
        id(table)
        for module in model.modules()
        if isinstance(module, nn.Embedding) and not config.decay_embeddings
        for table in module.parameters()
    }
    spared = {name for name, each in learns if each.dim() < 2 or id(each) in tables}
    places = {} if stages is None else stages.assign(model)
    groups: list[_Group] = []
    for stage in [None] if stages is None else list(dict.fromkeys(places.values())):
        own = [pair for pair in learns if places.get(id(pair[1])) == stage]
        rest: _Group = (
            {}
            if stage is None
            else {"lr_scale": stage.lr_scale, "unfreeze_epoch": stage.unfreeze_epoch}
        )
        for decay, held in (
            (config.weight_decay, [pair for pair in own if pair[0] not in spared]),
            (0.0, [pair for pair in own if pair[0] in spared]),
        ):
            groups += [{"params": held, "weight_decay": decay, **rest}] if held else []
    fused = all(each.device.type in _FUSED_ON for _, each in learns)
    return config.create(groups, fused=fused)


def _check_sparse(config: OptimiserConfig, model: nn.Module) -> None:
    """Raise a UserError if the model has sparse gradients and the optimiser does not take them."""
    tables = (nn.Embedding, nn.EmbeddingBag)
    if not any(isinstance(each, tables) and each.sparse for each in model.modules()):
        return
    if not config.sparse or config.weight_decay:
        able = ", ".join(name for name, each in OPTIMISERS.items() if each.sparse)
        raise UserError(
            f"{type(model).__name__} has embeddings with sparse gradients; the optimisers that "
            f"support them are {able}, without weight_decay"
        )


def state_bytes(optimiser: optim.Optimizer) -> int:
    """The bytes of all tensors that an optimiser keeps, step counters left out.

    >>> state_bytes(build_optimiser(SM3(lr=0.1, momentum=0.0), nn.Linear(100, 50)))
    800
    """
    kept = (state.items() for state in optimiser.state.values())
    return sum(
        each.nbytes
        for items in kept
        for name, each in items
        if name != "step" and isinstance(each, Tensor)
    )


@runtime_checkable
class HasCopies(Protocol):
    """A model of several networks that train side by side, along the first axis of parameters."""

    @property
    def copies(self) -> int:
        """How many there are."""
        ...


def scale_gradients(
    parameters: Iterable[nn.Parameter], *, items: int, clip: float | None, copies: int = 1
) -> float:
    """Divide summed gradients by the number of items and clip their norm, in one pass.

    With several copies (`HasCopies`) the gradient of each is clipped by itself. Returns the norm
    before clipping, the largest one of all copies.
    """
    if copies > 1:
        return _scale_copies([each for each in parameters if each.grad is not None], items, clip)
    gradients = [_gradient_values(each) for each in parameters if each.grad is not None]
    norm = float(get_total_norm(gradients)) / items
    # The same epsilon as in torch.nn.utils.clip_grad_norm_, so that recipes carry over.
    factor = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
    torch._foreach_mul_(gradients, factor / items)
    return norm


def _scale_copies(parameters: Sequence[nn.Parameter], items: int, clip: float | None) -> float:
    """`scale_gradients` of each entry along the first axis."""
    gradients = [_gradient_values(each) for each in parameters]
    squares = torch.stack([each.flatten(1).square().sum(1) for each in gradients])  # [P,R]
    norms = squares.sum(0).sqrt() / items  # [R]
    factors = torch.ones_like(norms) if clip is None else (clip / (norms + 1e-6)).clamp_max(1.0)
    for each in gradients:
        each.mul_((factors / items).view(-1, *(1 for _ in each.shape[1:])))
    return float(norms.max())


def _gradient_values(parameter: nn.Parameter) -> Tensor:
    """The values of a gradient, for changes in place; of a sparse one, its rows."""
    gradient = parameter.grad
    assert gradient is not None
    if not gradient.is_sparse:
        return gradient
    parameter.grad = gradient.coalesce()  # sums the gradients of a row that was looked up twice
    return parameter.grad.values()
