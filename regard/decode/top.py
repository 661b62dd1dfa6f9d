"""Top: the best of many numbers, faster than torch finds them on a processor.

`topk` and `argmax` look at one number at a time; a maximum is taken of eight at once. So a long row
is first cut into parts, whose maxima tell which few parts can hold the best ones. What is found is
the same.

>>> logits = torch.randn(2, 5000)
>>> best(logits)[1].equal(logits.argmax(-1))
True
"""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

_LONG = 2048
"""Shorter rows are not worth the parts."""


@lru_cache
def part(vocabulary: int) -> int:
    """How long the parts are to be: near √(V/2), where as many parts as numbers are looked at.

    Of the lengths nearby, the one that leaves the fewest tokens over.

    >>> part(10_000), 10_000 % part(10_000)
    (50, 0)
    """
    middle = int((vocabulary / 2) ** 0.5)
    return min(range(middle * 2 // 3, middle * 3 // 2), key=lambda size: vocabulary % size)


def best(logits: Float[Tensor, "B V"]) -> tuple[Float[Tensor, "B"], Int[Tensor, "B"]]:
    """The largest of each row, and its place; of those that tie, the first. Nan if one is nan."""
    rows, vocabulary = logits.shape
    if vocabulary < _LONG or logits.device.type != "cpu":
        found = logits.max(-1)
        return found.values, found.indices
    size = part(vocabulary)
    whole = vocabulary // size * size
    parts = logits[:, :whole].unflatten(1, (whole // size, size))  # [B,C,P]
    values, which = parts.amax(-1).max(-1)  # [B]
    tokens = which * size + parts[torch.arange(rows), which].argmax(-1)  # [B]
    if whole < vocabulary:
        last = logits[:, whole:].max(-1)
        tokens = torch.where(last.values > values, last.indices + whole, tokens)
        values = torch.maximum(values, last.values)
    return values, tokens


Best = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]
"""Values `[N,C]`, the likeliest first, and for each its beam and its token."""


def top(logs: Float[Tensor, "N W V"], scores: Float[Tensor, "N W"], count: int) -> Best:
    """For each sentence the best of all beams and tokens; nan comes before everything.

    >>> logs = torch.tensor([[[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]]).log()
    >>> values, beams, tokens = top(logs, torch.tensor([[-1.0, -1.5]]), 2)
    >>> beams.tolist(), tokens.tolist()
    ([[1, 0]], [[2, 0]])
    """
    _, width, vocabulary = logs.shape
    count = min(count, width * vocabulary)
    if vocabulary < _LONG or logs.device.type != "cpu":
        values, places = (logs + scores[:, :, None]).flatten(1).topk(count)  # [N,C]
        beams, tokens = np.divmod(places.cpu().numpy(), vocabulary)
        return values.cpu().numpy(), beams, tokens
    return _top_of_parts(logs, scores, count)


def _top_of_parts(logs: Tensor, scores: Tensor, count: int) -> Best:
    """The best C are in the C parts with the largest maxima, or tie with others that are."""
    sentences, _, vocabulary = logs.shape
    size = part(vocabulary)
    each = vocabulary // size  # parts in a row
    whole = each * size
    parts = logs[:, :, :whole].unflatten(2, (each, size))  # [N,W,C,P]
    peaks = parts.amax(-1) + scores[:, :, None]  # [N,W,C]
    which = peaks.flatten(1).topk(count, sorted=False).indices  # [N,K]
    beam, inside = which // each, which % each  # [N,K]
    sentence = torch.arange(sentences)[:, None]
    pool = (parts[sentence, beam, inside] + scores[sentence, beam][:, :, None]).flatten(1)
    if whole < vocabulary:
        left = (logs[:, :, whole:] + scores[:, :, None]).flatten(1)
        pool = torch.cat((pool, left), 1)
    values, places = pool.topk(count)
    return values.numpy(), *_found(places.numpy(), which.numpy(), each, size, vocabulary)


def _found(
    places: NDArray[np.int64], which: NDArray[np.int64], each: int, size: int, vocabulary: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Beams and tokens of places among the numbers of the parts and of those left over."""
    parts = which.shape[1]
    at, offset = np.divmod(places, size)
    chosen = which[np.arange(len(which))[:, None], np.minimum(at, parts - 1)]
    beams, inside = np.divmod(chosen, each)
    tokens = inside * size + offset
    rest = vocabulary - each * size
    if rest:
        over = places - parts * size
        beams = np.where(over < 0, beams, over // rest)
        tokens = np.where(over < 0, tokens, each * size + over % rest)
    return beams, tokens
