"""Whether where a run looks explains what it says: the audit of a run, and its report."""

from collections.abc import Callable
from dataclasses import replace
from math import isnan
from pathlib import Path

from regard.core.errors import UserError, choose, unknown
from regard.core.mode import evaluating
from regard.explain.explanation import TESTS, Explanation, Verdict, explanation
from regard.explain.head_layers import WAYS
from regard.explain.readers import READERS
from regard.explain.retrain import trained
from regard.explain.sampling import Asked as Asked
from regard.look.report import Section, save_report
from regard.runs.run import Run

_TRAINED = "trained"
"""The test that trains models of its own; it is made only if it is named."""

_CAUTION = (
    "These tests ask whether the weights of one site account for what the model said. Weights that "
    "pass are not thereby the reason that a person would give, and weights that fail may still be "
    "useful: a model may read the same words by several ways. Gradients and leaving words out are "
    "no ground truth either, only other opinions. Intervals are over texts, for one trained model; "
    "another seed may look elsewhere: compare several (regard compare) before you speak of the "
    "kind of model rather than of this one."
)


def audited(run: Run, asked: Asked, told: Callable[[str], None]) -> Explanation:
    """All tests on one site of a run."""
    for name in asked.tests:
        if name not in (*TESTS, _TRAINED):
            raise unknown("test", name, (*TESTS, _TRAINED))
    make = choose("task to audit", run.recipe.task, READERS)
    split = asked.split or run.task.splits[-1]
    if split not in run.task.splits:
        raise UserError(
            f"{run.folder}: there is no {split}; there are {', '.join(run.task.splits)}"
        )
    with evaluating(run.model):
        reader, batches = make(run, asked, split)
        tests = [name for name in asked.tests if name != _TRAINED] if asked.tests else None
        found = explanation(reader, batches, tests=tests, settings=asked.settings, told=told)
        if _TRAINED not in asked.tests:
            return found
        last = trained(run, asked, split, told)
        return replace(found, verdicts=(*found.verdicts, last))


def write_report(run: Run, found: Explanation, path: Path) -> None:
    """The verdicts with their pictures, as a page."""
    lead = f"{found.says} Judged on {found.texts:,} texts" + (
        f"; {found.single:,} of one token or none were left out." if found.single else "."
    )
    title = f"Is this attention an explanation? {run.recipe.about.title}"
    save_report(title, lead, [_section(each) for each in found.verdicts], _CAUTION, path)


def _section(verdict: Verdict) -> Section:
    """A verdict for the report; columns of yes and no are not drawn."""
    rows = [
        (name, f"{mean.mean:.3f}", "" if isnan(mean.low) else f"{mean.low:.3f} to {mean.high:.3f}")
        for name, mean in verdict.figures.items()
    ]
    drawn = {
        name: values
        for name, values in verdict.columns.items()
        if name in verdict.figures and not set(values) <= {-1.0, 0.0, 1.0}
    }
    ways = {name: values for name, values in drawn.items() if name.split(", ")[-1] in WAYS}
    drawn = ways or drawn  # of many heads a picture would be too tall: the table has them
    note = "; ".join(f"{name}: {count} texts cannot be judged" for name, count in
                     verdict.without.items())  # fmt: skip
    shown = drawn or dict(verdict.columns)
    points = {} if verdict.test != _TRAINED else _curve(verdict)
    return Section(verdict.test, verdict.says, verdict.explains, rows, shown, note, points)


def _curve(verdict: Verdict) -> dict[str, tuple[float, float, float, float]]:
    """How far each model that was trained looks and predicts from the one that is judged."""
    figures = verdict.figures
    names = [name.removeprefix("change, ") for name in figures if name.startswith("change, ")]
    return {
        name: (
            figures[f"divergence, {name}"].mean,
            figures[f"change, {name}"].mean,
            figures[f"change, {name}"].low,
            figures[f"change, {name}"].high,
        )
        for name in names
    }
