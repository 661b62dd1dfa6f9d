"""From a model and the subject of its task to a site under audit: its embedding and its layers."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import record
from regard.attention.tape import sites_of
from regard.core.errors import UserError, choose
from regard.core.protocols import Batch
from regard.explain.audited_site import AuditedSite, AuditedUnits
from regard.explain.head_layers import LayerStack
from regard.layers.embedding import TokenEmbedding
from regard.layers.word_features import WordFeatures
from regard.tasks.abilities import Subject
from regard.train.evaluate import device_of, on_device

_EMBEDDINGS = (WordFeatures, TokenEmbedding, nn.Embedding)
"""The modules that embed tokens, the outermost first."""

_ROWS = 4
"""Rows of the batch with which a model is tried."""


def choose_site(model: nn.Module, subject: Subject, name: str | None) -> str:
    """The site of this name, or the only one at which the model makes its predictions."""
    sites = sites_of(model)
    if name is not None:
        choose("site", name, sites)
        return name
    fitting = [
        name
        for name, site in sites.items()
        if site.axes[1] in (subject.axis, *subject.units)
        and (site.axes[0] != site.axes[1] or subject.axis in subject.queries or not subject.queries)
    ]
    if not fitting:
        every = ", ".join(f"{name} (over {site.axes[1]})" for name, site in sites.items())
        raise UserError(f"no site of this model attends over {subject.axis}: {every}")
    if len(fitting) > 1:
        raise UserError(
            f"this model attends at several sites; choose one with --site: {', '.join(fitting)}"
        )
    return fitting[0]


def audited_site(
    model: nn.Module, site: str, subject: Subject, head: int | None = None
) -> AuditedSite:
    """A site of a model under audit, by the axes of the site and the subject."""
    query_axis, key_axis = choose("site", site, sites_of(model)).axes
    if key_axis not in (subject.axis, *subject.units):
        raise UserError(
            f"site {site!r} attends over its axis {key_axis!r}; this task is audited over "
            f"{', '.join((subject.axis, *subject.units))}"
        )
    few = _few_rows(subject.batches, model)
    embedding = find_embedding(model, subject, few)
    layers = find_layers(model, site, subject)
    found = AuditedSite(model, site, subject, embedding=embedding, head=head, layers=layers)
    if key_axis in subject.units:
        return AuditedUnits(found, key_axis, _unit_vectors(model, key_axis))
    if query_axis in subject.units:
        found.unit = query_axis
    if subject.segments is not None:
        found.segments = _attended_segments(found, subject.segments(few), few)
    return found


def _few_rows(batches: Sequence[Batch], model: nn.Module) -> Batch:
    """Some rows of a batch of medium length, on the device of the model."""
    if not batches:
        raise UserError("there are no examples to judge")
    some = batches[len(batches) // 2]
    few = {name: value[:_ROWS] for name, value in some.items()}
    return on_device(few, device_of(model))


def _attended_segments(
    site: AuditedSite, segments: Int[Tensor, "B T"], batch: Batch
) -> tuple[int, ...]:
    """The segments to whose positions a site attends at all."""
    with torch.no_grad(), record(site.model, site.site) as tape:
        site.logits(batch)
    attended = (tape[site.site][0].weights > 0).flatten(1, 2).any(1)  # [B,T]
    return tuple(segments[attended & site.real(batch)].unique().tolist())


def _unit_vectors(model: nn.Module, unit: str) -> nn.Module:
    """The module that returns vectors of units: the pooling with a query for each unit."""
    for name, site in sites_of(model).items():
        if site.axes[0] == unit:
            return model.get_submodule(name)
    raise UserError(f"no site of this model pools positions to vectors of its axis {unit!r}")


def find_embedding(model: nn.Module, subject: Subject, batch: Batch) -> nn.Module | None:
    """The module that embeds the inputs; None where they are vectors themselves."""
    if subject.embedding is not None:
        return subject.embedding(model)
    inputs = batch[subject.inputs]
    if inputs.is_floating_point():
        return None
    called: list[nn.Module] = []

    def keep(module: nn.Module, given: tuple[object, ...]) -> None:
        if given and (given[0] is inputs or isinstance(module, WordFeatures)):
            called.append(module)

    known = [each for each in model.modules() if isinstance(each, _EMBEDDINGS)]
    hooks = [each.register_forward_pre_hook(keep) for each in known]
    try:
        with torch.no_grad():
            subject.predict(model, batch)
    finally:
        for hook in hooks:
            hook.remove()
    for kind in _EMBEDDINGS:
        for module in called:
            if isinstance(module, kind):
                return module
    raise UserError(
        f"no embedding of {type(model).__name__} is called with {subject.inputs!r}; without the "
        "vectors of its inputs there are no gradients to compare attention with"
    )


def find_layers(model: nn.Module, site: str, subject: Subject) -> LayerStack | None:
    """The layers of self-attention over the judged axis, and how the prediction depends on the
    last of them; None if there are none below the prediction of this site."""
    sites = sites_of(model)
    axis = subject.axis
    own = tuple(name for name, each in sites.items() if each.axes == (axis, axis))
    if not own:
        return None
    plain = AuditedSite(model, site, subject)
    pools = [name for name, each in sites.items() if each.kind == "pool" and each.axes[1] == axis]

    def pooled(batch: Batch) -> Float[Tensor, "B T"]:
        with torch.no_grad(), record(model, pools[-1]) as tape:
            subject.predict(model, batch)
        return tape[pools[-1]][0].weights.mean((1, 2))

    def at_query(batch: Batch) -> Float[Tensor, "B T"]:
        return one_hot_rows(subject.queries[axis](batch), plain.real(batch).shape[1])

    def first(batch: Batch) -> Float[Tensor, "B T"]:
        real = plain.real(batch)
        return one_hot_rows(torch.zeros_like(real[:, 0], dtype=torch.int64), real.shape[1])

    def from_site(batch: Batch) -> Float[Tensor, "B T"]:
        return plain.predict(batch).weights

    if subject.top is not None:
        top = subject.top
    elif axis in subject.queries:
        top = at_query
    elif subject.queries:  # the prediction is made on another axis, from which sites attend here
        if sites[site].axes[0] not in subject.queries:
            return None
        top = from_site
    else:
        top = pooled if pools else first
    return LayerStack(model, lambda batch: subject.predict(model, batch), own, top)


def one_hot_rows(places: Int[Tensor, "B"], width: int) -> Float[Tensor, "B T"]:
    """One at a place of each row, zero elsewhere.

    >>> one_hot_rows(torch.tensor([1]), 3).tolist()
    [[0.0, 1.0, 0.0]]
    """
    return (torch.arange(width, device=places.device) == places[:, None]).float()
