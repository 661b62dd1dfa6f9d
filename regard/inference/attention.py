"""The attention weights of a model for one input: payloads for pictures, whatever the task.

The task runs the model and labels what it read (`ShowsAttention.read`); here it is recorded, and
each site gets its labels by the names of its axes.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from regard.attention import record
from regard.attention.tape import matching, sites_of
from regard.core.errors import UserError
from regard.core.inputs import LIMITS, Input
from regard.inference.translate import TO_THE_SOURCE, SiteChoice, last_weights
from regard.look import Payload, on_axes
from regard.tasks.abilities import Reading, ShowsAttention, Translates

_LIMITS = replace(LIMITS, characters=20_000)
"""Of a text, so that the weights between all its tokens fit into memory."""


def attention_of(
    task: ShowsAttention,
    model: nn.Module,
    given: Input,
    sites: str | None = None,
    heads: Sequence[int] | None = None,
) -> tuple[Payload, ...]:
    """A payload for each site that a glob matches (or all), of these heads (or all).

    Sites that attend from an output to its source come first; without a glob, what the task draws
    beside the attention comes last.
    """
    check_readable(given)
    known = sites_of(model)
    chosen = tuple(known) if sites is None else matching(sites, known)
    with record(model, chosen, heads=heads) as tape:
        reading = _read(task, model, given)
    found = on_axes(tape, reading.axes, rows=reading.rows, beams=reading.beams)
    ordered = sorted(found, key=lambda each: each.kind not in TO_THE_SOURCE)
    return (*ordered, *(_tables(reading) if sites is None else ()))


def _tables(reading: Reading) -> tuple[Payload, ...]:
    """What is drawn beside the attention."""
    return tuple(
        Payload.of(table.values, table.queries, table.keys, site=name, kind="memory")
        for name, table in reading.tables.items()
    )


def to_the_source(payloads: Sequence[Payload]) -> tuple[Payload, ...]:
    """Those that attend from an output to its source, if there are any, or else all."""
    return tuple(each for each in payloads if each.kind in TO_THE_SOURCE) or tuple(payloads)


def _read(task: ShowsAttention, model: nn.Module, given: Input) -> Reading:
    """Run the model; a search with coverage needs the attention to the source in each step."""
    if not (isinstance(task, Translates) and task.beam.coverage):
        return task.read(model, given)
    with record(model, SiteChoice().names(model)) as tape:
        return task.read(model, given, weights=lambda state: last_weights(tape))


def check_readable(given: Input) -> None:
    """Refuse an empty input, and one with more attention weights than memory has room for."""
    if not given.title.strip():
        raise UserError("there is nothing to attend to: the text is empty")
    given.check(_LIMITS)
