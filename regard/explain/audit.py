"""The audit of a run: do the attention weights of one site explain its predictions?"""

from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path

from regard.core.errors import UserError, unknown
from regard.core.mode import eval_mode
from regard.core.protocols import ProgressCallback, no_progress
from regard.explain.build import audited_site, choose_site
from regard.explain.head_layers import METHODS
from regard.explain.retrain import judge_by_retraining
from regard.explain.tests import TESTS, AuditSettings
from regard.explain.verdict import AuditResult, Verdict, run_tests
from regard.look.report import Section, save_report
from regard.runs.run import Run
from regard.tasks.abilities import Explains, unsupported
from regard.tasks.task import Split
from regard.train.evaluate import device_of, on_device

_RETRAIN = "retrain"
"""The test that trains models of its own; it runs only if it is named."""

_CAUTION = (
    "These tests show whether the attention weights of one site account for the model's "
    "predictions. Weights that pass are not thereby the reason that a person would give, and "
    "weights that fail may still be useful: a model may use the same input along several paths. "
    "Gradients and leaving positions out are no ground truth either, only other estimates of "
    "importance. The intervals are over examples, for one trained model. Another seed may attend "
    "elsewhere: compare several (regard compare) before you draw conclusions about the kind of "
    "model rather than about this one."
)


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """What is audited."""

    site: str | None = None
    """The name of the site in the model; not needed if there is only one."""
    head: int | None = None
    """One head of the site; None for the mean of all."""
    tests: tuple[str, ...] = ()
    """The names of the tests; none for all but retrain."""
    split: Split | None = None
    """None for the last split of the task."""
    examples: int = 200
    """The most examples that are judged, sampled by the seed."""
    settings: AuditSettings = AuditSettings()  # noqa: RUF009 - frozen


def audit_run(
    run: Run, config: AuditConfig, progress: ProgressCallback = no_progress
) -> AuditResult:
    """Run the tests on one site of a run."""
    for name in config.tests:
        if name not in (*TESTS, _RETRAIN):
            raise unknown("test", name, (*TESTS, _RETRAIN))
    task = run.task
    if not isinstance(task, Explains):
        raise unsupported(run.folder, run.recipe.task, "audits of attention")
    split = config.split or run.task.splits[-1]
    if split not in run.task.splits:
        raise UserError(
            f"{run.folder}: there is no {split} split; there are {', '.join(run.task.splits)}"
        )
    with eval_mode(run.model):
        sampled = task.subject(split, most=config.examples, seed=config.settings.seed)
        batches = [on_device(batch, device_of(run.model)) for batch in sampled.batches]
        subject = replace(sampled, batches=batches)
        site = audited_site(
            run.model, choose_site(run.model, subject, config.site), subject, config.head
        )
        tests = [name for name in config.tests if name != _RETRAIN] if config.tests else None
        result = run_tests(site, batches, tests=tests, settings=config.settings, progress=progress)
        if _RETRAIN not in config.tests:
            return result
        last = judge_by_retraining(run, site, batches, progress)
        return replace(result, verdicts=(*result.verdicts, last))


def write_report(run: Run, result: AuditResult, path: Path) -> None:
    """Write the verdicts with their pictures as a page."""
    lead = f"{result.summary} Judged on {result.examples:,} examples" + (
        f"; {result.too_short:,} with fewer than two positions were left out."
        if result.too_short
        else "."
    )
    title = f"Is this attention an explanation? {run.recipe.about.title}"
    save_report(title, lead, [_section(each) for each in result.verdicts], _CAUTION, path)


def _section(verdict: Verdict) -> Section:
    """A verdict for the report; columns of yes and no are not drawn."""
    rows = [
        (name, f"{mean.mean:.3f}", "" if isnan(mean.low) else f"{mean.low:.3f} to {mean.high:.3f}")
        for name, mean in verdict.figures.items()
    ]
    numbers = {
        name: values
        for name, values in verdict.columns.items()
        if name in verdict.figures and not set(values) <= {-1.0, 0.0, 1.0}
    }
    methods = {name: values for name, values in numbers.items() if name.split(", ")[-1] in METHODS}
    numbers = methods or numbers  # a picture of many heads would be too tall: the table has them
    note = "; ".join(
        f"{name}: {count} examples cannot be judged" for name, count in verdict.not_judged.items()
    )
    drawn = numbers or dict(verdict.columns)
    points = {} if verdict.test != _RETRAIN else _curve(verdict)
    return Section(verdict.test, verdict.summary, verdict.supports, rows, drawn, note, points)


def _curve(verdict: Verdict) -> dict[str, tuple[float, float, float, float]]:
    """The distance of each trained model from the audited one: of weights, and of predictions."""
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
