"""The test by retraining: what models that are trained for it show of attention as an explanation.

Wiegreffe and Pinter 2019, Attention is not not Explanation. Is attention needed (a model trained
with uniform weights)? How far do seeds differ? Do the weights help another model (an MLP that is
trained with them)? Can a model be trained to make the same predictions with other weights (over λ)?
Each is a training of the run's own recipe in the run's folder `audit`; an interrupted training
resumes.

`GuidedTask` replaces the attention weights of a model while it learns its task. `AdversarialTask`
trains it to predict what a base model predicts, with other weights (section 4, eq. 1):

    TVD(ŷ, ŷ_base) - λ KL(α ‖ α_base)
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Look, intervene, uniform
from regard.attention.tape import Edit
from regard.core.atomic import write_json_file
from regard.core.errors import UserError
from regard.core.mode import eval_mode
from regard.core.padding import IGNORE
from regard.core.protocols import Batch, Carry, Loss, ProgressCallback, Task
from regard.explain.audited_site import AuditedSite, AuditedUnits
from regard.explain.build import audited_site
from regard.explain.counterfactual import jensen_shannon, uniform_weights
from regard.explain.importance import total_variation
from regard.explain.statistics import Interval, interval
from regard.explain.tests import FAR_DIVERGENCE, SMALL_CHANGE, ExampleColumns, format_interval
from regard.explain.verdict import Verdict
from regard.models.text.attention_pool import AttentionPooling
from regard.runs.recipe import Recipe
from regard.runs.run import SOURCE, Run, built, load, read_weights
from regard.train.evaluate import evaluate
from regard.train.loop import train
from regard.train.weights import load_weights

STRENGTHS = (0.0, 0.0001, 0.001, 0.01)
"""λ: the weight of the divergence in the loss of an adversary."""
SEEDS = 2
"""Further seeds of the same recipe."""
_HIDDEN = 128
"""Units of the MLP for each direction that it lacks."""


@dataclass(frozen=True)
class GuidedTask:
    """A task whose models learn with given attention weights."""

    task: Task
    site: str
    guide: Callable[[Batch], Edit]
    """The edit of the weights for a batch."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of the task."""
        with intervene(model, {self.site: self.guide(batch)}):
            return self.task.loss(model, batch, carry)


def guide_by(base: AuditedSite) -> Callable[[Batch], Edit]:
    """The weights of another model, for every head and query."""

    def guide(batch: Batch) -> Edit:
        with torch.no_grad():
            weights = base.predict(batch).weights

        def edit(own: Tensor, look: Look) -> Tensor:
            return weights[:, None, None].expand_as(own).to(own)

        return edit

    return guide


@dataclass(frozen=True)
class AdversarialTask:
    """The same predictions as a base model, with other attention weights."""

    base: AuditedSite
    learner: AuditedSite
    """The model that is trained."""
    targets: str
    """The tensor of a batch with the class of each row."""
    strength: float
    """λ."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """Summed over examples; the log counts the right classes."""
        with torch.no_grad():
            own = self.base.predict(batch)
        logits, weights = self.learner.differentiable(batch)
        targets = batch[self.targets]
        counted = targets != IGNORE
        change = total_variation(own.probabilities, logits.softmax(1))
        divergence = _kullback_leibler(weights, own.weights)
        total = ((change - self.strength * divergence) * counted).sum()
        right = (logits.argmax(1) == targets).sum()
        return Loss(total=total, items=int(counted.sum()), counts={"accuracy": float(right)})


def _kullback_leibler(
    first: Float[Tensor, "B T"], second: Float[Tensor, "B T"]
) -> Float[Tensor, "B"]:
    """KL(first ‖ second) in nats; a zero of the second counts as the smallest positive number.

    >>> _kullback_leibler(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.5, 0.5]])).tolist()
    [0.0]
    """
    tiny = torch.finfo(first.dtype).tiny
    return (first * (first.clamp_min(tiny).log() - second.clamp_min(tiny).log())).sum(1)


# variants ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """A model that is trained for comparison with the audited one."""

    name: str
    recipe: Recipe
    task: Callable[[AuditedSite], Task]
    """The task of its training, given its site."""
    weights: Callable[[AuditedSite, Batch], Tensor] | None = None
    """The weights with which it predicts, if they are not its own."""


@dataclass(frozen=True)
class AuditedRun:
    """The run that is audited, its site, and the tensor with the class of each example."""

    run: Run
    site: AuditedSite
    targets: str

    @staticmethod
    def of(run: Run, site: AuditedSite) -> "AuditedRun":
        """The run, if its examples have classes."""
        if site.subject.targets is None:
            raise UserError(
                f"{run.folder}: the test 'retrain' needs one class for each example, and task "
                f"{run.recipe.task} has none"
            )
        if isinstance(site, AuditedUnits):
            raise UserError(
                f"the test 'retrain' needs a site over {site.subject.axis}; {site.site!r} is over "
                f"{site.key_axis}"
            )
        return AuditedRun(run, site, site.subject.targets)

    @property
    def reads_tokens(self) -> bool:
        """Are its inputs integers? Only then there is an MLP to compare with."""
        return not self.site.subject.batches[0][self.site.subject.inputs].is_floating_point()


def _variants(base: AuditedRun) -> Iterator[Variant]:
    """All models that are trained."""
    recipe, task = base.run.recipe, base.run.task

    def as_it_is(site: AuditedSite) -> Task:
        return task

    def with_uniform_weights(site: AuditedSite) -> Task:
        return GuidedTask(task, site.site, lambda batch: uniform)

    def guided(site: AuditedSite) -> Task:
        return GuidedTask(task, site.site, guide_by(base.site))

    def adversarial(strength: float) -> Callable[[AuditedSite], Task]:
        return lambda site: AdversarialTask(base.site, site, base.targets, strength)

    yield Variant("uniform", recipe, with_uniform_weights, uniform_weights)
    for more in range(1, SEEDS + 1):
        seed = recipe.train.seed + more
        again = replace(recipe, train=recipe.train.model_copy(update={"seed": seed}))
        yield Variant(f"seed {seed}", again, as_it_is)
    if base.reads_tokens:
        mlp = replace(recipe, kind="attention_pool", model=_mlp(recipe))
        yield Variant("mlp", mlp, as_it_is)
        yield Variant("mlp, uniform", mlp, with_uniform_weights, uniform_weights)
        yield Variant("mlp, guided", mlp, guided, lambda _, batch: base.site.predict(batch).weights)
    monitored = recipe.train.model_copy(update={"monitor": "loss", "better": "lower"})
    for strength in STRENGTHS:
        name = f"adversary {strength:g}"
        yield Variant(name, replace(recipe, train=monitored), adversarial(strength))


def _mlp(recipe: Recipe) -> AttentionPooling.Config:
    """A model without a context for each word, as wide as that of the recipe."""
    own = recipe.model.model_dump()
    return AttentionPooling.Config(
        cell="none",
        width=own.get("width", 100),
        hidden=_HIDDEN,
        dropout=own.get("dropout", 0.0),
        init_range=own.get("init_range", 0.1),
    )


def judge_by_retraining(
    run: Run, site: AuditedSite, batches: Sequence[Batch], progress: ProgressCallback
) -> Verdict:
    """Train all variants that are not trained yet, and compare the run with them."""
    base = AuditedRun.of(run, site)
    variants = list(_variants(base))
    sites: dict[str, AuditedSite] = {}
    for number, variant in enumerate(variants, start=1):
        progress(f"training {number} of {len(variants)}: {variant.name}")
        sites[variant.name] = _trained_site(base, variant)
    columns: ExampleColumns = {}
    for batch in batches:
        enough = site.positions(batch).sum(1) > 1
        some = {name: value[enough] for name, value in batch.items()}
        if enough.any():
            for name, values in compare_variants(base, variants, sites, some).items():
                columns.setdefault(name, []).extend(values)
    if not columns:
        raise UserError("there is nothing to judge: no example has two positions or more")
    figures = {name: interval(values) for name, values in columns.items()}
    summary, supports = judge_variants(figures)
    return Verdict("retrain", summary, supports, figures, columns)


def _trained_site(base: AuditedRun, variant: Variant) -> AuditedSite:
    """The site of a variant's model, which is trained now or was before."""
    run = base.run
    folder = run.folder / "audit" / variant.name.replace(", ", "-").replace(" ", "-")
    device = next(run.model.parameters()).device
    source = None if variant.recipe.source is None else load(run.folder / SOURCE, str(device))
    model = built(variant.recipe, run.task, source, str(device))
    run.task.initialise(model)
    own = base.site
    mlp = variant.name.startswith("mlp")
    site = audited_site(model, "pool" if mlp else own.site, own.subject, None if mlp else own.head)
    _require_same_base(folder, variant.recipe, run.folder / "model.safetensors")
    weights = folder / "model.safetensors"
    if weights.exists():
        load_weights(model, read_weights(weights), source=str(weights))
    else:
        _train_variant(base, variant, site, folder)
    model.eval()
    return site


def _train_variant(base: AuditedRun, variant: Variant, site: AuditedSite, folder: Path) -> None:
    """Train the variant in its folder."""
    task = variant.task(site)
    validation = base.run.task.evaluation("validation")

    def validate() -> Mapping[str, float]:
        return evaluate(site.model, task, validation).metrics()

    with eval_mode(base.run.model):
        settings, batches = variant.recipe.train, base.run.task.batches()
        result = train(site.model, task, batches, settings, folder, validate=validate)
    if result.outcome == "interrupted":
        raise KeyboardInterrupt


def _require_same_base(folder: Path, recipe: Recipe, base: Path) -> None:
    """Refuse a folder with a model of another recipe, or for another audited model."""
    path = folder / "variant.json"
    digest = hashlib.sha256(base.read_bytes()).hexdigest()
    own = {"recipe": recipe.to_toml(), "base": digest}
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != own:
        raise UserError(
            f"{folder}: this model was trained for the audit of another model than the run has "
            f"now; remove {folder.parent} to train again"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json_file(path, own)


# comparison -------------------------------------------------------------------------------------


@torch.no_grad()
def compare_variants(
    base: AuditedRun, variants: Sequence[Variant], sites: Mapping[str, AuditedSite], batch: Batch
) -> ExampleColumns:
    """For each example: whether each model is right, and its distance from the audited one."""
    own, targets = base.site.predict(batch), batch[base.targets]
    right = {"base": (own.probabilities.argmax(1) == targets).float()}
    columns: ExampleColumns = {}
    for variant in variants:
        site = sites[variant.name]
        weights = None if variant.weights is None else variant.weights(site, batch)
        other = site.predict(batch, weights=weights)
        right[variant.name] = (other.probabilities.argmax(1) == targets).float()
        if not variant.name.startswith("mlp"):
            divergence = jensen_shannon(other.weights, own.weights)
            change = total_variation(own.probabilities, other.probabilities)
            columns[f"divergence, {variant.name}"] = divergence.tolist()
            columns[f"change, {variant.name}"] = change.tolist()
    columns |= {f"right, {name}": values.tolist() for name, values in right.items()}
    columns["lost, uniform"] = (right["base"] - right["uniform"]).tolist()
    if "mlp" in right:
        columns["gained, mlp guided"] = (right["mlp, guided"] - right["mlp"]).tolist()
    return columns


def judge_variants(figures: Mapping[str, Interval]) -> tuple[str, bool | None]:
    """Are the weights needed, useful to another model, and hard to replace?"""
    lost, gained = figures["lost, uniform"], figures.get("gained, mlp guided")
    seeds = [name.removeprefix("change, ") for name in figures if name.startswith("change, seed")]
    usual = max(figures[f"change, {seed}"].mean for seed in seeds)
    differ = max(figures[f"divergence, {seed}"].mean for seed in seeds)
    adversaries = [
        name.removeprefix("change, ") for name in figures if name.startswith("change, adversary")
    ]
    close = [
        name for name in adversaries if figures[f"change, {name}"].mean <= usual + SMALL_CHANGE
    ]
    far = max(close, key=lambda name: figures[f"divergence, {name}"].mean, default=None)
    summary = (
        f"Trained with uniform weights the model is right for "
        f"{100 * figures['right, uniform'].mean:.1f} % of the examples instead of "
        f"{100 * figures['right, base'].mean:.1f} % (share lost: {format_interval(lost)}). The "
        f"weights of other seeds diverge by {differ:.2f}, their predictions by {usual:.2f}."
    )
    if gained is not None:
        summary += (
            f" An MLP trained with the model's weights is right for "
            f"{100 * figures['right, mlp, guided'].mean:.1f} %, with its own for "
            f"{100 * figures['right, mlp'].mean:.1f} % (gained: {format_interval(gained)})."
        )
    if far is None:
        summary += " No model trained for other weights makes the same predictions."
        distance = Interval(0.0, 0.0, 0.0)
    else:
        distance = figures[f"divergence, {far}"]
        summary += (
            f" Of the models trained for other weights whose predictions are as close as those of "
            f"a seed, the weights of the farthest diverge by {format_interval(distance)} ({far})."
        )
    if not lost.low > 0 or lost.mean < 0.02:
        return f"{summary} The task hardly needs attention: there is little to explain.", False
    if distance.mean >= max(FAR_DIVERGENCE, differ + 0.1):
        return f"{summary} Other weights explain the same predictions.", False
    if gained is None:
        return f"{summary} The weights are needed and hard to replace.", True
    if gained.low > 0:
        return f"{summary} The weights are needed, hard to replace, and useful to others.", True
    return f"{summary} The weights are needed, but not useful to another model.", None
