"""Top-k, argmax and logsumexp, with the same results as torch's but faster on a CPU.

`torch.topk` compares one number at a time; a maximum is vectorised. A long row is therefore split
into chunks, and only the chunks with the largest maxima are searched. The argmax is NumPy's, which
is vectorised and torch's is not.

>>> logits = torch.randn(2, 5000)
>>> max_per_row(logits)[1].tolist() == logits.argmax(-1).tolist()
True
"""

import math
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

_LONG = 2048
"""Rows shorter than this are not split."""

_LOG2_E = math.log2(math.e)


@lru_cache
def chunk_size(vocabulary: int) -> int:
    """The length of the chunks: near √(V/2), which minimises the numbers that are compared.

    It is a multiple of 32 or slightly more, because other maxima take ten times as long, and
    divides the vocabulary if possible.

    >>> chunk_size(10_000), chunk_size(32_000), chunk_size(10_007)
    (100, 128, 64)
    """
    middle = math.sqrt(vocabulary / 2)
    sizes = (size for size in range(64, vocabulary // 8) if size % 32 <= 8)
    even = [size for size in sizes if vocabulary % size == 0 and size < 3 * middle]
    return min(even, key=lambda size: abs(size - middle), default=32 * max(2, round(middle / 32)))


def max_per_row(logits: Float[Tensor, "B V"]) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """The maximum of each row and its index, the first of ties; nan if a row has a nan."""
    if logits.device.type != "cpu":
        found = logits.max(-1)
        return found.values.float().cpu().numpy(), found.indices.cpu().numpy()
    known = logits.float() if logits.dtype == torch.bfloat16 else logits
    numbers = known.detach().numpy()
    tokens = numbers.argmax(1)
    return numbers[np.arange(len(tokens)), tokens], tokens


def fast_logsumexp(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B"]:
    """Log Σ exp of each row; logits minus this are log-probabilities.

    It uses powers of two, which take torch little more than half the time of powers of e, and
    writes no table of log-probabilities where only the best are needed.

    >>> logits = torch.randn(2, 5000)
    >>> torch.allclose(fast_logsumexp(logits), logits.logsumexp(1), atol=1e-5)
    True
    """
    peak = logits.amax(1, keepdim=True)  # [B,1]
    powers = torch.add(peak * -_LOG2_E, logits, alpha=_LOG2_E).exp2_()  # [B,V]
    return peak.squeeze(1) + powers.sum(1).log()


_Best = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]
"""Values `[N,C]` in descending order, and the beam and token of each."""


def top_candidates(logs: Float[Tensor, "N W V"], scores: Float[Tensor, "N W"], count: int) -> _Best:
    """The best candidates of each sentence over all beams and tokens; nan ranks first.

    `logs` may be logits if their logsumexp is subtracted from `scores`.

    >>> logs = torch.tensor([[[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]]).log()
    >>> values, beams, tokens = top_candidates(logs, torch.tensor([[-1.0, -1.5]]), 2)
    >>> beams.tolist(), tokens.tolist()
    ([[1, 0]], [[2, 0]])
    """
    sentences, width, vocabulary = logs.shape
    count = min(count, width * vocabulary)
    few = vocabulary < _LONG or count > width * (vocabulary // chunk_size(vocabulary))
    if few or logs.device.type != "cpu":  # with fewer chunks than candidates, all are needed
        joined = (logs + scores.unsqueeze(2)).view(sentences, width * vocabulary)
        values, found = joined.topk(count)  # [N,C]
        places = found.cpu().numpy()
    else:
        values, places = _top_of_parts(logs, scores, count)
    beams = places // vocabulary
    return values.cpu().numpy(), beams, places - beams * vocabulary


def _top_of_parts(logs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, NDArray[np.int64]]:
    """The best C are in the C chunks with the largest maxima, or tie with numbers in them."""
    sentences, width, vocabulary = logs.shape
    size = chunk_size(vocabulary)
    each = vocabulary // size  # parts in a row
    rest = vocabulary - each * size
    added = scores.unsqueeze(2)  # [N,W,1]
    whole = logs[:, :, : each * size] if rest else logs
    peaks = whole.unflatten(2, (each, size)).amax(-1) + added  # [N,W,E]
    which = peaks.view(sentences, width * each).topk(count).indices.numpy()  # [N,C]
    beams = which // each
    begins = which * size + beams * rest  # [N,C], counted from the first beam
    sentence = np.arange(sentences)[:, None]
    starts = torch.from_numpy((begins + sentence * (width * vocabulary)).ravel())
    cut = logs.reshape(-1).unfold(0, size, 1).index_select(0, starts)  # a row for each
    of_parts = torch.from_numpy(scores.numpy()[sentence, beams]).unsqueeze(2)  # [N,C,1]
    pool = (cut.view(sentences, count, size) + of_parts).view(sentences, count * size)
    if rest:
        left = (logs[:, :, each * size :] + added).view(sentences, width * rest)
        pool = torch.cat((pool, left), 1)
    values, found = pool.topk(count)
    places = found.numpy()
    inside = begins[sentence, np.minimum(places // size, count - 1)] + places % size
    if not rest:
        return values, inside
    over = places - count * size
    after = over // rest * vocabulary + each * size + over % rest
    return values, np.where(over < 0, inside, after)
