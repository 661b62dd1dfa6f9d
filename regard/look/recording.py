"""From a tape to payloads: attention weights with labels for their axes.

    with record(model, "decoder.*.cross") as tape:
        model(batch)
    payloads(tape, {"decoder.*": (target, source)}, row=3)         # one for each call

Labels stand under globs, as edits do: for each site an axis, or texts, for its queries and its
keys. A batch is padded, so there may be fewer labels than positions. Queries beyond them are left
out; keys beyond them must weigh nothing, or it is an error.

A decoder that goes step by step makes one call per step. `join_steps` puts the steps of a batch row
one under another. In a beam search the rows change places from step to step; `follow_hypothesis`
goes with one hypothesis. `on_axes` labels every site by the names of its axes.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.tape import Call, Tape
from regard.core.axes import Axis, Slots, Steps, Tokens, as_axis
from regard.core.errors import UserError, positive, unknown
from regard.look.payload import Payload, check_labels, plain_array

LabelPair = tuple[Axis | Sequence[str], Axis | Sequence[str]]
"""The labels of queries and of keys."""

Labels = Mapping[str, LabelPair]
"""The labels of queries and keys, by a glob of sites; where several match, the last one counts."""

_START, _SENTINEL = "<s>", "<sentinel>"
"""The labels of the start token of a decoder, and of a key that stands before all positions."""


def on_axes(
    tape: Tape, axes: Mapping[str, Axis], *, rows: Sequence[int] = (), beams: int = 1
) -> tuple[Payload, ...]:
    """A payload for each site, labelled by the names of its axes; sizes have no say in it.

    `rows` and `beams` are those of `follow_hypothesis`: with them, sites that attend from "target"
    follow one hypothesis of a beam search.
    """
    found: list[Payload] = []
    for site in tape.sites:
        calls = tape[site]
        names = calls[0].axes
        labels = {site: (_axis_of(axes, calls, 0), _axis_of(axes, calls, 1))}
        if rows and names[0] == "target":
            found += follow_hypothesis(tape, labels, rows=rows, beams=beams)
        else:
            found += join_steps(tape, labels) if are_steps(calls) else payloads(tape, labels)
    return tuple(found)


def _axis_of(axes: Mapping[str, Axis], calls: Sequence[Call], side: int) -> Axis:
    """The axis of a site's queries (side 0) or keys (side 1), by its name.

    A few names follow from others (`regard.attention.tape.AXIS_NAMES`). Steps and slots need no
    labels of a task: they have numbers.
    """
    name = calls[0].axes[side]
    if name in ("earlier", "next", "sentinel") and "position" in axes:
        axis = axes["position"]
        if name == "sentinel":
            return Tokens(labels=(_SENTINEL, *axis))
        return axis.take(range(1, len(axis)) if name == "next" else range(len(axis) - 1))
    if name == "prefix" and "target" in axes:
        return Tokens(labels=(_START, *axes["target"][:-1]))
    if name in axes:
        return axes[name]
    if name in ("step", "slot"):
        count = max(places_of(calls)) + 1 if side == 0 else keys_of(calls)
        return Steps.of(count) if name == "step" else Slots.of(count)
    raise UserError(
        f"site {calls[0].site!r} attends over {name!r}, and there are labels only for "
        f"{', '.join(axes) or 'nothing'}"
    )


def payloads(tape: Tape, labels: Labels, *, row: int = 0) -> tuple[Payload, ...]:
    """One payload for each call of the sites that have labels, of one row of the batch."""
    found = []
    for site, (queries, keys) in sites_with_labels(tape, labels):
        calls = list(_stepped(tape[site]))
        _check_last(tape, site, [place for _, places, _ in calls for place in places], queries)
        for call, places, step in calls:
            first = _first_key(call, places)
            own = (queries, as_axis(keys).take(range(first, len(keys))) if first else keys)
            found.append(_with_labels(call, _taken(call.weights, row, site), places, own, step))
    return tuple(found)


def join_steps(tape: Tape, labels: Labels, *, row: int = 0) -> tuple[Payload, ...]:
    """One payload for each site that has labels: its steps one under another, of one batch row."""
    found = []
    for site, texts in sites_with_labels(tape, labels):
        places = _in_order(tape[site])
        _check_last(tape, site, places, texts[0])
        weights = _taken(_joined_weights(tape, site), row, site)
        found.append(_with_labels(tape[site][-1], weights, places, texts, None))
    return tuple(found)


def _joined_weights(tape: Tape, site: str) -> Float[Tensor, "B N Q K"]:
    """The calls of a site one under another, each with its keys at their own places."""
    calls = list(_stepped(tape[site]))
    if not any(_first_key(call, places) for call, places, _ in calls):
        return tape.join(site)
    wide = keys_of(tape[site])
    parts = []
    for call, places, _ in calls:
        first = _first_key(call, places)
        after = wide - first - call.weights.shape[3]
        parts.append(torch.nn.functional.pad(call.weights, (first, after)))
    return torch.cat(parts, dim=2)


def _first_key(call: Call, places: Sequence[int]) -> int:
    """The place of the first key: 0, unless a call has only the keys right before its query."""
    return min(places) - call.weights.shape[3] if call.axes[1] == "earlier" else 0


def keys_of(calls: Sequence[Call]) -> int:
    """How many keys the calls of a site have together."""
    return max(
        _first_key(call, places) + call.weights.shape[3] for call, places, _ in _stepped(calls)
    )


def follow_hypothesis(
    tape: Tape, labels: Labels, *, rows: Sequence[int], beams: int = 1
) -> tuple[Payload, ...]:
    """One payload for each site that has labels: the steps of one hypothesis of a beam search.

    `rows[t]` is the row of the batch of step t that the hypothesis descends from. Where the
    hypotheses of a sentence share one memory, so that a call has them as its queries, `beams` says
    how many there are at most.
    """
    found = []
    for site, texts in sites_with_labels(tape, labels):
        check_labels("queries", texts[0], len(rows))
        weights = ancestry([call.weights for call in tape[site]], rows, beams=beams)  # [N,T,K]
        found.append(
            _with_labels(tape[site][-1], weights, range(len(rows)), texts, None, rows=rows)
        )
    return tuple(found)


def ancestry(
    steps: Sequence[Float[Tensor, "..."]], rows: Sequence[int], *, beams: int = 1
) -> Float[Tensor, "N T K"]:
    """The weights of one hypothesis, of the weights of all at each step.

    Those of step t are [rows,N,1,K]; or, where up to `beams` hypotheses of a sentence share one
    memory, [sentences,N,Q,K] with row = sentence * Q + beam. Keys that a step had not seen yet
    weigh nothing in it.

    >>> first, second = torch.eye(2).view(2, 1, 1, 2), torch.eye(2).view(1, 1, 2, 2)
    >>> ancestry([first, second], [1, 0], beams=2).tolist()
    [[[0.0, 1.0], [1.0, 0.0]]]
    """
    positive("beams", beams)
    if not 0 < len(rows) <= len(steps):
        raise UserError(
            f"an ancestry of {len(rows)} rows needs a call for each, and {len(steps)} were recorded"
        )
    found = []
    for step, (weights, row) in enumerate(zip(steps, rows, strict=False)):  # others went on
        if weights.ndim != 4 or not 0 < weights.shape[2] <= beams:
            raise UserError(
                f"step {step}: weights of {list(weights.shape)}, but [rows, heads, 1, keys] or "
                f"[sentences, heads, at most beams={beams}, keys] is needed"
            )
        sharing = weights.shape[2]
        if not 0 <= row < len(weights) * sharing:
            raise UserError(
                f"step {step}: row {row} is out of range: there are {len(weights) * sharing}"
            )
        found.append(weights[row // sharing, :, row % sharing])  # [N,K]
    keys = max(weights.shape[1] for weights in found)
    wide = [torch.nn.functional.pad(each, (0, keys - each.shape[1])) for each in found]
    return torch.stack(wide, dim=1)  # [N,T,K]


def sites_with_labels(tape: Tape, labels: Labels) -> Iterator[tuple[str, LabelPair]]:
    """The sites that have labels, with them; a glob that matches none is an error."""
    for glob in labels:
        if not any(fnmatchcase(site, glob) for site in tape.sites):
            raise unknown("site", glob, tape.sites)
    for site in tape.sites:
        matching = [texts for glob, texts in labels.items() if fnmatchcase(site, glob)]
        if matching:
            keys = keys_of(tape[site])
            if len(matching[-1][1]) > keys:
                raise _too_many(site, "keys", keys, matching[-1][1])
            yield site, matching[-1]


def _check_last(tape: Tape, site: str, places: Sequence[int], queries: Sequence[str]) -> None:
    """Each query that has a label must have been recorded, unless only some rows were requested."""
    if tape.rows is None and len(queries) > max(places) + 1:
        raise _too_many(site, "queries", max(places) + 1, queries)


def _too_many(site: str, name: str, count: int, labels: Sequence[str]) -> UserError:
    """The error for labels of more than there is: they belong to something else."""
    return UserError(f"site {site!r} has {count} {name}, but {len(labels)} labels are given")


def _stepped(calls: Sequence[Call]) -> Iterator[tuple[Call, tuple[int, ...], int | None]]:
    """Each call, the places of its queries, and its number if there are several.

    Attention that does not ask where its queries stand, as to a source, calls each step the first;
    a call of one query that comes after others is therefore counted on.
    """
    after = 0
    for step, call in enumerate(calls):
        # Where a sentinel is the first key, queries are counted from the key after it.
        rows = tuple(row - (call.axes[1] == "sentinel") for row in call.rows)
        counted_on = len(rows) == 1 and rows[0] < after
        places = (after,) if counted_on else rows
        after = max(places) + 1
        yield call, places, step if len(calls) > 1 else None


def places_of(calls: Sequence[Call]) -> tuple[int, ...]:
    """The places of all queries of a site, call by call."""
    return tuple(place for _, places, _ in _stepped(calls) for place in places)


def are_steps(calls: Sequence[Call]) -> bool:
    """Are the calls of a site steps of one decoding, each after the one before?"""
    return all(earlier < later for earlier, later in pairwise(places_of(calls)))


def _in_order(calls: Sequence[Call]) -> tuple[int, ...]:
    """The places of all queries of a site, if its calls are steps of one decoding."""
    if not are_steps(calls):
        raise UserError(
            f"the calls of site {calls[0].site!r} start over, so they are not the steps of one "
            "decoding: take each for itself, payloads(tape, ...), or record one at a time"
        )
    return places_of(calls)


def _taken(weights: Float[Tensor, "B N Q K"], row: int, site: str) -> Float[Tensor, "N Q K"]:
    """One row of the batch."""
    if not 0 <= row < len(weights):
        raise UserError(
            f"row {row} is out of range: site {site!r} has a batch of {len(weights)} "
            f"(rows 0 to {len(weights) - 1})"
        )
    return weights[row]


def _with_labels(
    call: Call,
    weights: Float[Tensor, "N Q K"],
    places: Sequence[int],
    labels: LabelPair,
    step: int | None,
    *,
    rows: Sequence[int] = (),
) -> Payload:
    """Weights with the labels of their queries and keys, without the padding."""
    queries, keys = as_axis(labels[0]), as_axis(labels[1])
    kept = [index for index, place in enumerate(places) if place < len(queries)]
    if not kept:
        raise UserError(
            f"site {call.site!r}: its queries stand at {min(places)} to {max(places)}, but there "
            f"are labels for {len(queries)} of them only"
        )
    astray = float(weights[:, kept, len(keys) :].abs().sum())
    if astray > 0:
        raise UserError(
            f"site {call.site!r} attends to {weights.shape[2]} keys, and those beyond the "
            f"{len(keys)} that have labels weigh {astray:.3g}: they are no padding; give a label "
            "for each"
        )
    return Payload(
        weights=plain_array(weights[:, kept, : len(keys)]),
        queries=queries.take([places[index] for index in kept]),
        # While a decoder writes, the keys of early steps are fewer than the whole text has.
        keys=keys if len(keys) <= weights.shape[2] else keys.take(range(weights.shape[2])),
        site=call.site,
        kind=call.kind,
        axes=call.axes,
        heads=call.heads,
        step=step,
        rows=tuple(rows),
    )
