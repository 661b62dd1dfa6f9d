"""Is this attention an explanation? The tests, all together, and what they say in plain words.

Each test takes texts in batches and gives numbers for each text; the verdict says what their mean
shows and how sure it is. A text of one token can show nothing: it is left out and counted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

from regard.core.errors import UserError, choose
from regard.core.protocols import Batch
from regard.explain.reader import Reader
from regard.explain.statistics import Interval, interval
from regard.explain.tests import TESTS as TESTS
from regard.explain.tests import Columns, Probe
from regard.explain.tests import Settings as Settings

_Told = Callable[[str], None]
"""Who is told how far it is."""


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
        if len(known) == 1:
            return f"The one test that shows something speaks {'for' if speak else 'against'} it."
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
    told: _Told = lambda text: None,
) -> Explanation:
    """Run the tests, all that a reader can take unless some are named, on texts in batches."""
    settings = settings or Settings()
    chosen = _chosen_for(reader, tests)
    columns: dict[str, Columns] = {name: {} for name in chosen}
    texts = single = 0
    for batch in batches:
        enough = reader.judged(batch).sum(1) > 1
        single += int((~enough).sum())
        first, texts = texts + 1, texts + int(enough.sum())
        if not enough.any():
            continue
        some = {name: value[enough] for name, value in batch.items()}
        for name, test in chosen.items():
            told(f"texts {first} to {texts}: {name}")
            for column, values in test.find(reader, some, settings).items():
                columns[name].setdefault(column, []).extend(values)
    if not texts:
        raise UserError(
            f"there is nothing to judge: {single} texts, none of them with two tokens or more"
        )
    return Explanation(
        texts,
        single,
        tuple(_verdict(name, test, columns[name], settings) for name, test in chosen.items()),
    )


def _chosen_for(reader: Reader, tests: Sequence[str] | None) -> dict[str, Probe]:
    """The tests that were named, or all that the reader can take."""
    if tests is None:
        return {name: test for name, test in TESTS.items() if test.lacks(reader) is None}
    chosen = {name: choose("test", name, TESTS) for name in tests}
    for name, test in chosen.items():
        lack = test.lacks(reader)
        if lack is not None:
            raise UserError(f"the test {name!r} cannot be made: {lack}")
    return chosen


def _verdict(name: str, test: Probe, columns: Columns, settings: Settings) -> Verdict:
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
