"""Payloads made small for a browser: what the page, notebooks and the server send.

Each head is a stream of its own (deflate, base64), so that a browser unpacks only what it shows:
first the largest weight of each row, 32 bits each, then every weight as a part of it. Weights are
whole numbers of 16 bits where there is room, else of 8 or 4: each head has its number of levels, so
that nobody takes a rounded number for an exact one. Zeros above the last diagonal that weighs
anything, half of a causal table, are not stored.

>>> made = pack([Payload.of([[0.75, 0.25]], ["a"], ["un", "chat"])])
>>> [axis["labels"] for axis in made["axes"]], made["sites"][0]["levels"]
([['a'], ['un', 'chat']], [65535])
"""

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from regard.core.axes import Axis
from regard.core.errors import UserError
from regard.look.measure import MEASURES
from regard.look.payload import Payload

_FORMAT = 2
"""Of what `pack` gives; the page refuses one that it does not know."""
BUDGET = 4_200_000
"""Bytes of weights before base64: with it, a page stays below six megabytes."""
LEVELS = (65_535, 255, 127, 63, 31, 15, 11, 7, 5, 3, 2)
"""Into how many parts the largest weight of a row is divided: as many as there is room for."""
FLAT = 0
"""The levels of a head that has no room at all: of each row there is only its mean."""
_SAMPLE = 20_000
"""Weights of a head from which is guessed how many levels fit."""
MOST_POSITIONS = 8192
"""Queries or keys: what a canvas holds on every machine."""
_LONGEST_LABEL = 500
"""Letters of a label that are kept: a token may be a whole book."""


@dataclass(frozen=True)
class PackedHead:
    """One head as the browser gets it."""

    levels: int
    stream: bytes


def pack(
    payloads: Sequence[Payload], *, title: str = "", budget: int = BUDGET
) -> dict[str, object]:
    """All payloads as one object of plain values, weights within `budget` bytes as far as may be.

    `as_json` writes it. An axis that several payloads share is there once.
    """
    if not payloads:
        raise UserError("there is nothing to show: no payload was given")
    for payload in payloads:
        longest = max(payload.weights.shape[1:])
        if longest > MOST_POSITIONS:
            raise UserError(
                f"site {payload.site!r} has {longest:,} positions, and a page shows at most "
                f"{MOST_POSITIONS:,}: take a shorter text, or some of the rows"
            )
    axes: dict[Axis, int] = {}
    lasts = [last_diagonal(payload.weights) for payload in payloads]
    pairs = zip(payloads, lasts, strict=True)
    heads = _dealt([(head, last) for payload, last in pairs for head in payload.weights], budget)
    sites, done = [], 0
    for payload, last in zip(payloads, lasts, strict=True):
        count = len(payload.weights)
        sites.append(_site_of(payload, last, heads[done : done + count], axes))
        done += count
    return {
        "format": _FORMAT,
        "title": title[:_LONGEST_LABEL],
        "axes": [_short_labels(axis) for axis in axes],
        "sites": sites,
    }


def as_json(made: dict[str, object]) -> str:
    """What `pack` gave, in ASCII that means the same in a script element and on the wire.

    Halves of surrogate pairs survive as escapes, and no text can end the element it stands in.
    """
    text = json.dumps(made, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _short_labels(axis: Axis) -> dict[str, object]:
    """An axis as JSON has it, with labels that a page has room for."""
    return {**axis.to_json(), "labels": [label[:_LONGEST_LABEL] for label in axis]}


def _site_of(
    payload: Payload, last: int, heads: Sequence[PackedHead], axes: dict[Axis, int]
) -> dict[str, object]:
    """One payload: its names, its axes by number, measures of its heads, and their weights."""
    queries = axes.setdefault(payload.queries, len(axes))
    keys = axes.setdefault(payload.keys, len(axes))
    return {
        "site": payload.site,
        "kind": payload.kind,
        "axes": list(payload.axes),
        "queries": queries,
        "keys": keys,
        "heads": None if payload.heads is None else list(payload.heads),
        "step": payload.step,
        "rows": list(payload.rows),
        "measures": {
            name: [round(measure(head), 6) for head in payload.weights]
            for name, measure in MEASURES.items()
        },
        "reach": last,
        "levels": [head.levels for head in heads],
        "weights": [base64.b64encode(head.stream).decode("ascii") for head in heads],
    }


def last_diagonal(weights: Float[np.ndarray, "*H Q K"]) -> int:
    """The last diagonal that weighs anything, 0 being that of the first query and key.

    >>> last_diagonal(np.tril(np.ones((3, 3)))), last_diagonal(np.ones((2, 5)))
    (0, 4)
    """
    queries, keys = weights.shape[-2:]
    table = weights.reshape(np.prod(weights.shape[:-2], dtype=int), queries, keys).any(axis=0)
    places = np.argwhere(table)
    return int((places[:, 1] - places[:, 0]).max()) if len(places) else -queries


def _dealt(heads: Sequence[tuple[np.ndarray, int]], budget: int) -> list[PackedHead]:
    """Each head packed as finely as its share of the bytes allows, up to its site's last diagonal.

    The cheapest come first: what they leave over is for the others.
    """
    cost = [int(np.count_nonzero(_parts_of(head)[1] > 1 / 255)) for head, _ in heads]
    found: dict[int, PackedHead] = {}
    left = budget
    for order, place in enumerate(sorted(range(len(heads)), key=cost.__getitem__)):
        found[place] = _fitted(*heads[place], left // (len(heads) - order))
        left -= len(found[place].stream)
    return [found[place] for place in range(len(heads))]


def _parts_of(head: Float[np.ndarray, "Q K"]) -> tuple[Float[np.ndarray, "Q"], np.ndarray]:
    """The largest weight of each row, and every weight as a part of it."""
    peaks = head.max(axis=1).astype("<f4")
    return peaks, head / np.where(peaks > 0, peaks, 1.0)[:, None]


def _fitted(head: Float[np.ndarray, "Q K"], last: int, share: int) -> PackedHead:
    """The head with as many levels as fit into a share of bytes; if none do, it is flat."""
    peaks, parts = _parts_of(head)
    queries, keys = parts.shape
    stored = np.tri(queries, keys, last, dtype=bool)
    kept = parts[stored]  # row by row
    some = kept[:: max(1, len(kept) // _SAMPLE)]
    for levels in LEVELS:
        likely = _bytes_per_number(_whole_numbers(some, levels)) * len(kept)
        if likely > 1.1 * share:
            continue  # without packing what will not fit
        stream = _deflated(peaks.tobytes() + _in_bytes(_whole_numbers(kept, levels), levels))
        if len(stream) <= share:
            return PackedHead(levels, stream)
    means = head.sum(axis=1) / np.maximum(stored.sum(axis=1), 1)
    return PackedHead(FLAT, _deflated(means.astype("<f4").tobytes()))


def _whole_numbers(parts: np.ndarray, levels: int) -> np.ndarray:
    """Parts of one as so many levels."""
    numbers: np.ndarray = np.rint(parts * levels).astype("<u2" if levels > 255 else "u1")
    return numbers


def _in_bytes(numbers: np.ndarray, levels: int) -> bytes:
    """Numbers below 16 two to a byte, the first in its low half; large ones in two halves.

    All high bytes come before all low ones: each packs better among its like.
    """
    if levels > 255:
        return (numbers >> 8).astype("u1").tobytes() + (numbers & 255).astype("u1").tobytes()
    if levels > 15:
        return numbers.tobytes()
    pairs = np.append(numbers, np.zeros(len(numbers) % 2, "u1")).reshape(-1, 2)
    halves: np.ndarray = (pairs[:, 0] | pairs[:, 1] << 4).astype("u1")
    return halves.tobytes()


def _bytes_per_number(numbers: np.ndarray) -> float:
    """What a number comes to if each is coded by how often it occurs."""
    counts = np.bincount(numbers)
    often = counts[counts > 0] / max(len(numbers), 1)
    return float(-(often * np.log2(often)).sum()) / 8


def _deflated(data: bytes) -> bytes:
    """A raw deflate stream, as the browser's DecompressionStream reads it.

    Of repeats, only runs are searched: in weights there are few others, and the search for them
    takes ten times as long and finds worse codes.
    """
    packer = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_RLE)
    return packer.compress(data) + packer.flush()
