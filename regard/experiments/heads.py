"""The importance of each head of a trained model, and pruning of the others.

Michel et al. 2019, "Are sixteen heads really better than one?": each head has a gate ξ on its
output. The importance of a head is the mean over examples of |∂loss/∂ξ| at ξ = 1 (eq. 2), divided
by the norm over its layer (section 4.1). Besides, the increase of the loss without the head is
measured (section 3.2). Both work for any run, since a gate is an edit of attention weights.
Departure: heads are pruned all at once by one ranking, and every layer keeps at least one.
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
"""The default number of batches."""


@dataclass(frozen=True)
class Head:
    """A head and its importance."""

    site: str
    head: int
    importance: float
    """The mean of |∂loss/∂ξ|, divided by the norm over its layer."""
    loss_without: float | None = None
    """The increase of the loss without it; None if it was not measured."""


@dataclass(frozen=True)
class FirstBatches:
    """The first few batches."""

    every: Batches
    count: int

    def __len__(self) -> int:
        return min(self.count, len(self.every))

    def batch(self, epoch: int, index: int) -> Batch:
        """One of them."""
        return self.every.batch(epoch, index)

    def resets_carry(self, index: int) -> bool:
        """Does the carry start again at this batch?"""
        return carry_resets(self.every, index)


class HeadGates:
    """A gate of one for each example and each head of every site."""

    def __init__(self) -> None:
        self.gates: dict[str, Tensor] = {}

    def __call__(self, weights: Tensor, look: Look) -> Tensor:
        """The weights of each head, and thereby its output, times its gate."""
        if look.site not in self.gates:
            ones = torch.ones(*weights.shape[:2], 1, 1, dtype=weights.dtype, device=weights.device)
            self.gates[look.site] = ones.requires_grad_()
        return weights * self.gates[look.site]  # [B,H,Q,K]


def head_importance(
    run: Run, split: Split = "validation", batches: int = _FEW, *, ablate: bool = False
) -> list[Head]:
    """Every head of a run, the most important first; `ablate` also measures the loss without it."""
    few = FirstBatches(run.task.evaluation(split), positive("batches", batches))
    found = [
        Head(site, number, each)
        for site, by_head in gate_gradients(run, few).items()
        for number, each in enumerate((by_head / by_head.norm().clamp_min(1e-30)).tolist())
    ]
    if ablate:
        found = _ablate(run, few, found)
    return sorted(found, key=lambda each: -each.importance)


def gate_gradients(run: Run, batches: Batches) -> dict[str, Tensor]:
    """The mean over examples of |∂loss/∂ξ| for each head of each site, `[H]`."""
    model, totals, examples = run.model, dict[str, Tensor](), 0
    sites_of(model)  # raises an error if there is no attention
    with eval_mode(model), torch.enable_grad():
        for index in range(len(batches)):
            batch = on_device(batches.batch(0, index), device_of(model))
            head_gates = HeadGates()
            with intervene(model, {"*": head_gates}):
                loss = run.task.loss(model, batch, None)
            gates = list(head_gates.gates.values())
            gradients = torch.autograd.grad(loss.total, gates, allow_unused=True)
            for (site, gate), each in zip(head_gates.gates.items(), gradients, strict=True):
                mine = torch.zeros_like(gate) if each is None else each.abs()
                totals[site] = totals.get(site, 0.0) + mine.sum((0, 2, 3))  # [H]
            examples += len(gates[0])
    return {site: total / examples for site, total in totals.items()}


def _ablate(run: Run, batches: Batches, heads: list[Head]) -> list[Head]:
    """The same heads with the increase of the loss without each."""
    whole = evaluate(run.model, run.task, batches).metrics()["loss"]
    found = []
    for each in heads:
        with intervene(run.model, {each.site: without(each.head)}):
            alone = evaluate(run.model, run.task, batches).metrics()["loss"]
        found.append(replace(each, loss_without=alone - whole))
    return found


def heads_to_keep(ranked: list[Head], share: float) -> dict[str, list[int]]:
    """The best share of all heads, by site; at least one of each site.

    >>> ranked = [Head("a", 1, 0.9), Head("a", 0, 0.5), Head("b", 0, 0.2), Head("b", 1, 0.1)]
    >>> heads_to_keep(ranked, 0.5)
    {'a': [0, 1], 'b': [0]}
    """
    if not 0 < share <= 1:
        raise UserError(f"keep={share} must be a share of the heads, more than 0 and at most 1")
    chosen = ranked[: max(1, round(share * len(ranked)))]
    best = {each.site: each for each in reversed(ranked)}
    kept: dict[str, list[int]] = {site: [each.head] for site, each in sorted(best.items())}
    for each in chosen:
        if each.head not in kept[each.site]:
            kept[each.site].append(each.head)
    return {site: sorted(heads) for site, heads in kept.items()}


@dataclass(frozen=True)
class PrunableLayers:
    """The layers of a model whose heads can be pruned."""

    settings: Encoding | GPT.Config
    sites: str
    """The name of the site of a layer, with {} for its number."""
    inside: str | None
    """The field of the model's config that contains the settings; None if they are that config."""

    @staticmethod
    def of(run: Run) -> "PrunableLayers":
        """Those of a BERT, of a GPT, or of a model on top of one."""
        model, children = run.model, dict(run.model.named_children())
        encoder, body = children.get("encoder"), children.get("body")
        if isinstance(encoder, TextEncoder) and "encoder" in type(run.recipe.model).model_fields:
            return PrunableLayers(encoder.config, "encoder.{}.attention", "encoder")
        if isinstance(body, GPT):
            return PrunableLayers(body.config, "body.layers.{}.attention", "body")
        if isinstance(model, GPT):
            return PrunableLayers(model.config, "layers.{}.attention", None)
        raise UserError(
            f"heads can be pruned in a bert, a gpt and their classifiers, not in a "
            f"{run.recipe.kind}; intervene(model, {{site: without(head)}}) masks them in any model"
        )

    def pruned_settings(
        self, model: nn.Module, kept: Mapping[str, list[int]]
    ) -> Encoding | GPT.Config:
        """The settings with only these heads."""
        if self.settings.heads_left is not None:
            raise UserError("this model is pruned already; start from the whole model")
        for number in range(self.settings.layers):
            own = model.get_submodule(self.sites.format(number))
            if not isinstance(own, SelfAttention) or own.key_heads != own.heads:
                raise UserError("heads that share their keys cannot be pruned one by one")
            if any(True for _ in own.attend.parameters()):
                raise UserError("heads with a learnt score cannot be pruned")
        left = tuple(len(kept[self.sites.format(n)]) for n in range(self.settings.layers))
        return self.settings.model_copy(update={"heads_left": left})


def prune_heads(run: Run, kept: Mapping[str, list[int]]) -> Run:
    """The run with only these heads: smaller matrices, the same outputs as with gates of zero."""
    layers = PrunableLayers.of(run)
    settings = layers.pruned_settings(run.model, kept)
    config = settings if layers.inside is None else run.recipe.model
    update = {"source": None} | ({layers.inside: settings} if layers.inside else {})
    fewer: Config = config.model_copy(update=update)
    recipe = replace(run.recipe, model=fewer)
    model: nn.Module = run.recipe.model_class(fewer, **run.task.sizes)
    width = layers.settings.width // layers.settings.heads
    model.load_state_dict(_slice_heads(run.model.state_dict(), kept, width))
    return Run(run.folder, recipe, run.task, model.to(device_of(run.model)).eval(), run.began)


def _slice_heads(
    tensors: Mapping[str, Tensor], kept: Mapping[str, list[int]], width: int
) -> dict[str, Tensor]:
    """The tensors of a model with only the rows and columns of some heads."""
    found = dict(tensors)
    for site, heads in kept.items():
        rows = torch.cat([torch.arange(head * width, (head + 1) * width) for head in heads])
        for name in {f"{site}.project.weight", f"{site}.project.bias"} & tensors.keys():
            parts = tensors[name].chunk(3)  # queries, keys, values
            found[name] = torch.cat([part[rows.to(part.device)] for part in parts])
        merge = tensors[f"{site}.merge.weight"]
        found[f"{site}.merge.weight"] = merge[:, rows.to(merge.device)]
    return found


def save_pruned(run: Run, folder: Path, data: Path, kept: Mapping[str, list[int]]) -> Run:
    """Write the pruned run to a folder."""
    heads = sum(len(each) for each in kept.values())
    return leave(prune_heads(run, kept), folder, data, f"of which {heads} heads are left.")
