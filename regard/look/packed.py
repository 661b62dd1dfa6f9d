"""Payloads made small for a browser: what the page, notebooks and the server send.

Each head is a stream of its own (deflate, base64), so that a browser unpacks only what it shows:
first the largest weight of each row, 32 bits each, then every weight as a part of it. Weights are
whole numbers of 16 bits where there is room, else of 8 or fewer: each head says of how many levels,
so that nobody takes a rounded number for an exact one. Zeros above the last diagonal that weighs
anything, half of a causal table, are not stored.

>>> made = packed([Payload.of([[0.75, 0.25]], ["a"], ["un", "chat"])])
>>> made["labels"], made["sites"][0]["levels"]
([['a'], ['un', 'chat']], [65535])
"""

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from regard.core.errors import UserError
from regard.look.measure import MEASURES
from regard.look.payload import Payload

FORMAT = 1
"""Of what `packed` gives; the page refuses one that it does not know."""
BUDGET = 4_200_000
"""Bytes of weights before base64: with it, a page stays below six megabytes."""
LEVELS = (65_535, 255, 127, 63, 31, 15, 7, 3)
"""Into how many parts the largest weight of a row is divided: as many as there is room for."""
MOST_POSITIONS = 8192
"""Queries or keys: what a canvas holds on every machine."""
LONGEST_LABEL = 500
"""Letters of a label that are kept: a token may be a whole book."""


@dataclass(frozen=True)
class Packed:
    """One head as the browser gets it."""

    levels: int
    stream: bytes


def packed(
    payloads: Sequence[Payload], *, title: str = "", budget: int = BUDGET
) -> dict[str, object]:
    """All payloads as one object of plain values, weights within `budget` bytes as far as may be.

    `as_json` writes it. Labels that several payloads share are there once.
    """
    if not payloads:
        raise UserError("there is nothing to show: no payload was given")
    for payload in payloads:
        longest = max(payload.weights.shape[1:])
        if longest > MOST_POSITIONS:
            raise UserError(
                f"site {payload.site!r} has {longest:,} positions, and a page shows at most "
                f"{MOST_POSITIONS:,}: look at a shorter text, or at some of the rows"
            )
    labels: dict[tuple[str, ...], int] = {}
    heads = dealt([head for payload in payloads for head in payload.weights], budget)
    sites, done = [], 0
    for payload in payloads:
        count = len(payload.weights)
        sites.append(site_of(payload, heads[done : done + count], labels))
        done += count
    return {
        "format": FORMAT,
        "title": title[:LONGEST_LABEL],
        "labels": [[label[:LONGEST_LABEL] for label in each] for each in labels],
        "sites": sites,
    }


def as_json(made: dict[str, object]) -> str:
    """What `packed` gave, in ASCII that means the same in a script element and on the wire.

    Halves of surrogate pairs survive as escapes, and no text can end the element it stands in.
    """
    text = json.dumps(made, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def site_of(
    payload: Payload, heads: Sequence[Packed], labels: dict[tuple[str, ...], int]
) -> dict[str, object]:
    """One payload: what it is called, how its heads look, and their weights."""
    queries = labels.setdefault(payload.queries, len(labels))
    keys = labels.setdefault(payload.keys, len(labels))
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
        "reach": reach(payload.weights),
        "levels": [head.levels for head in heads],
        "weights": [base64.b64encode(head.stream).decode("ascii") for head in heads],
    }


def reach(weights: Float[np.ndarray, "*H Q K"]) -> int:
    """The last diagonal that weighs anything, 0 being that of the first query and key.

    >>> reach(np.tril(np.ones((3, 3)))), reach(np.ones((2, 5)))
    (0, 4)
    """
    queries, keys = weights.shape[-2:]
    table = weights.reshape(np.prod(weights.shape[:-2], dtype=int), queries, keys).any(axis=0)
    places = np.argwhere(table)
    return int((places[:, 1] - places[:, 0]).max()) if len(places) else -queries


def dealt(heads: Sequence[Float[np.ndarray, "Q K"]], budget: int) -> list[Packed]:
    """Each head packed as finely as its share of the bytes allows.

    The cheapest come first: what they leave over is for the others.
    """
    cost = [int(np.count_nonzero(whole_numbers(head, 255)[1])) for head in heads]
    found: dict[int, Packed] = {}
    left = budget
    for order, place in enumerate(sorted(range(len(heads)), key=cost.__getitem__)):
        found[place] = fitted(heads[place], left // (len(heads) - order))
        left -= len(found[place].stream)
    return [found[place] for place in range(len(heads))]


def fitted(head: Float[np.ndarray, "Q K"], share: int) -> Packed:
    """The head with as many levels as fit into a share of bytes; if none do, with the fewest."""
    last = reach(head)
    for levels in LEVELS:
        peaks, numbers = whole_numbers(head, levels)
        kept = numbers[kept_places(numbers.shape, last)]
        if levels != LEVELS[-1] and least_bytes(kept) > share:
            continue  # without packing what cannot fit
        stream = deflated(peaks.tobytes() + planes(kept))
        if len(stream) <= share:
            break
    return Packed(levels, stream)


def whole_numbers(
    head: Float[np.ndarray, "Q K"], levels: int
) -> tuple[Float[np.ndarray, "Q"], np.ndarray]:
    """The largest weight of each row, and every weight as so many `levels` of it."""
    peaks = head.max(axis=1).astype("<f4")
    safe = np.where(peaks > 0, peaks, 1.0).astype(np.float64)
    numbers = np.rint(head / safe[:, None] * levels)
    return peaks, numbers.astype("<u2" if levels > 255 else "u1")


def kept_places(shape: tuple[int, ...], last: int) -> np.ndarray:
    """Which weights are stored, row by row: those up to the last diagonal."""
    return np.tri(shape[0], shape[1], last, dtype=bool)


def planes(numbers: np.ndarray) -> bytes:
    """Low bytes after high ones: each packs better among its like."""
    if numbers.dtype.itemsize == 1:
        return numbers.tobytes()
    return (numbers >> 8).astype("u1").tobytes() + (numbers & 255).astype("u1").tobytes()


def least_bytes(numbers: np.ndarray) -> float:
    """What the numbers would come to if each were coded by how often it occurs, less a tenth.

    Deflate may do better by repeats, hence the tenth.
    """
    counts = np.bincount(numbers)
    often = counts[counts > 0] / max(len(numbers), 1)
    return 0.9 * len(numbers) * float(-(often * np.log2(often)).sum()) / 8


def deflated(data: bytes) -> bytes:
    """A raw deflate stream, as the browser's DecompressionStream reads it."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()
