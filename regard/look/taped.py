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
    for site, glob in labelled_sites(tape, labels):
        for step, (call, places) in stepped(tape[site]):
            weights = taken(call.weights, row, site)
            if step is None:
                check_not_too_many(tape, site, places, weights.shape[2], labels[glob])
            found.append(labelled(call, weights, places, labels[glob], step))
    return tuple(found)


def joined(tape: Tape, labels: Labels, *, row: int = 0) -> tuple[Payload, ...]:
    """One payload for each site that has labels: its steps one under another, of one batch row."""
    found = []
    for site, glob in labelled_sites(tape, labels):
        places = in_order(tape[site])
        weights = taken(tape.join(site), row, site)
        check_not_too_many(tape, site, places, weights.shape[2], labels[glob])
        found.append(labelled(tape[site][-1], weights, places, labels[glob], None))
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
    for site, glob in labelled_sites(tape, labels):
        steps = [call.weights for call in tape[site]]
        weights = ancestry(steps, rows, beams=beams)  # [N,T,K]
        places = tuple(range(len(rows)))
        check_labels("queries", labels[glob][0], len(rows))
        check_not_too_many(tape, site, places, weights.shape[2], labels[glob])
        last = tape[site][-1]
        found.append(labelled(last, weights, places, labels[glob], None, rows=tuple(rows)))
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


def labelled_sites(tape: Tape, labels: Labels) -> Iterator[tuple[str, str]]:
    """The sites that have labels, each with its glob; a glob that matches none is an error."""
    for glob in labels:
        if not any(fnmatchcase(site, glob) for site in tape.sites):
            raise unknown("site", glob, tape.sites)
    for site in tape.sites:
        matching = [glob for glob in labels if fnmatchcase(site, glob)]
        if matching:
            yield site, matching[-1]


def stepped(calls: Sequence[Call]) -> Iterator[tuple[int | None, tuple[Call, tuple[int, ...]]]]:
    """Each call with its number, if there are several, and the places of its queries.

    Attention that does not ask where its queries stand, as to a source, calls each step the first;
    a call of one query that comes after others is therefore counted on.
    """
    after = 0
    for step, call in enumerate(calls):
        counted_on = len(call.rows) == 1 and call.rows[0] < after
        places = (after,) if counted_on else call.rows
        after = max(places, default=-1) + 1
        yield step if len(calls) > 1 else None, (call, places)


def in_order(calls: Sequence[Call]) -> tuple[int, ...]:
    """The places of all queries of a site, if its calls are steps of one decoding."""
    places = tuple(place for _, (_, places) in stepped(calls) for place in places)
    if any(later <= earlier for earlier, later in pairwise(places)):
        raise UserError(
            f"the calls of site {calls[0].site!r} start over, so they are not the steps of one "
            "decoding: take each for itself, payloads(tape, ...), or record one at a time"
        )
    return places


def taken(weights: Float[Tensor, "B N Q K"], row: int, site: str) -> Float[Tensor, "N Q K"]:
    """One row of the batch."""
    if not 0 <= row < len(weights):
        raise UserError(
            f"row {row} was asked for, but site {site!r} has a batch of {len(weights)} "
            f"(rows 0 to {len(weights) - 1})"
        )
    return weights[row]


def check_not_too_many(
    tape: Tape,
    site: str,
    places: Sequence[int],
    keys: int,
    labels: tuple[Sequence[str], Sequence[str]],
) -> None:
    """Labels of what was not recorded are labels of something else, unless rows were chosen."""
    last = max(places, default=-1) + 1
    for name, count, texts in (("queries", last, labels[0]), ("keys", keys, labels[1])):
        chosen = name == "queries" and tape.rows is not None
        if len(texts) > count and not chosen:
            raise UserError(
                f"site {site!r} has {count} {name}, but {len(texts)} labels are given for them"
            )


def labelled(
    call: Call,
    weights: Float[Tensor, "N Q K"],
    places: Sequence[int],
    labels: tuple[Sequence[str], Sequence[str]],
    step: int | None,
    *,
    rows: tuple[int, ...] = (),
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
        rows=rows,
    )
