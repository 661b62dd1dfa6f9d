"""Optimise: SGD, Adam, AdamW, Adafactor, Adagrad from settings; what befalls a gradient before.

Weight decay is for matrices: biases, gains of norms and all else of one axis are left alone, and
embeddings if asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn, optim
from torch.nn.utils import get_total_norm

from regard.core.config import Config
from regard.core.errors import UserError
from regard.train.rowwise import RowAdagrad
from regard.train.stages import Stages

_FUSED_ON = {"cpu", "cuda", "mps", "xpu"}
"""Where torch has optimisers that take all tensors in one pass: on a CPU 4 to 5 times as fast."""

_Share = Annotated[float, Field(ge=0, lt=1)]


_Group = dict[str, object]
"""Parameters, with their names, that are decayed alike: what torch.optim calls a param_group."""


class Rule(Config, ABC):
    """How weights follow their gradients."""

    sparse: ClassVar[bool] = False
    """Does it follow gradients that are a few rows of a table (`nn.Embedding(sparse=True)`)?"""

    lr: PositiveFloat
    """The learning rate, which the schedule multiplies."""
    weight_decay: float = Field(0.0, ge=0)
    decay_embeddings: bool = True
    """Does the decay reach the tables of nn.Embedding too?"""

    @abstractmethod
    def over(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """The optimiser of these parameters."""


class SGD(Rule):
    """Stochastic gradient descent, with momentum if asked."""

    name: Literal["sgd"] = "sgd"
    momentum: _Share = 0.0
    nesterov: bool = False

    def over(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """torch.optim.SGD."""
        if self.nesterov and not self.momentum:
            raise UserError("nesterov=true needs a momentum above zero")
        return optim.SGD(
            groups, self.lr, momentum=self.momentum, nesterov=self.nesterov, fused=fused
        )


class Adam(Rule):
    """Adam (Kingma and Ba 2015); its weight decay is part of the gradient."""

    name: Literal["adam"] = "adam"
    betas: tuple[_Share, _Share] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8

    def over(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """torch.optim.Adam."""
        return optim.Adam(groups, self.lr, betas=self.betas, eps=self.eps, fused=fused)


class AdamW(Rule):
    """Adam with the weight decay beside the gradient (Loshchilov and Hutter 2019)."""

    name: Literal["adamw"] = "adamw"
    betas: tuple[_Share, _Share] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8

    def over(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """torch.optim.AdamW."""
        return optim.AdamW(groups, self.lr, betas=self.betas, eps=self.eps, fused=fused)


class Adafactor(Rule):
    """Second moments kept as rows and columns (Shazeer and Stern 2018).

    The learning rate is the largest relative step; the paper's is 0.01.
    """

    name: Literal["adafactor"] = "adafactor"
    lr: PositiveFloat = 0.01
    beta2_decay: float = Field(-0.8, lt=0)
    clip_update: PositiveFloat = 1.0
    """The paper's d: the largest root mean square of an update before it is scaled."""

    def over(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """torch.optim.Adafactor, which has no fused form."""
        return optim.Adafactor(
            groups, self.lr, beta2_decay=self.beta2_decay, d=self.clip_update, weight_decay=0.0
        )


class Adagrad(Rule):
    """Steps that shrink with all the gradients so far (Duchi et al. 2011): for word vectors.

    A rare word then learns as much from the few times it is seen as a frequent one.
    """

    sparse = True
    name: Literal["adagrad"] = "adagrad"
    eps: PositiveFloat = 1e-10

    def over(self, groups: list[_Group], *, fused: bool) -> optim.Optimizer:
        """Our own, which reads and writes only the rows that have a gradient."""
        return RowAdagrad(groups, self.lr, eps=self.eps)


OPTIMISERS: dict[str, type[Rule]] = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "adafactor": Adafactor,
    "adagrad": Adagrad,
}
"""Every optimiser by the name a recipe calls it."""

Optimiser = Annotated[SGD | Adam | AdamW | Adafactor | Adagrad, Field(discriminator="name")]
"""Any of them, as a key of a recipe: `optimiser = { name = "adam", lr = 0.001 }`."""


def build(rule: Rule, model: nn.Module, stages: Stages | None = None) -> optim.Optimizer:
    """The optimiser of everything in the model that learns; with stages, each at its own rate.

    >>> optimiser = build(AdamW(lr=0.1, weight_decay=0.5), nn.Linear(3, 2))
    >>> [(group["param_names"], group["weight_decay"]) for group in optimiser.param_groups]
    [(['weight'], 0.5), (['bias'], 0.0)]
    """
    learns = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    if not learns:
        raise UserError(f"{type(model).__name__} has no parameter that learns (requires_grad)")
    _refuse_sparse(rule, model)
    tables = {
        id(table)
        for module in model.modules()
        if isinstance(module, nn.Embedding) and not rule.decay_embeddings
        for table in module.parameters()
    }
    spared = {name for name, each in learns if each.dim() < 2 or id(each) in tables}
    places = {} if stages is None else stages.place(model)
    groups: list[_Group] = []
    for stage in [None] if stages is None else list(dict.fromkeys(places.values())):
        own = [pair for pair in learns if places.get(id(pair[1])) == stage]
        rest: _Group = {} if stage is None else {"share": stage.share, "opens": stage.opens}
        for decay, held in (
            (rule.weight_decay, [pair for pair in own if pair[0] not in spared]),
            (0.0, [pair for pair in own if pair[0] in spared]),
        ):
            groups += [{"params": held, "weight_decay": decay, **rest}] if held else []
    fused = all(each.device.type in _FUSED_ON for _, each in learns)
    return rule.over(groups, fused=fused)


def _refuse_sparse(rule: Rule, model: nn.Module) -> None:
    """Raise if the model's gradients are rows of tables, and this rule cannot follow those."""
    tables = (nn.Embedding, nn.EmbeddingBag)
    if not any(isinstance(each, tables) and each.sparse for each in model.modules()):
        return
    if not rule.sparse or rule.weight_decay:
        able = ", ".join(name for name, each in OPTIMISERS.items() if each.sparse)
        raise UserError(
            f"{type(model).__name__} has tables of which a batch touches a few rows; the "
            f"optimisers that can do so are {able}, without weight_decay"
        )


def scale_gradients(parameters: Iterable[nn.Parameter], *, items: int, clip: float | None) -> float:
    """Divide summed gradients by the items they are over, hold their norm to `clip`; the norm.

    Both factors are applied in one pass. The norm is the one before clipping.
    """
    gradients = [_tensor_of(each) for each in parameters if each.grad is not None]
    norm = float(get_total_norm(gradients)) / items
    # The same small number as in torch.nn.utils.clip_grad_norm_, so that recipes carry over.
    kept = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
    torch._foreach_mul_(gradients, kept / items)
    return norm


def _tensor_of(parameter: nn.Parameter) -> Tensor:
    """The numbers of a gradient, to be changed in place; of a sparse one, those of its rows."""
    gradient = parameter.grad
    assert gradient is not None
    if not gradient.is_sparse:
        return gradient
    parameter.grad = gradient.coalesce()  # a row that was looked up twice is one row
    return parameter.grad.values()
