"""Predictions with changed attention weights, and runs as the server uses them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from regard.attention import intervene, permuted, uniform
from regard.attention.edit import allowed_keys
from regard.attention.tape import Edit, Look, Site, sites_of
from regard.core.errors import UserError
from regard.core.inputs import Input
from regard.look import Payload
from regard.runs.pretrained import sentence_vectors
from regard.runs.run import Run, read_run_config
from regard.serve.served_run import Change, Served
from regard.tasks.abilities import Prediction, ShowsAttention


def served(run: Run, *, trained: bool = True) -> Served:
    """A run as the server uses it; one that is not trained has only curves."""
    sites = tuple(_attention_of(run.model))
    run.model.eval()
    return Served(
        name=run.folder.resolve().name,
        folder=run.folder,
        task=run.recipe.task,
        kind=run.recipe.kind,
        title=run.recipe.about.title,
        opened=run.task,
        model=run.model if trained else None,
        look=lambda given, sites, heads, changes: look_with(run, given, sites, heads, changes),
        predict=lambda given, changes: predict_with(run, given, changes),
        embed=lambda texts: sentence_vectors(run, texts).tolist(),
        sites=sites if isinstance(run.task, ShowsAttention) else (),
        example=str(read_run_config(run.folder).get("example", "")),
    )


def predict_with(run: Run, given: Input, changes: Sequence[Change] = ()) -> Prediction:
    """The prediction for an input with changed attention weights."""
    with _changed(run.model, changes), torch.no_grad():
        (prediction,) = run.predict([given])
    return prediction


def look_with(
    run: Run,
    given: Input,
    sites: str | None = None,
    heads: Sequence[int] | None = None,
    changes: Sequence[Change] = (),
) -> tuple[Payload, ...]:
    """The attention weights for an input, some of them changed: the later layers follow."""
    with _changed(run.model, changes):
        return run.look(given, sites, heads)


@contextmanager
def _changed(model: nn.Module, changes: Sequence[Change]) -> Iterator[None]:
    """The model with changed attention weights."""
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(intervene(model, {change.site: edit(change)}))
        yield


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
        kept = row * allowed_keys(weights, look)[:, :, place]  # [B,H,K]
        changed = weights.clone()
        changed[:, :, place] = kept / kept.sum(-1, keepdim=True).clamp_min(1e-9)
        return changed

    return edit
