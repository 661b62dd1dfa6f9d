"""The tests of whether attention explains predictions: how each is measured and judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan

import torch
from torch import Tensor

from regard.core.protocols import Batch
from regard.explain.audited_model import AuditedModel
from regard.explain.counterfactual import find_adversary, permutation_change, uniform_weights
from regard.explain.erasure import erase, random_ranking
from regard.explain.head_layers import METHODS, HasLayers, score_heads
from regard.explain.importance import IMPORTANCES, total_variation
from regard.explain.statistics import Interval, kendall_tau, spearman_rho, top_overlap

ExampleColumns = dict[str, list[float]]
"""One number for each example, by the name of the column."""

_Judgement = tuple[str, bool | None]
"""The result of a test in plain words, and whether it supports attention as an explanation."""

FAR_DIVERGENCE = 0.4
"""The divergence above which weights count as different; ln 2 = 0.69 is the largest possible."""
SMALL_CHANGE = 0.03
"""A difference of probability that is too small to matter, however certain it is."""
_BASELINES = ("gradient x input", "leave one out")
"""The measures with which layers are compared; single heads only with the last."""
_TOP = 3
"""The number of positions in the overlap of the highest."""


@dataclass(frozen=True)
class AuditSettings:
    """How much each test tries."""

    epsilon: float = 0.01
    """The largest change of a prediction that counts as unchanged."""
    shuffles: int = 100
    starts: int = 10
    steps: int = 500
    rate: float = 0.01
    """The learning rate of the adversary."""
    seed: int = 0


@dataclass(frozen=True)
class AuditTest:
    """How a test is measured, and how its means are judged."""

    measure: Callable[[AuditedModel, Batch, AuditSettings], Mapping[str, list[float]]]
    judge: Callable[[Mapping[str, Interval], AuditSettings], _Judgement]
    needs: tuple[str, ...] = ()
    """Columns that must be defined for some example."""
    obstacle: Callable[[AuditedModel], str | None] = lambda model: None
    """Why a model cannot be tested in this way; None if it can."""


def _rows(values: Tensor, positions: Tensor) -> list[Tensor]:
    """The judged numbers of each example, in float64 on the CPU: not every device has float64."""
    numbers, judged = values.detach().cpu().double(), positions.cpu()
    return [row[own] for row, own in zip(numbers, judged, strict=True)]


def _measure_agreement(
    model: AuditedModel, batch: Batch, settings: AuditSettings
) -> ExampleColumns:
    """Attention beside other measures of importance: tau, its significance, rho, the highest."""
    positions = model.positions(batch)
    with torch.no_grad():
        weights = _rows(model.predict(batch).weights, positions)
    columns: ExampleColumns = {}
    for name, importance in IMPORTANCES.items():
        others = _rows(importance(model, batch), positions)
        pairs = list(zip(weights, others, strict=True))
        taus = [kendall_tau(a, b) for a, b in pairs]
        columns[f"tau, {name}"] = [tau.value for tau in taus]
        columns[f"significant, {name}"] = [
            tau.p if isnan(tau.p) else float(tau.p < 0.05) for tau in taus
        ]
        columns[f"rho, {name}"] = [spearman_rho(a, b) for a, b in pairs]
        columns[f"top {_TOP}, {name}"] = [top_overlap(a, b, _TOP) for a, b in pairs]
    return columns


def _judge_agreement(figures: Mapping[str, Interval], settings: AuditSettings) -> _Judgement:
    """By the gradient of the paper and by leaving out."""
    tau = figures["tau, gradient x input"]
    loo = figures["tau, leave one out"]
    summary = (
        f"Attention weights and gradients rank the positions with tau {format_interval(tau)}; "
        f"attention weights and leaving positions out, with {format_interval(loo)}."
    )
    if tau.mean >= 0.5 and loo.mean >= 0.3:
        return f"{summary} They mostly agree.", True
    if tau.mean < 0.4:
        return f"{summary} They often disagree.", False
    return f"{summary} They agree somewhat.", None


def _measure_permutation(
    model: AuditedModel, batch: Batch, settings: AuditSettings
) -> ExampleColumns:
    """The change by shuffled weights."""
    change = permutation_change(model, batch, times=settings.shuffles, seed=settings.seed)
    return {"median change": change.tolist()}


def _judge_permutation(figures: Mapping[str, Interval], settings: AuditSettings) -> _Judgement:
    """Does the order of the weights matter?"""
    change = figures["median change"]
    summary = (
        f"Shuffling the weights changes the prediction by {format_interval(change)} (at most 1)."
    )
    if change.mean >= 0.1:
        return f"{summary} It matters to which positions the model attends.", True
    if change.mean < 0.05:
        return f"{summary} It hardly matters to which positions the model attends.", False
    return f"{summary} It matters a little to which positions the model attends.", None


def _measure_adversary(
    model: AuditedModel, batch: Batch, settings: AuditSettings
) -> ExampleColumns:
    """The farthest weights with the same prediction."""
    found = find_adversary(
        model,
        batch,
        epsilon=settings.epsilon,
        starts=settings.starts,
        steps=settings.steps,
        rate=settings.rate,
        seed=settings.seed,
    )
    divergence = found.divergence.tolist()
    return {
        "divergence": divergence,
        "change": found.change.tolist(),
        f"farther than {FAR_DIVERGENCE}": [float(each > FAR_DIVERGENCE) for each in divergence],
    }


def _judge_adversary(figures: Mapping[str, Interval], settings: AuditSettings) -> _Judgement:
    """For how many examples would very different weights do?"""
    share, divergence = figures[f"farther than {FAR_DIVERGENCE}"], figures["divergence"]
    summary = (
        f"For {100 * share.mean:.0f} % of the examples very different weights give the same "
        f"prediction within {settings.epsilon:g} (the mean divergence of the farthest is "
        f"{format_interval(divergence)}, of at most 0.69)."
    )
    if share.mean >= 0.5:
        return f"{summary} The model's weights are one explanation of many.", False
    if share.mean <= 0.1:
        return f"{summary} Few other weights would explain the predictions.", True
    return f"{summary} For some examples other weights explain the prediction as well.", None


@torch.no_grad()
def _measure_uniform(model: AuditedModel, batch: Batch, settings: AuditSettings) -> ExampleColumns:
    """Equal weights for all positions, without training again."""
    own = model.predict(batch)
    other = model.predict(batch, weights=uniform_weights(model, batch)).probabilities
    same = (other.argmax(1) == own.probabilities.argmax(1)).float()
    change = total_variation(own.probabilities, other)
    return {"change": change.tolist(), "same class": same.tolist()}


def _judge_uniform(figures: Mapping[str, Interval], settings: AuditSettings) -> _Judgement:
    """Is attention needed at all?"""
    same, change = figures["same class"], figures["change"]
    summary = (
        f"With uniform weights {100 * same.mean:.1f} % of the predictions stay the same, and "
        f"probabilities change by {format_interval(change)}."
    )
    if same.mean >= 0.95:
        return f"{summary} The model hardly needs its attention.", False
    if same.mean < 0.85:
        return f"{summary} The model needs its attention.", True
    return f"{summary} The model needs its attention for some examples.", None


def _measure_erasure(model: AuditedModel, batch: Batch, settings: AuditSettings) -> ExampleColumns:
    """The fall without the positions of the largest weights, beside other rankings."""
    positions = model.positions(batch)
    with torch.no_grad():
        weights = model.predict(batch).weights
    rankings = {
        "attention": weights,
        "gradient x input": IMPORTANCES["gradient x input"](model, batch),
        "random": random_ranking(positions, settings.seed),
    }
    columns: ExampleColumns = {}
    for name, scores in erase(model, batch, rankings).items():
        columns[f"comprehensiveness, {name}"] = scores.comprehensiveness.tolist()
        columns[f"sufficiency, {name}"] = scores.sufficiency.tolist()
    return columns


def _judge_erasure(figures: Mapping[str, Interval], settings: AuditSettings) -> _Judgement:
    """Do these positions matter more than others?"""
    own, chance = figures["comprehensiveness, attention"], figures["comprehensiveness, random"]
    gradient = figures["comprehensiveness, gradient x input"]
    summary = (
        "Without the positions of the largest weights the predicted class loses "
        f"{format_interval(own)} of probability; without random positions "
        f"{format_interval(chance)}, without those of the largest gradients "
        f"{format_interval(gradient)}."
    )
    more = own.mean - chance.mean >= SMALL_CHANGE and _are_apart(own, chance)
    if more and own.mean >= 0.75 * gradient.mean:
        return f"{summary} They matter more than others.", True
    if not more:
        return f"{summary} They matter hardly more than random positions.", False
    return f"{summary} They matter, but others matter more.", None


def _measure_heads(model: AuditedModel, batch: Batch, settings: AuditSettings) -> ExampleColumns:
    """Every method and every head, beside gradients and leaving out."""
    assert isinstance(model, HasLayers)
    assert model.layers is not None
    positions = model.positions(batch)
    scores = score_heads(model.layers, batch)
    columns: ExampleColumns = {}
    for baseline in _BASELINES:
        others = _rows(IMPORTANCES[baseline](model, batch), positions)
        numbers = {**scores.methods, **(scores.heads if baseline == _BASELINES[-1] else {})}
        for name, values in numbers.items():
            pairs = zip(_rows(values, positions), others, strict=True)
            columns[f"tau, {baseline}, {name}"] = [kendall_tau(a, b).value for a, b in pairs]
    for name, change in scores.changes.items():
        columns[f"change without {name}"] = change.tolist()
    return columns


def _judge_heads(figures: Mapping[str, Interval], settings: AuditSettings) -> _Judgement:
    """Which method agrees best, and which heads matter?"""
    changes = {
        name.removeprefix("change without "): mean.mean
        for name, mean in figures.items()
        if name.startswith("change without ")
    }
    most = max(changes, key=lambda name: changes[name])
    idle = sum(change < settings.epsilon for change in changes.values())
    taus = {
        method: figures[f"tau, {_BASELINES[-1]}, {method}"]
        for method in METHODS
        if f"tau, {_BASELINES[-1]}, {method}" in figures
    }
    summary = (
        f"Of {len(changes)} heads {most} matters most: without it the prediction changes by "
        f"{changes[most]:.2f}. Without any one of {idle} others it changes by less than "
        f"{settings.epsilon:g}."
    )
    if "raw" not in taus:
        return f"{summary} The weights do not rank the positions.", None
    best = max(taus, key=lambda method: taus[method].mean)
    listed = ", ".join(f"{method} {format_interval(tau)}" for method, tau in taus.items())
    summary = f"{summary} Agreement with leaving positions out: {listed}."
    raw = taus["raw"]
    if best != "raw" and _are_apart(taus[best], raw):
        return f"{summary} Use {best} rather than the weights to see what matters.", False
    if raw.mean >= 0.4:
        return f"{summary} The weights of the last layer are about as good as any of these.", True
    return (
        f"{summary} None is clearly better than the weights, and the weights agree little.",
        False if raw.mean < 0.2 else None,
    )


def _no_layers(model: AuditedModel) -> str | None:
    """Heads are compared in layers of self-attention."""
    if not isinstance(model, HasLayers) or model.layers is None:
        return "there are no layers of self-attention below this prediction"
    return None


def _are_apart(first: Interval, second: Interval) -> bool:
    """Do two intervals not overlap?"""
    if any(isnan(each) for each in (first.low, second.low)):
        return False
    return first.low > second.high or second.low > first.high


def format_interval(mean: Interval) -> str:
    """A mean with its interval.

    >>> format_interval(Interval(0.5, 0.4, 0.6))
    '0.50 (0.40 to 0.60)'
    >>> format_interval(Interval(0.5, float("nan"), float("nan")))
    '0.50'
    """
    if isnan(mean.low):
        return f"{mean.mean:.2f}"
    return f"{mean.mean:.2f} ({mean.low:.2f} to {mean.high:.2f})"


TESTS: dict[str, AuditTest] = {
    "agreement": AuditTest(
        _measure_agreement, _judge_agreement, ("tau, gradient x input", "tau, leave one out")
    ),
    "permutation": AuditTest(_measure_permutation, _judge_permutation),
    "adversary": AuditTest(_measure_adversary, _judge_adversary),
    "uniform": AuditTest(_measure_uniform, _judge_uniform),
    "erasure": AuditTest(_measure_erasure, _judge_erasure),
    "heads": AuditTest(_measure_heads, _judge_heads, obstacle=_no_layers),
}
"""The tests by name."""
