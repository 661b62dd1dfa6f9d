"""Whether where a run looks explains what it says: readers for the audit, whatever the task."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.attention.tape import sites_of
from regard.audit.attended import Attended
from regard.audit.explanation import Explanation, Settings, Verdict, explanation
from regard.audit.reader import Reader
from regard.core.errors import UserError, choose
from regard.core.mode import evaluating
from regard.core.protocols import Batch
from regard.data import BucketBatches
from regard.layers.words import Words
from regard.look.report import Section, save_report
from regard.run import Run
from regard.tasks.classify import Classification
from regard.tasks.language_model import LanguageModelling
from regard.tasks.task import Split

CAUTION = (
    "These tests ask whether the weights of one site account for what the model said. Weights that "
    "pass are not thereby the reason that a person would give, and weights that fail may still be "
    "useful: a model may read the same words by several ways. Gradients and leaving words out are "
    "no ground truth either, only other opinions. Intervals are over texts, for one trained model; "
    "another seed may look elsewhere: compare several (regard compare) before you speak of the "
    "kind of model rather than of this one."
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is audited."""

    site: str | None = None
    """Its name in the model; the only one there is, if there is but one."""
    head: int | None = None
    tests: tuple[str, ...] = ()
    """All, if none is named."""
    split: Split | None = None
    """The last there is, unless one is named."""
    texts: int = 200
    """The most texts that are judged, drawn by the seed."""
    settings: Settings = Settings()  # noqa: RUF009 - frozen


def audited(run: Run, asked: Asked, told: Callable[[str], None]) -> Explanation:
    """All tests on one site of a run."""
    make = choose("task to audit", run.recipe.task, AUDITED)
    split = asked.split or run.task.splits[-1]
    if split not in run.task.splits:
        raise UserError(
            f"{run.folder}: there is no {split}; there are {', '.join(run.task.splits)}"
        )
    with evaluating(run.model):
        reader, batches = make(run, asked, split)
        tests = asked.tests or None
        return explanation(reader, batches, tests=tests, settings=asked.settings, told=told)


def site_of(run: Run, named: str | None) -> str:
    """The site that was named, or the only one."""
    sites = sites_of(run.model)
    if named is not None:
        choose("site", named, sites)
        return named
    if len(sites) > 1:
        raise UserError(
            f"{run.folder}: this model attends at several sites; choose one with --site: "
            f"{', '.join(sites)}"
        )
    return next(iter(sites))


def of_classification(run: Run, asked: Asked, split: Split) -> tuple[Reader, Iterator[Batch]]:
    """A text at a time: which words its class came from."""
    task, model = run.task, run.model
    assert isinstance(task, Classification)
    if task.data.sentences != "none":
        raise UserError(
            f"{run.folder}: documents that are read sentence by sentence are not audited; "
            'words taken out would leave sentences empty (data.sentences is not "none")'
        )
    words = [each for each in model.modules() if isinstance(each, Words)]
    if not words:
        raise UserError(f"{run.folder}: a {run.recipe.kind} has no vectors of words to ask")
    reader = Attended(model, site_of(run, asked.site), words[0], model, head=asked.head)
    examples = task.numbers(split)
    chosen = drawn(len(examples.texts), asked)
    lengths = [examples.texts.lengths[each] for each in chosen.tolist()]
    batches = BucketBatches(
        lengths, lambda numbers: examples.gather(chosen[numbers]), seed=0, batch=32
    )
    return reader, placed((batches.batch(0, each) for each in range(len(batches))), model)


def of_language_model(run: Run, asked: Asked, split: Split) -> tuple[Reader, Iterator[Batch]]:
    """Windows of a text: which of its words the next one came from."""
    task, model = run.task, run.model
    assert isinstance(task, LanguageModelling)
    embedding = model.get_submodule("embed")

    def predict(batch: Batch) -> Tensor:
        prediction, _ = model(batch["tokens"], None)
        rows = torch.arange(len(batch["tokens"]), device=batch["tokens"].device)
        logits: Tensor = prediction.logits()[rows, batch["lengths"].clamp_min(1) - 1]  # [B,V]
        return logits

    reader = Attended(
        model, site_of(run, asked.site), embedding, predict, head=asked.head, query=-1
    )

    def windows() -> Iterator[Batch]:
        left = asked.texts
        batches = task.evaluation(split)
        for index in range(len(batches)):
            tokens = batches.batch(0, index)["tokens"][:left]
            left -= len(tokens)
            lengths = torch.full((len(tokens),), tokens.shape[1])
            yield {"tokens": tokens, "lengths": lengths}
            if left <= 0:
                return

    return reader, placed(windows(), model)


def drawn(count: int, asked: Asked) -> Tensor:
    """The numbers of the texts that are judged, in order."""
    draws = torch.Generator().manual_seed(asked.settings.seed)
    return torch.randperm(count, generator=draws)[: asked.texts].sort().values


def placed(batches: Iterator[Batch], model: nn.Module) -> Iterator[Batch]:
    """Batches where the model is."""
    device = next(model.parameters()).device
    for batch in batches:
        yield {name: value.to(device) for name, value in batch.items()}


def write_report(run: Run, found: Explanation, path: Path) -> None:
    """The verdicts with their pictures, as a page."""
    lead = f"{found.says} Judged on {found.texts:,} texts" + (
        f"; {found.single:,} of one token or none were left out." if found.single else "."
    )
    title = f"Is this attention an explanation? {run.recipe.about.title}"
    save_report(title, lead, [section(each) for each in found.verdicts], CAUTION, path)


def section(verdict: Verdict) -> Section:
    """A verdict for the report; columns of yes and no are not drawn."""
    rows = [
        (name, f"{mean.mean:.3f}", "" if isnan(mean.low) else f"{mean.low:.3f} to {mean.high:.3f}")
        for name, mean in verdict.figures.items()
    ]
    drawn = {
        name: values
        for name, values in verdict.columns.items()
        if name in verdict.figures and not set(values) <= {0.0, 1.0}
    }
    note = "; ".join(f"{name}: {count} texts cannot be judged" for name, count in
                     verdict.without.items())  # fmt: skip
    shown = drawn or dict(verdict.columns)
    return Section(verdict.test, verdict.says, verdict.explains, rows, shown, note)


AUDITED: dict[str, Callable[[Run, Asked, Split], tuple[Reader, Iterator[Batch]]]] = {
    "classify": of_classification,
    "language_model": of_language_model,
}
"""How the models of each task are asked."""
