"""How much each head of a trained model matters, and the model without those that do not.

Michel et al. 2019, "Are sixteen heads really better than one?": a gate ξ is put on what each head
reads, and the importance of a head is the mean over texts of |∂loss/∂ξ| at ξ = 1 (eq. 2), made
comparable between layers by dividing by the norm over each layer (section 4.1); beside it stands
what the loss gains when the head alone is taken out (section 3.2). Both work on the attention of
any run, since a gate is an edit of its weights. Departure: heads are taken out at once, by one
ranking, and every layer keeps one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.attention import intervene, without
from regard.attention.tape import Look, sites_of
from regard.core.config import Config
from regard.core.errors import UserError, positive
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Batches
from regard.layers.multihead import SelfAttention
from regard.layers.text_encoder import Encoding, TextEncoder
from regard.models.language.gpt import GPT
from regard.runs.pretrained import leave
from regard.runs.run import Run
from regard.tasks.task import Split
from regard.train.evaluate import carry_resets, device_of, evaluate, on_device

_FEW = 8
"""Batches that are looked at unless the caller says otherwise."""


@dataclass(frozen=True)
class Head:
    """A head, and how much it matters."""

    site: str
    head: int
    importance: float
    """The mean of |∂loss/∂ξ|, by the norm over its layer."""
    loss_without: float | None = None
    """How much more the loss is without it; None where that was not asked for."""


@dataclass(frozen=True)
class First:
    """The first few batches."""

    every: Batches
    count: int

    def __len__(self) -> int:
        return min(self.count, len(self.every))

    def batch(self, epoch: int, index: int) -> Batch:
        """One of them."""
        return self.every.batch(epoch, index)

    def resets_carry(self, index: int) -> bool:
        """Does it begin anew?"""
        return carry_resets(self.every, index)


class Gates:
    """A gate for each text and each head of every site, all of them one."""

    def __init__(self) -> None:
        self.held: dict[str, Tensor] = {}

    def __call__(self, weights: Tensor, look: Look) -> Tensor:
        """Weights, and so what a head reads, times its gate."""
        if look.site not in self.held:
            ones = torch.ones(*weights.shape[:2], 1, 1, dtype=weights.dtype, device=weights.device)
            self.held[look.site] = ones.requires_grad_()
        return weights * self.held[look.site]  # [B,H,Q,K]


def head_importance(
    run: Run, split: Split = "validation", batches: int = _FEW, *, ablate: bool = False
) -> list[Head]:
    """Every head of a run, the most important first; with `ablate` also what its loss is worth."""
    few = First(run.task.evaluation(split), positive("batches", batches))
    found = [
        Head(site, number, each)
        for site, by_head in gradients(run, few).items()
        for number, each in enumerate((by_head / by_head.norm().clamp_min(1e-30)).tolist())
    ]
    if ablate:
        found = _ablated(run, few, found)
    return sorted(found, key=lambda each: -each.importance)


def gradients(run: Run, batches: Batches) -> dict[str, Tensor]:
    """The mean over texts of |∂loss/∂ξ| for each head of each site, `[H]`."""
    model, totals, texts = run.model, dict[str, Tensor](), 0
    sites_of(model)  # says so if there is no attention
    with eval_mode(model), torch.enable_grad():
        for index in range(len(batches)):
            batch = on_device(batches.batch(0, index), device_of(model))
            gates = Gates()
            with intervene(model, {"*": gates}):
                loss = run.task.loss(model, batch, None)
            slopes = torch.autograd.grad(loss.total, list(gates.held.values()), allow_unused=True)
            for (site, gate), slope in zip(gates.held.items(), slopes, strict=True):
                mine = torch.zeros_like(gate) if slope is None else slope.abs()
                totals[site] = totals.get(site, 0.0) + mine.sum((0, 2, 3))  # [H]
            texts += len(next(iter(gates.held.values())))
    return {site: total / texts for site, total in totals.items()}


def _ablated(run: Run, batches: Batches, heads: list[Head]) -> list[Head]:
    """The same heads with what the loss gains when each alone looks at nothing."""
    whole = evaluate(run.model, run.task, batches).metrics()["loss"]
    found = []
    for each in heads:
        with intervene(run.model, {each.site: without(each.head)}):
            alone = evaluate(run.model, run.task, batches).metrics()["loss"]
        found.append(replace(each, loss_without=alone - whole))
    return found


def kept_heads(ranked: list[Head], share: float) -> dict[str, list[int]]:
    """The heads that stay at each site if so large a share of all does; the best of each at least.

    >>> ranked = [Head("a", 1, 0.9), Head("a", 0, 0.5), Head("b", 0, 0.2), Head("b", 1, 0.1)]
    >>> kept_heads(ranked, 0.5)
    {'a': [0, 1], 'b': [0]}
    """
    if not 0 < share <= 1:
        raise UserError(f"keep={share} must be a share of the heads, above 0 and at most 1")
    chosen = ranked[: max(1, round(share * len(ranked)))]
    best = {each.site: each for each in reversed(ranked)}
    kept: dict[str, list[int]] = {site: [each.head] for site, each in sorted(best.items())}
    for each in chosen:
        if each.head not in kept[each.site]:
            kept[each.site].append(each.head)
    return {site: sorted(heads) for site, heads in kept.items()}


@dataclass(frozen=True)
class Layers:
    """Where the layers of a model are whose heads can be taken out."""

    settings: Encoding | GPT.Config
    sites: str
    """The attention of a layer, by its number."""
    inside: str | None
    """The field of the model's config that holds the settings; None if they are that config."""

    @staticmethod
    def of(run: Run) -> "Layers":
        """Those of a BERT, of a GPT, or of what is built on one."""
        model, held = run.model, dict(run.model.named_children())
        encoder, body = held.get("encoder"), held.get("body")
        if isinstance(encoder, TextEncoder) and "encoder" in type(run.recipe.model).model_fields:
            return Layers(encoder.config, "encoder.{}.attention", "encoder")
        if isinstance(body, GPT):
            return Layers(body.config, "body.layers.{}.attention", "body")
        if isinstance(model, GPT):
            return Layers(model.config, "layers.{}.attention", None)
        raise UserError(
            f"heads can be taken out of a bert, a gpt and their classifiers, not of a "
            f"{run.recipe.kind}; intervene(model, {{site: without(head)}}) shuts them in any"
        )

    def left(self, model: nn.Module, kept: Mapping[str, list[int]]) -> Encoding | GPT.Config:
        """The settings with only these heads."""
        if self.settings.heads_left is not None:
            raise UserError("heads were taken out of it already; begin with the whole")
        for number in range(self.settings.layers):
            own = model.get_submodule(self.sites.format(number))
            if not isinstance(own, SelfAttention) or own.key_heads != own.heads:
                raise UserError("heads that share their keys cannot be taken out one by one")
            if any(True for _ in own.attend.parameters()):
                raise UserError("heads whose score is learnt cannot be taken out")
        left = tuple(len(kept[self.sites.format(n)]) for n in range(self.settings.layers))
        return self.settings.model_copy(update={"heads_left": left})


def pruned(run: Run, kept: Mapping[str, list[int]]) -> Run:
    """The run with only these heads: smaller matrices, and the same numbers as with gates shut."""
    layers = Layers.of(run)
    settings = layers.left(run.model, kept)
    config = settings if layers.inside is None else run.recipe.model
    update = {"source": None} | ({layers.inside: settings} if layers.inside else {})
    fewer: Config = config.model_copy(update=update)
    recipe = replace(run.recipe, model=fewer)
    model: nn.Module = run.recipe.model_class(fewer, **run.task.sizes)
    width = layers.settings.width // layers.settings.heads
    model.load_state_dict(_sliced(run.model.state_dict(), kept, width))
    return Run(run.folder, recipe, run.task, model.to(device_of(run.model)).eval(), run.began)


def _sliced(
    tensors: Mapping[str, Tensor], kept: Mapping[str, list[int]], width: int
) -> dict[str, Tensor]:
    """The tensors of a model with the rows and columns of some heads only, each of that width."""
    found = dict(tensors)
    for site, heads in kept.items():
        rows = torch.cat([torch.arange(head * width, (head + 1) * width) for head in heads])
        for name in {f"{site}.project.weight", f"{site}.project.bias"} & tensors.keys():
            parts = tensors[name].chunk(3)  # queries, keys, values
            found[name] = torch.cat([part[rows.to(part.device)] for part in parts])
        merge = tensors[f"{site}.merge.weight"]
        found[f"{site}.merge.weight"] = merge[:, rows.to(merge.device)]
    return found


def leave_pruned(run: Run, folder: Path, data: Path, kept: Mapping[str, list[int]]) -> Run:
    """Write the run without the other heads."""
    heads = sum(len(each) for each in kept.values())
    return leave(pruned(run, kept), folder, data, f"of which {heads} heads are left.")
