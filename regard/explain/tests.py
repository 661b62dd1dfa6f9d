"""The tests of whether attention explains: how each is made, and what its means say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan

import torch
from torch import Tensor

from regard.core.protocols import Batch
from regard.explain.counterfactual import adversary, even, permuted
from regard.explain.erasure import erased, random_order
from regard.explain.head_layers import WAYS, Stacked, read_heads
from regard.explain.importance import IMPORTANCES, moved
from regard.explain.ranks import kendall, overlap, spearman
from regard.explain.reader import Reader
from regard.explain.statistics import Interval

Columns = dict[str, list[float]]
"""One number for each text, by what it says."""

_Said = tuple[str, bool | None]
"""What a test found in plain words, and whether it speaks for attention as an explanation."""

FAR = 0.4
"""A divergence from which on weights count as others: of ln 2 = 0.69 that are possible."""
LITTLE = 0.03
"""A difference of probability that is too small to speak of, however sure it is."""
_BESIDE = ("gradient x input", "leave one out")
"""What heads are compared with; single ones with the last of these alone."""
_TOP = 3
"""How many tokens the overlap of the highest looks at."""


@dataclass(frozen=True)
class Settings:
    """How much is tried."""

    epsilon: float = 0.01
    """The change of a prediction that counts as none."""
    shuffles: int = 100
    starts: int = 10
    steps: int = 500
    rate: float = 0.01
    """Of the adversary's Adam."""
    seed: int = 0


@dataclass(frozen=True)
class Probe:
    """How a test is made, and what its means say."""

    find: Callable[[Reader, Batch, Settings], Mapping[str, list[float]]]
    judge: Callable[[Mapping[str, Interval], Settings], _Said]
    needs: tuple[str, ...] = ()
    """Columns that some text must have a number in."""
    lacks: Callable[[Reader], str | None] = lambda reader: None
    """What a reader lacks to be tested so; None if nothing."""


def _rows(values: Tensor, judged: Tensor) -> list[Tensor]:
    """The judged numbers of each text, in float64 on the CPU: not every device has float64."""
    numbers, real = values.detach().cpu().double(), judged.cpu()
    return [row[judged_here] for row, judged_here in zip(numbers, real, strict=True)]


def _find_agreement(reader: Reader, batch: Batch, settings: Settings) -> Columns:
    """Attention beside gradients and leaving out: tau, its significance, rho and the top tokens."""
    judged = reader.judged(batch)
    with torch.no_grad():
        looked = _rows(reader.read(batch).weights, judged)
    found: Columns = {}
    for name, importance in IMPORTANCES.items():
        others = _rows(importance(reader, batch), judged)
        pairs = list(zip(looked, others, strict=True))
        taus = [kendall(a, b) for a, b in pairs]
        found[f"tau, {name}"] = [tau.value for tau in taus]
        found[f"significant, {name}"] = [
            tau.p if isnan(tau.p) else float(tau.p < 0.05) for tau in taus
        ]
        found[f"rho, {name}"] = [spearman(a, b) for a, b in pairs]
        found[f"top {_TOP}, {name}"] = [overlap(a, b, _TOP) for a, b in pairs]
    return found


def _judge_agreement(figures: Mapping[str, Interval], settings: Settings) -> _Said:
    """Against the gradient of the paper."""
    tau = figures["tau, gradient x input"]
    loo = figures["tau, leave one out"]
    said = (
        f"Where it looks and what gradients call important agree with tau {written(tau)}; with "
        f"leaving words out, {written(loo)}."
    )
    if tau.mean >= 0.5 and loo.mean >= 0.3:
        return f"{said} They mostly agree.", True
    if tau.mean < 0.4:
        return f"{said} They often disagree.", False
    return f"{said} They agree somewhat.", None


def _find_permutation(reader: Reader, batch: Batch, settings: Settings) -> Columns:
    """Shuffled weights."""
    change = permuted(reader, batch, times=settings.shuffles, seed=settings.seed)
    return {"median change": change.tolist()}


def _judge_permutation(figures: Mapping[str, Interval], settings: Settings) -> _Said:
    """Does shuffling matter?"""
    change = figures["median change"]
    said = f"Shuffling the weights moves the prediction by {written(change)} (of 1)."
    if change.mean >= 0.1:
        return f"{said} It matters where the model looks.", True
    if change.mean < 0.05:
        return f"{said} It hardly matters where the model looks.", False
    return f"{said} It matters a little.", None


def _find_adversary(reader: Reader, batch: Batch, settings: Settings) -> Columns:
    """The farthest weights with the same prediction."""
    found = adversary(
        reader,
        batch,
        epsilon=settings.epsilon,
        starts=settings.starts,
        steps=settings.steps,
        rate=settings.rate,
        seed=settings.seed,
    )
    apart = found.divergence.tolist()
    return {
        "divergence": apart,
        "change": found.change.tolist(),
        f"farther than {FAR}": [float(each > FAR) for each in apart],
    }


def _judge_adversary(figures: Mapping[str, Interval], settings: Settings) -> _Said:
    """For how many texts would other weights have done?"""
    share, apart = figures[f"farther than {FAR}"], figures["divergence"]
    said = (
        f"For {100 * share.mean:.0f} % of the texts quite other weights give the same prediction "
        f"within {settings.epsilon:g} (the farthest are {written(apart)} apart; 0.69 is all)."
    )
    if share.mean >= 0.5:
        return f"{said} What it looked at is one story of many.", False
    if share.mean <= 0.1:
        return f"{said} Few other stories would fit.", True
    return f"{said} For some texts other stories fit.", None


@torch.no_grad()
def _find_uniform(reader: Reader, batch: Batch, settings: Settings) -> Columns:
    """All tokens alike, without training again."""
    own = reader.read(batch)
    other = reader.read(batch, weights=even(reader, batch)).probabilities
    same = (other.argmax(1) == own.probabilities.argmax(1)).float()
    return {"change": moved(own.probabilities, other).tolist(), "same class": same.tolist()}


def _judge_uniform(figures: Mapping[str, Interval], settings: Settings) -> _Said:
    """Is attention needed at all?"""
    same, change = figures["same class"], figures["change"]
    said = (
        f"With all words weighing the same, {100 * same.mean:.1f} % of the predictions stay, and "
        f"probabilities move by {written(change)}."
    )
    if same.mean >= 0.95:
        return f"{said} The model hardly needs its attention.", False
    if same.mean < 0.85:
        return f"{said} The model needs its attention.", True
    return f"{said} The model needs it for some texts.", None


def _find_erasure(reader: Reader, batch: Batch, settings: Settings) -> Columns:
    """What the tokens that were looked at most are worth, beside other orders."""
    judged = reader.judged(batch)
    with torch.no_grad():
        looked = reader.read(batch).weights
    orders = {
        "attention": looked,
        "gradient x input": IMPORTANCES["gradient x input"](reader, batch),
        "random": random_order(judged, settings.seed),
    }
    found: Columns = {}
    for name, each in erased(reader, batch, orders).items():
        found[f"comprehensiveness, {name}"] = each.comprehensiveness.tolist()
        found[f"sufficiency, {name}"] = each.sufficiency.tolist()
    return found


def _judge_erasure(figures: Mapping[str, Interval], settings: Settings) -> _Said:
    """Are they worth more than any others?"""
    own, chance = figures["comprehensiveness, attention"], figures["comprehensiveness, random"]
    slope = figures["comprehensiveness, gradient x input"]
    said = (
        f"Without the words it looked at most, its class loses {written(own)} of probability; "
        f"without random ones {written(chance)}, without those of the gradient {written(slope)}."
    )
    more = own.mean - chance.mean >= LITTLE and _apart(own, chance)
    if more and own.mean >= 0.75 * slope.mean:
        return f"{said} They matter more than others.", True
    if not more:
        return f"{said} They matter hardly more than random ones.", False
    return f"{said} They matter, but others matter more.", None


def _find_heads(reader: Reader, batch: Batch, settings: Settings) -> Columns:
    """Every way through the layers and every head, beside gradients and leaving out."""
    assert isinstance(reader, Stacked)
    assert reader.stack is not None
    judged = reader.judged(batch)
    read = read_heads(reader.stack, batch)
    found: Columns = {}
    for beside in _BESIDE:
        others = _rows(IMPORTANCES[beside](reader, batch), judged)
        numbers = {**read.ways, **(read.heads if beside == _BESIDE[-1] else {})}
        for name, values in numbers.items():
            pairs = zip(_rows(values, judged), others, strict=True)
            found[f"tau, {beside}, {name}"] = [kendall(a, b).value for a, b in pairs]
    for name, change in read.moves.items():
        found[f"change without {name}"] = change.tolist()
    return found


def _judge_heads(figures: Mapping[str, Interval], settings: Settings) -> _Said:
    """Which way agrees best, and which heads matter."""
    moves = {
        name.removeprefix("change without "): mean.mean
        for name, mean in figures.items()
        if name.startswith("change without ")
    }
    most = max(moves, key=lambda name: moves[name])
    idle = sum(change < settings.epsilon for change in moves.values())
    taus = {way: figures[f"tau, {_BESIDE[-1]}, {way}"] for way in WAYS
            if f"tau, {_BESIDE[-1]}, {way}" in figures}  # fmt: skip
    said = (
        f"Of {len(moves)} heads {most} matters most: without it the prediction moves by "
        f"{moves[most]:.2f}; {idle} move it by less than {settings.epsilon:g}."
    )
    if "raw" not in taus:
        return f"{said} Where they look ranks no tokens.", None
    best = max(taus, key=lambda way: taus[way].mean)
    listed = ", ".join(f"{way} {written(tau)}" for way, tau in taus.items())
    said = f"{said} With leaving words out agree: {listed}."
    raw = taus["raw"]
    if best != "raw" and _apart(taus[best], raw):
        return f"{said} To see what matters, read {best}, not the weights themselves.", False
    if raw.mean >= 0.4:
        return f"{said} The weights of the last layer say about as much as any of these.", True
    return f"{said} None of them is clearly better than the weights, and those say little.", (
        False if raw.mean < 0.2 else None
    )


def _no_heads(reader: Reader) -> str | None:
    """Heads are compared where there are several."""
    if not isinstance(reader, Stacked) or reader.stack is None:
        return "there are no layers of self-attention under this prediction"
    return None


def _apart(first: Interval, second: Interval) -> bool:
    """Do two intervals have nothing in common?"""
    if any(isnan(each) for each in (first.low, second.low)):
        return False
    return first.low > second.high or second.low > first.high


def written(mean: Interval) -> str:
    """A mean with its interval.

    >>> written(Interval(0.5, 0.4, 0.6)), written(Interval(0.5, float("nan"), float("nan")))
    ('0.50 (0.40 to 0.60)', '0.50')
    """
    if isnan(mean.low):
        return f"{mean.mean:.2f}"
    return f"{mean.mean:.2f} ({mean.low:.2f} to {mean.high:.2f})"


TESTS: dict[str, Probe] = {
    "agreement": Probe(
        _find_agreement, _judge_agreement, ("tau, gradient x input", "tau, leave one out")
    ),
    "permutation": Probe(_find_permutation, _judge_permutation),
    "adversary": Probe(_find_adversary, _judge_adversary),
    "uniform": Probe(_find_uniform, _judge_uniform),
    "erasure": Probe(_find_erasure, _judge_erasure),
    "heads": Probe(_find_heads, _judge_heads, lacks=_no_heads),
}
"""The tests by the name a user calls them."""
