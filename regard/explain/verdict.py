"""Run the tests of an audit on examples in batches, and summarise them as verdicts.

Each test returns numbers for each example. A verdict summarises their means and how certain they
are. An example with one position shows nothing: it is left out and counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

from regard.core.errors import UserError, choose
from regard.core.protocols import Batch, ProgressCallback, no_progress
from regard.explain.audited_model import AuditedModel
from regard.explain.statistics import Interval, interval
from regard.explain.tests import TESTS, AuditSettings, AuditTest, ExampleColumns
from regard.look.card import card


@dataclass(frozen=True)
class Verdict:
    """The result of one test."""

    test: str
    summary: str
    """In plain words."""
    supports: bool | None
    """Does the result support attention as an explanation? None if it shows neither."""
    figures: Mapping[str, Interval]
    """The mean of each column, with its 95 % interval."""
    columns: ExampleColumns = field(repr=False)
    """The numbers of each example; NaN where a number is not defined."""
    not_judged: Mapping[str, int] = field(default_factory=dict)
    """The number of examples for which a column is not defined, by column."""


@dataclass(frozen=True)
class AuditResult:
    """The verdicts on one site."""

    examples: int
    too_short: int
    """Examples that were left out, because they have fewer than two positions."""
    verdicts: tuple[Verdict, ...]

    @property
    def summary(self) -> str:
        """The verdicts in a sentence."""
        known = [each for each in self.verdicts if each.supports is not None]
        support = sum(each.supports is True for each in known)
        if not known:
            return "The tests are inconclusive."
        if len(known) == 1:
            side = "supports" if support else "does not support"
            return f"The one conclusive test {side} this attention as an explanation."
        if support == len(known):
            return f"All {support} conclusive tests support this attention as an explanation."
        if support == 0:
            return (
                f"None of the {len(known)} conclusive tests supports this attention as an "
                "explanation."
            )
        return (
            f"{support} of the {len(known)} conclusive tests support this attention as an "
            "explanation: the result is mixed."
        )

    def _repr_html_(self) -> str:
        rows = [(each.test, each.summary) for each in self.verdicts]
        return card(self.summary, rows, {}, f"{self.examples:,} examples")


def run_tests(
    model: AuditedModel,
    batches: Iterable[Batch],
    *,
    tests: Sequence[str] | None = None,
    settings: AuditSettings | None = None,
    progress: ProgressCallback = no_progress,
) -> AuditResult:
    """Run the named tests, or all that a model supports, on examples in batches."""
    settings = settings or AuditSettings()
    chosen = _choose_tests(model, tests)
    columns: dict[str, ExampleColumns] = {name: {} for name in chosen}
    examples = too_short = 0
    for batch in batches:
        enough = model.positions(batch).sum(1) > 1
        too_short += int((~enough).sum())
        first, examples = examples + 1, examples + int(enough.sum())
        if not enough.any():
            continue
        some = {name: value[enough] for name, value in batch.items()}
        for name, test in chosen.items():
            progress(f"examples {first} to {examples}: {name}")
            for column, values in test.measure(model, some, settings).items():
                columns[name].setdefault(column, []).extend(values)
    if not examples:
        raise UserError(
            f"there is nothing to judge: of {too_short} examples none has two positions or more"
        )
    return AuditResult(
        examples,
        too_short,
        tuple(_verdict(name, test, columns[name], settings) for name, test in chosen.items()),
    )


def _choose_tests(model: AuditedModel, tests: Sequence[str] | None) -> dict[str, AuditTest]:
    """The named tests, or all that the model supports."""
    if tests is None:
        return {name: test for name, test in TESTS.items() if test.obstacle(model) is None}
    chosen = {name: choose("test", name, TESTS) for name in tests}
    for name, test in chosen.items():
        obstacle = test.obstacle(model)
        if obstacle is not None:
            raise UserError(f"the test {name!r} cannot run: {obstacle}")
    return chosen


def _verdict(
    name: str, test: AuditTest, columns: ExampleColumns, settings: AuditSettings
) -> Verdict:
    """The means over examples, and their verdict."""
    known = {
        column: [value for value in values if not isnan(value)]
        for column, values in columns.items()
    }
    figures = {column: interval(values) for column, values in known.items() if values}
    not_judged = {
        column: len(columns[column]) - len(values)
        for column, values in known.items()
        if len(values) < len(columns[column])
    }
    missing = [column for column in test.needs if column not in figures]
    if missing:
        summary = f"No example has a defined {' or '.join(missing)}: there is nothing to rank."
        return Verdict(name, summary, None, figures, columns, not_judged)
    summary, supports = test.judge(figures, settings)
    return Verdict(name, summary, supports, figures, columns, not_judged)
