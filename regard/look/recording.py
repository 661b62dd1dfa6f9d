"""From a tape to payloads: what was recorded, with the texts that belong to it.

    with record(model, "decoder.*.cross") as tape:
        model(batch)
    payloads(tape, {"decoder.*": (target, source)}, row=3)         # one for each call

Labels stand under globs, as edits do: for each site the texts of its queries and of its keys. A
batch is padded, so there may be fewer labels than positions. Queries beyond them are left out; keys
beyond them must weigh nothing, or it is an error.

A decoder that goes step by step makes one call per step. `joined` puts the steps of a batch row one
under another. In a beam search the rows change places from step to step; `followed` goes with one
hypothesis.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.tape import Call, Tape
from regard.core.errors import UserError, positive, unknown
from regard.look.payload import Payload, check_labels, plain_array

Labels = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""The texts of queries and keys, by a glob of sites; where several match, the last one counts."""


def payloads(tape: Tape, labels: Labels, *, row: int = 0) -> tuple[Payload, ...]:
    """One payload for each call of the sites that have labels, of one row of the batch."""
    found = []
    for site, texts in labelled_sites(tape, labels):
        calls = list(_stepped(tape[site]))
        _check_last(tape, site, [place for _, places, _ in calls for place in places], texts[0])
        for call, places, step in calls:
            found.append(labelled(call, _taken(call.weights, row, site), places, texts, step))
    return tuple(found)


def joined(tape: Tape, labels: Labels, *, row: int = 0) -> tuple[Payload, ...]:
    """One payload for each site that has labels: its steps one under another, of one batch row."""
    found = []
    for site, texts in labelled_sites(tape, labels):
        places = _in_order(tape[site])
        _check_last(tape, site, places, texts[0])
        weights = _taken(tape.join(site), row, site)
        found.append(labelled(tape[site][-1], weights, places, texts, None))
    return tuple(found)


def followed(
    tape: Tape, labels: Labels, *, rows: Sequence[int], beams: int = 1
) -> tuple[Payload, ...]:
    """One payload for each site that has labels: the steps of one hypothesis of a beam search.

    `rows[t]` is the row of the batch of step t that the hypothesis descends from. Where the
    hypotheses of a sentence share one memory, so that a call has them as its queries, `beams` says
    how many there are at most.
    """
    found = []
    for site, texts in labelled_sites(tape, labels):
        check_labels("queries", texts[0], len(rows))
        weights = ancestry([call.weights for call in tape[site]], rows, beams=beams)  # [N,T,K]
        found.append(labelled(tape[site][-1], weights, range(len(rows)), texts, None, rows=rows))
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
                f"step {step}: row {row} was asked for, but there are {len(weights) * sharing}"
            )
        found.append(weights[row // sharing, :, row % sharing])  # [N,K]
    keys = max(weights.shape[1] for weights in found)
    wide = [torch.nn.functional.pad(each, (0, keys - each.shape[1])) for each in found]
    return torch.stack(wide, dim=1)  # [N,T,K]


def labelled_sites(
    tape: Tape, labels: Labels
) -> Iterator[tuple[str, tuple[Sequence[str], Sequence[str]]]]:
    """The sites that have labels, with them; a glob that matches none is an error."""
    for glob in labels:
        if not any(fnmatchcase(site, glob) for site in tape.sites):
            raise unknown("site", glob, tape.sites)
    for site in tape.sites:
        matching = [texts for glob, texts in labels.items() if fnmatchcase(site, glob)]
        if matching:
            keys = max(call.weights.shape[3] for call in tape[site])
            if len(matching[-1][1]) > keys:
                raise _too_many(site, "keys", keys, matching[-1][1])
            yield site, matching[-1]


def _check_last(tape: Tape, site: str, places: Sequence[int], queries: Sequence[str]) -> None:
    """Each query that has a label must have been recorded, unless only some rows were asked for."""
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
        counted_on = len(call.rows) == 1 and call.rows[0] < after
        places = (after,) if counted_on else call.rows
        after = max(places) + 1
        yield call, places, step if len(calls) > 1 else None


def places_of(calls: Sequence[Call]) -> tuple[int, ...]:
    """The places of all queries of a site, call by call."""
    return tuple(place for _, places, _ in _stepped(calls) for place in places)


def going_on(calls: Sequence[Call]) -> bool:
    """Are the calls of a site steps of one decoding, each after the one before?"""
    return all(earlier < later for earlier, later in pairwise(places_of(calls)))


def _in_order(calls: Sequence[Call]) -> tuple[int, ...]:
    """The places of all queries of a site, if its calls are steps of one decoding."""
    if not going_on(calls):
        raise UserError(
            f"the calls of site {calls[0].site!r} start over, so they are not the steps of one "
            "decoding: take each for itself, payloads(tape, ...), or record one at a time"
        )
    return places_of(calls)


def _taken(weights: Float[Tensor, "B N Q K"], row: int, site: str) -> Float[Tensor, "N Q K"]:
    """One row of the batch."""
    if not 0 <= row < len(weights):
        raise UserError(
            f"row {row} was asked for, but site {site!r} has a batch of {len(weights)} "
            f"(rows 0 to {len(weights) - 1})"
        )
    return weights[row]


def labelled(
    call: Call,
    weights: Float[Tensor, "N Q K"],
    places: Sequence[int],
    labels: tuple[Sequence[str], Sequence[str]],
    step: int | None,
    *,
    rows: Sequence[int] = (),
) -> Payload:
    """Weights with the texts of their queries and keys, without the padding."""
    queries, keys = labels
    kept = [index for index, place in enumerate(places) if place < len(queries)]
    if not kept:
        raise UserError(
            f"site {call.site!r}: its queries stand at {min(places)} to {max(places)}, but there "
            f"are labels for {len(queries)} of them only"
        )
    astray = float(weights[:, kept, len(keys) :].abs().sum())
    if astray > 0:
        raise UserError(
            f"site {call.site!r} looks at {weights.shape[2]} keys, and those beyond the "
            f"{len(keys)} that have labels weigh {astray:.3g}: they are no padding; give a label "
            "for each"
        )
    return Payload(
        weights=plain_array(weights[:, kept, : len(keys)]),
        queries=tuple(queries[places[index]] for index in kept),
        # While a decoder writes, the keys of early steps are fewer than the whole text has.
        keys=tuple(keys[: weights.shape[2]]),
        site=call.site,
        kind=call.kind,
        heads=call.heads,
        step=step,
        rows=tuple(rows),
    )
