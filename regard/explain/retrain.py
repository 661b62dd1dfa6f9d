"""What models that are trained for it show of attention as an explanation.

Wiegreffe and Pinter 2019, Attention is not not Explanation: is attention needed (a model trained
with uniform weights), how far do seeds differ, do the weights help another model (an MLP that is
guided by them), and can a model be trained to say the same and look elsewhere (over λ)? Each is a
training of the run's own recipe; what is trained is kept in the run's folder `audit`, and a
training that was interrupted goes on.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.attention import uniform
from regard.core.errors import UserError
from regard.core.mode import eval_mode
from regard.core.protocols import Batch, Task
from regard.explain.attention_reader import Attended
from regard.explain.counterfactual import divergence, even
from regard.explain.explanation import Verdict
from regard.explain.guided import Elsewhere, Guided, as_it_looks
from regard.explain.importance import moved
from regard.explain.readers import classifier, of_classification
from regard.explain.sampling import Asked, shown
from regard.explain.statistics import Interval, interval
from regard.explain.tests import FAR, LITTLE, Columns, written
from regard.models.text.attention_pool import AttentionPooling
from regard.runs.recipe import Recipe
from regard.runs.run import SOURCE, Run, built, load, read_weights, write_json
from regard.tasks.classify import Classification
from regard.tasks.task import Split
from regard.train.evaluate import evaluate
from regard.train.loop import train
from regard.train.weights import load_weights

STRENGTHS = (0.0, 0.0001, 0.001, 0.01)
"""λ: what it is worth to look elsewhere."""
SEEDS = 2
"""Further seeds of the same recipe."""
_HIDDEN = 128
"""Units of the MLP for each direction that it does without."""

_Told = Callable[[str], None]


@dataclass(frozen=True)
class Variant:
    """A model that is trained beside the run's own."""

    name: str
    recipe: Recipe
    task: Callable[[Attended], Task]
    """What it is trained by, given the reader of its model."""
    weights: Callable[[Attended, Batch], Tensor] | None = None
    """The weights it is read with, if they are not its own."""


@dataclass(frozen=True)
class Base:
    """The run that is judged."""

    run: Run
    task: Classification
    reader: Attended
    some: Batch
    """A few texts, to see what a site looks at."""

    @staticmethod
    def of(run: Run, asked: Asked, split: Split) -> tuple["Base", list[Batch]]:
        """The run and the texts it is judged by."""
        task = run.task
        if not isinstance(task, Classification):
            raise UserError(
                f"{run.folder}: the test 'trained' is for classifiers, not for {run.recipe.task}"
            )
        reader, batches = of_classification(run, asked, split)
        assert isinstance(reader, Attended)
        if type(reader) is not Attended:
            raise UserError(f"{reader.site!r} looks at sentences; choose the site of words")
        return Base(run, task, reader, shown(task.evaluation(split), run.model)), list(batches)

    def read_by(self, model: nn.Module, site: str) -> Attended:
        """Another model of the same texts."""
        head = self.reader.head if site == self.reader.site else None
        return classifier(model, site, head, self.task, self.some)


def _variants(base: Base) -> Iterator[Variant]:
    """All that is trained, the cheapest questions first."""
    recipe, task = base.run.recipe, base.task

    def plainly(reader: Attended) -> Task:
        return task

    def evenly(reader: Attended) -> Task:
        return Guided(task, reader.site, lambda batch: uniform)

    def guided(reader: Attended) -> Task:
        return Guided(task, reader.site, as_it_looks(base.reader))

    def elsewhere(strength: float) -> Callable[[Attended], Task]:
        return lambda reader: Elsewhere(base.reader, reader, strength)

    yield Variant("uniform", recipe, evenly, even)
    for more in range(1, SEEDS + 1):
        seed = recipe.train.seed + more
        again = replace(recipe, train=recipe.train.model_copy(update={"seed": seed}))
        yield Variant(f"seed {seed}", again, plainly)
    alone = replace(recipe, kind="attention_pool", model=_mlp(recipe))
    yield Variant("mlp", alone, plainly)
    yield Variant("mlp, uniform", alone, evenly, even)
    yield Variant("mlp, guided", alone, guided, lambda _, batch: base.reader.read(batch).weights)
    watched = recipe.train.model_copy(update={"watch": "loss", "better": "lower"})
    for strength in STRENGTHS:
        name = f"adversary {strength:g}"
        yield Variant(name, replace(recipe, train=watched), elsewhere(strength))


def _mlp(recipe: Recipe) -> AttentionPooling.Config:
    """A model in which words know nothing of each other, as wide as the recipe's."""
    own = recipe.model.model_dump()
    return AttentionPooling.Config(
        cell="none",
        width=own.get("width", 100),
        hidden=_HIDDEN,
        dropout=own.get("dropout", 0.0),
        spread=own.get("spread", 0.1),
    )


def _site_in(variant: Variant, base: Base) -> str:
    """Where the variant looks: at the run's site, or where the MLP pools."""
    return "pool" if variant.name.startswith("mlp") else base.reader.site


def trained(run: Run, asked: Asked, split: Split, told: _Told) -> Verdict:
    """Train what is not trained yet, and judge the run by it."""
    base, batches = Base.of(run, asked, split)
    every = list(_variants(base))
    readers: dict[str, Attended] = {}
    for number, variant in enumerate(every, start=1):
        told(f"training {number} of {len(every)}: {variant.name}")
        readers[variant.name] = _made(base, variant)
    columns: Columns = {}
    for batch in batches:
        enough = base.reader.judged(batch).sum(1) > 1
        some = {name: value[enough] for name, value in batch.items()}
        if enough.any():
            for name, values in measured(base, every, readers, some).items():
                columns.setdefault(name, []).extend(values)
    if not columns:
        raise UserError("there is nothing to judge: no text has two tokens or more")
    figures = {name: interval(values) for name, values in columns.items()}
    says, explains = judged(figures)
    return Verdict("trained", says, explains, figures, columns)


def _made(base: Base, variant: Variant) -> Attended:
    """The variant's model, trained, or on from where it was."""
    run, folder = (
        base.run,
        base.run.folder / "audit" / variant.name.replace(", ", "-").replace(" ", "-"),
    )
    device = next(run.model.parameters()).device
    source = None if variant.recipe.source is None else load(run.folder / SOURCE, str(device))
    model = built(variant.recipe, base.task, source, str(device))
    base.task.initialise(model)
    reader = base.read_by(model, _site_in(variant, base))
    _same_as_before(folder, variant.recipe, run.folder / "model.safetensors")
    weights = folder / "model.safetensors"
    if weights.exists():
        load_weights(model, read_weights(weights), source=str(weights))
    else:
        _learn(base, variant, reader, folder)
    model.eval()
    return reader


def _learn(base: Base, variant: Variant, reader: Attended, folder: Path) -> None:
    """Train the variant in its folder."""
    task = variant.task(reader)
    validation = base.task.evaluation("validation")

    def validate() -> Mapping[str, float]:
        return evaluate(reader.model, task, validation).metrics()

    with eval_mode(base.run.model):
        settings, batches = variant.recipe.train, base.task.batches()
        done = train(reader.model, task, batches, settings, folder, validate=validate)
    if done.outcome == "interrupted":
        raise KeyboardInterrupt


def _same_as_before(folder: Path, recipe: Recipe, base: Path) -> None:
    """Refuse a folder in which something else was trained: another recipe, or by another base."""
    path = folder / "variant.json"
    digest = hashlib.sha256(base.read_bytes()).hexdigest()
    held = {"recipe": recipe.to_toml(), "base": digest}
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != held:
        raise UserError(
            f"{folder}: this was trained beside another model than the run has now; remove "
            f"{folder.parent} to train anew"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, held)


@torch.no_grad()
def measured(
    base: Base, every: list[Variant], readers: Mapping[str, Attended], batch: Batch
) -> Columns:
    """For each text: who is right, and how far each is from the base."""
    own = base.reader.read(batch)
    right = {"base": (own.probabilities.argmax(1) == batch["classes"]).float()}
    found: Columns = {}
    for variant in every:
        reader = readers[variant.name]
        weights = None if variant.weights is None else variant.weights(reader, batch)
        read = reader.read(batch, weights=weights)
        right[variant.name] = (read.probabilities.argmax(1) == batch["classes"]).float()
        if not variant.name.startswith("mlp"):
            apart = divergence(read.weights, own.weights)
            found[f"divergence, {variant.name}"] = apart.tolist()
            found[f"change, {variant.name}"] = moved(own.probabilities, read.probabilities).tolist()
    found |= {f"right, {name}": values.tolist() for name, values in right.items()}
    lost, gained = right["base"] - right["uniform"], right["mlp, guided"] - right["mlp"]
    found["lost, uniform"] = lost.tolist()
    found["gained, mlp guided"] = gained.tolist()
    return found


def judged(figures: Mapping[str, Interval]) -> tuple[str, bool | None]:
    """Needed, helpful to others, and hard to do without?"""
    lost, gained = figures["lost, uniform"], figures["gained, mlp guided"]
    seeds = [name.removeprefix("change, ") for name in figures if name.startswith("change, seed")]
    usual = max(figures[f"change, {seed}"].mean for seed in seeds)
    differ = max(figures[f"divergence, {seed}"].mean for seed in seeds)
    foes = [each.removeprefix("change, ") for each in figures if each.startswith("change, advers")]
    close = [foe for foe in foes if figures[f"change, {foe}"].mean <= usual + LITTLE]
    far = max(close, key=lambda foe: figures[f"divergence, {foe}"].mean, default=None)
    said = (
        f"Trained with uniform weights it is right for "
        f"{100 * figures['right, uniform'].mean:.1f} % of the texts instead of "
        f"{100 * figures['right, base'].mean:.1f} % (share lost: {written(lost)}). Other seeds "
        f"look {differ:.2f} apart and predict {usual:.2f} apart. An MLP guided by its weights is "
        f"right for {100 * figures['right, mlp, guided'].mean:.1f} %, by its own for "
        f"{100 * figures['right, mlp'].mean:.1f} % (gained: {written(gained)})."
    )
    if far is None:
        said += " No model that was trained to look elsewhere predicts as it does."
        foe = Interval(0.0, 0.0, 0.0)
    else:
        foe = figures[f"divergence, {far}"]
        said += (
            f" Of models trained to look elsewhere that predict no farther from it than a seed, "
            f"the farthest looks {written(foe)} apart ({far})."
        )
    if not lost.low > 0 or lost.mean < 0.02:
        return f"{said} It can do without its attention: there is little to explain by it.", False
    if foe.mean >= max(FAR, differ + 0.1):
        return f"{said} The same can be said looking elsewhere.", False
    if gained.low > 0:
        return f"{said} The weights are needed, hard to replace, and of use to others.", True
    return f"{said} The weights are needed, but of no use to another model.", None
