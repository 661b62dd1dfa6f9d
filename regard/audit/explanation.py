"""Is this attention an explanation? The tests, all together, and what they say in plain words.

Each test takes texts in batches and gives numbers for each text; the verdict says what their mean
shows and how sure it is. A text of one token can show nothing: it is left out and counted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

import torch
from torch import Tensor

from regard.audit.erasure import erased, random_order
from regard.audit.importance import IMPORTANCES, moved
from regard.audit.other_weights import adversary, permuted
from regard.audit.ranks import kendall, overlap, spearman
from regard.audit.reader import Reader
from regard.audit.statistics import Interval, interval
from regard.core.errors import UserError, choose
from regard.core.protocols import Batch

Told = Callable[[str], None]
"""Who is told how far it is."""

Columns = dict[str, list[float]]
"""One number for each text, by what it says."""

FAR = 0.4
"""A divergence from which on weights count as others: of ln 2 = 0.69 that are possible."""
LITTLE = 0.03
"""A difference of probability that is too small to speak of, however sure it is."""
TOP = 3
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
class Verdict:
    """What a test found."""

    test: str
    says: str
    """In plain words."""
    explains: bool | None
    """Does it speak for attention as an explanation? None if it shows neither."""
    figures: Mapping[str, Interval]
    """The mean of each column, with its 95 % interval."""
    columns: Columns = field(repr=False)
    """What was found for each text; not a number where it means nothing."""
    without: Mapping[str, int] = field(default_factory=dict)
    """Texts for which a column means nothing."""


@dataclass(frozen=True)
class Explanation:
    """All verdicts on one site."""

    texts: int
    single: int
    """Texts left out, for they have one token or none."""
    verdicts: tuple[Verdict, ...]

    @property
    def says(self) -> str:
        """The verdicts in a sentence."""
        known = [each for each in self.verdicts if each.explains is not None]
        speak = sum(each.explains is True for each in known)
        if not known:
            return "The tests that were run show nothing either way."
        if speak == len(known):
            return f"All {speak} tests that show something speak for it as an explanation."
        if speak == 0:
            return f"None of the {len(known)} tests that show something speaks for it."
        return f"{speak} of the {len(known)} tests that show something speak for it: not settled."


def explanation(
    reader: Reader,
    batches: Iterable[Batch],
    *,
    tests: Sequence[str] | None = None,
    settings: Settings | None = None,
    told: Told = lambda text: None,
) -> Explanation:
    """Run the tests, all of them unless some are named, on texts in batches."""
    settings = settings or Settings()
    chosen = {name: choose("test", name, TESTS) for name in (tests or TESTS)}
    columns: dict[str, Columns] = {name: {} for name in chosen}
    texts = single = 0
    for number, batch in enumerate(batches, start=1):
        enough = reader.judged(batch).sum(1) > 1
        single += int((~enough).sum())
        texts += int(enough.sum())
        if not enough.any():
            continue
        some = {name: value[enough] for name, value in batch.items()}
        for name, test in chosen.items():
            told(f"batch {number}: {name}, {int(enough.sum())} texts")
            for column, values in test.find(reader, some, settings).items():
                columns[name].setdefault(column, []).extend(values)
    if not texts:
        raise UserError(
            f"there is nothing to judge: {single} texts, none of them with two tokens or more"
        )
    return Explanation(
        texts,
        single,
        tuple(verdict(name, test, columns[name], settings) for name, test in chosen.items()),
    )


@dataclass(frozen=True)
class Probe:
    """How a test is made, and what its means say."""

    find: Callable[[Reader, Batch, Settings], Mapping[str, list[float]]]
    judge: Callable[[Mapping[str, Interval], Settings], tuple[str, bool | None]]
    needs: tuple[str, ...] = ()
    """Columns that some text must have a number in."""


def verdict(name: str, test: Probe, columns: Columns, settings: Settings) -> Verdict:
    """The means over texts, and what they say."""
    known = {
        column: [value for value in values if not isnan(value)]
        for column, values in columns.items()
    }
    figures = {column: interval(values) for column, values in known.items() if values}
    without = {
        column: len(columns[column]) - len(values)
        for column, values in known.items()
        if len(values) < len(columns[column])
    }
    missing = [column for column in test.needs if column not in figures]
    if missing:
        says = f"No text can be judged by {' and '.join(missing)}: there is nothing to rank."
        return Verdict(name, says, None, figures, columns, without)
    says, explains = test.judge(figures, settings)
    return Verdict(name, says, explains, figures, columns, without)


def rows(values: Tensor, judged: Tensor) -> list[Tensor]:
    """The judged numbers of each text."""
    return [value[real].detach().cpu().double() for value, real in zip(values, judged, strict=True)]


def find_agreement(reader: Reader, batch: Batch, settings: Settings) -> Columns:
    """Attention beside gradients and leaving out: tau, its significance, rho and the top tokens."""
    judged = reader.judged(batch)
    with torch.no_grad():
        looked = rows(reader.read(batch).weights, judged)
    found: Columns = {}
    for name, importance in IMPORTANCES.items():
        others = rows(importance(reader, batch), judged)
        pairs = list(zip(looked, others, strict=True))
        taus = [kendall(a, b) for a, b in pairs]
        found[f"tau, {name}"] = [tau.value for tau in taus]
        found[f"significant, {name}"] = [
            tau.p if isnan(tau.p) else float(tau.p < 0.05) for tau in taus
        ]
        found[f"rho, {name}"] = [spearman(a, b) for a, b in pairs]
        found[f"top {TOP}, {name}"] = [overlap(a, b, TOP) for a, b in pairs]
    return found


def judge_agreement(figures: Mapping[str, Interval], settings: Settings) -> tuple[str, bool | None]:
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


def find_permutation(reader: Reader, batch: Batch, settings: Settings) -> Columns:
    """Shuffled weights."""
    change = permuted(reader, batch, times=settings.shuffles, seed=settings.seed)
    return {"median change": change.tolist()}


def judge_permutation(
    figures: Mapping[str, Interval], settings: Settings
) -> tuple[str, bool | None]:
    """Does shuffling matter?"""
    change = figures["median change"]
    said = f"Shuffling the weights moves the prediction by {written(change)} (of 1)."
    if change.mean >= 0.1:
        return f"{said} It matters where the model looks.", True
    if change.mean < 0.05:
        return f"{said} It hardly matters where the model looks.", False
    return f"{said} It matters a little.", None


def find_adversary(reader: Reader, batch: Batch, settings: Settings) -> Columns:
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


def judge_adversary(figures: Mapping[str, Interval], settings: Settings) -> tuple[str, bool | None]:
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
def find_uniform(reader: Reader, batch: Batch, settings: Settings) -> Columns:
    """All tokens alike, without training again."""
    own, judged = reader.read(batch), reader.judged(batch)
    even = judged / judged.sum(1, keepdim=True)
    mass = (own.weights * judged).sum(1, keepdim=True)
    weights = torch.where(judged, even * mass, own.weights)
    other = reader.read(batch, weights=weights).probabilities
    same = (other.argmax(1) == own.probabilities.argmax(1)).double()
    return {"change": moved(own.probabilities, other).tolist(), "same class": same.tolist()}


def judge_uniform(figures: Mapping[str, Interval], settings: Settings) -> tuple[str, bool | None]:
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


def find_erasure(reader: Reader, batch: Batch, settings: Settings) -> Columns:
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


def judge_erasure(figures: Mapping[str, Interval], settings: Settings) -> tuple[str, bool | None]:
    """Are they worth more than any others?"""
    own, chance = figures["comprehensiveness, attention"], figures["comprehensiveness, random"]
    slope = figures["comprehensiveness, gradient x input"]
    said = (
        f"Without the words it looked at most, its class loses {written(own)} of probability; "
        f"without random ones {written(chance)}, without those of the gradient {written(slope)}."
    )
    more = own.mean - chance.mean >= LITTLE and apart(own, chance)
    if more and own.mean >= 0.75 * slope.mean:
        return f"{said} They matter more than others.", True
    if not more:
        return f"{said} They matter hardly more than random ones.", False
    return f"{said} They matter, but others matter more.", None


def apart(first: Interval, second: Interval) -> bool:
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
        find_agreement, judge_agreement, ("tau, gradient x input", "tau, leave one out")
    ),
    "permutation": Probe(find_permutation, judge_permutation),
    "adversary": Probe(find_adversary, judge_adversary),
    "uniform": Probe(find_uniform, judge_uniform),
    "erasure": Probe(find_erasure, judge_erasure),
}
"""The tests by the name a user calls them."""
