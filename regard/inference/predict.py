"""What a model says of a text, whatever its task, also when it is made to look elsewhere.

`served` is a run as the server is given it: the server knows neither recipes nor models.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.attention import intervene, permuted, uniform
from regard.attention.edit import permitted
from regard.attention.tape import Edit, Look, Site, sites_of
from regard.core.errors import UserError, unknown
from regard.core.protocols import Stepper
from regard.inference.attention import SEEN
from regard.runs.run import Predicts, Run
from regard.serve.served_run import Change, Choice, Said, Served
from regard.tasks.language_model import LanguageModelling
from regard.tasks.task import OpenTask
from regard.tasks.translate import Translation

_CHOICES = 20
"""Next tokens that are named, the likeliest first."""


def served(run: Run, *, trained: bool = True) -> Served:
    """A run as the server is given it; one that is not trained has curves alone."""
    sites = tuple(each for each in _attention_of(run.model))
    run.model.eval()
    return Served(
        name=run.folder.resolve().name,
        folder=run.folder,
        task=run.recipe.task,
        kind=run.recipe.kind,
        title=run.recipe.about.title,
        opened=run.task,
        model=run.model if trained else None,
        look=run.look,
        say=lambda text, changes: _said(run.recipe.task, run.task, run.model, text, changes),
        length=lambda text: _length(run.task, text),
        sites=sites if run.recipe.task in SEEN else (),
    )


def _said(
    name: str, task: OpenTask, model: nn.Module, text: str, changes: Sequence[Change] = ()
) -> Said:
    """What the model says of a text while its attention is changed; `name` is that of the task."""
    if not text.strip():
        raise UserError("there is nothing to say of it: the text is empty")
    how = _SAID.get(name, _of_predictions if isinstance(task, Predicts) else None)
    if how is None:
        raise unknown("task that says something of a text", name, _SAID)
    with ExitStack() as stack, torch.no_grad():
        for change in changes:
            stack.enter_context(intervene(model, {change.site: edit(change)}))
        return how(task, model, text)


def _of_language_model(task: OpenTask, model: nn.Module, text: str) -> Said:
    """The likeliest tokens to come next."""
    assert isinstance(task, LanguageModelling)
    assert isinstance(model, Stepper)
    tokeniser = task.tokeniser
    ids = tokeniser.encode(text)
    tokens = torch.tensor([ids], device=next(model.parameters()).device)  # [1,T]
    logits, _ = model.step(tokens[:, -1], model.start({"tokens": tokens}))  # [1,V]
    best, numbers = logits[0].float().softmax(-1).topk(min(_CHOICES, logits.shape[1]))
    pairs = zip(numbers.tolist(), best.tolist(), strict=True)
    return Said(
        tokens=tuple(text[begin:end] for begin, end in tokeniser.offsets(text)),
        choices=tuple(Choice(tokeniser.decode([n]) or f"<token {n}>", p) for n, p in pairs),
    )


def _of_translation(task: OpenTask, model: nn.Module, text: str) -> Said:
    """What it writes if it always takes the likeliest token, so that a change shows at once."""
    assert isinstance(task, Translation)
    greedy = replace(task.beam, width=1, n_best=1, groups=1)
    (line,) = task.translate(model, [text], beam=greedy)
    source = task.numbering.source
    return Said(
        tokens=tuple(line.source[begin:end] for begin, end in source.offsets(line.source)),
        text=line.text,
        labels=tuple(
            task.spelled([token], line.source) for token in line.outputs[0].hypothesis.tokens
        ),
    )


def _of_predictions(task: OpenTask, model: nn.Module, text: str) -> Said:
    """What any task that predicts says of a line; probabilities where there are some."""
    assert isinstance(task, Predicts)
    (answer,) = task.predict(model, [text])
    named = answer.fields.get("probabilities")
    likely = named.items() if isinstance(named, dict) else ()
    choices = [Choice(str(label), float(p)) for label, p in likely]
    return Said(
        text=answer.text,
        choices=tuple(sorted(choices, key=lambda choice: -choice.probability)),
    )


_SAID: dict[str, Callable[[OpenTask, nn.Module, str], Said]] = {
    "language_model": _of_language_model,
    "translate": _of_translation,
}
"""What the models of each task say; others are asked through their task's `predict`."""


def _length(task: OpenTask, text: str) -> int:
    """How many tokens a model reads of a text; letters, where the task has no one tokeniser."""
    if isinstance(task, LanguageModelling):
        return len(task.tokeniser.encode(text))
    if isinstance(task, Translation):
        return len(task.numbering.source.encode(text))
    return len(text) if task.reads is None else len(task.reads.encode(text))


def _attention_of(model: nn.Module) -> list[str]:
    """The names of a model's sites; none if it has no attention."""
    return list(sites_of(model)) if any(isinstance(m, Site) for m in model.modules()) else []


def edit(change: Change) -> Edit:
    """The change as `intervene` takes it."""
    made: dict[str, Edit] = {
        "off": lambda weights, look: torch.zeros_like(weights),
        "uniform": uniform,
        "permuted": permuted(change.seed),
        "row": _drawn(change.query, change.weights),
    }
    return made[change.how] if change.heads is None else _by_heads(change.heads, made[change.how])


def _by_heads(heads: Sequence[int], edit: Edit) -> Edit:
    """An edit kept to some heads; the others stay as they are."""

    def only(weights: Tensor, look: Look) -> Tensor:
        count = weights.shape[1]
        for head in heads:
            if not 0 <= head < count:
                raise UserError(f"site {look.site!r} has heads 0 to {count - 1}, not {head}")
        changed = weights.clone()
        changed[:, list(heads)] = edit(weights, look)[:, list(heads)]
        return changed

    return only


def _drawn(query: int, given: Sequence[float]) -> Edit:
    """One row as somebody drew it: kept to the keys that may be looked at, and to a sum of one.

    >>> weights = torch.tensor([[[[1.0, 0.0, 0.0]]]])
    >>> look = Look(site="a", kind="self", first=4, allowed=None)
    >>> _drawn(4, [1.0, 3.0])(weights, look).tolist()
    [[[[0.25, 0.75, 0.0]]]]
    """

    def edit(weights: Tensor, look: Look) -> Tensor:
        place, keys = query - look.first, weights.shape[3]
        if not 0 <= place < weights.shape[2]:
            return weights
        row = weights.new_zeros(keys)
        row[: min(keys, len(given))] = weights.new_tensor(given[:keys])
        kept = row * permitted(weights, look)[:, :, place]  # [B,H,K]
        changed = weights.clone()
        changed[:, :, place] = kept / kept.sum(-1, keepdim=True).clamp_min(1e-9)
        return changed

    return edit
