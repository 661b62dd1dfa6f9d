"""The best of many numbers are those that torch finds, in rows of every awkward length."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decode.top_k import chunk_size, max_per_row, top_candidates

SIZES = [2, 7, 100, 2047, 2048, 2049, 2053, 2500, 4099, 10_000]
"""Short rows, and long ones with and without something left over after the last part."""


def test_the_sizes_leave_something_over_and_nothing() -> None:
    left = [size % chunk_size(size) for size in SIZES if size >= 2048]
    assert 0 in left
    assert max(left) > 0


@pytest.mark.parametrize("size", SIZES)
def test_the_best_is_the_first_of_the_largest(size: int) -> None:
    for logits in (torch.randn(40, size), torch.randint(0, 3, (40, size)).float()):
        values, tokens = max_per_row(logits)
        assert values.tolist() == logits.amax(-1).tolist()
        assert tokens.tolist() == logits.argmax(-1).tolist()


def test_half_precision_is_no_hindrance() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        logits = torch.randn(3, 50).to(dtype)
        assert max_per_row(logits)[1].tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize("size", [100, 2053, 10_000])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_shows_wherever_it_is(size: int, bad: float) -> None:
    for place in (0, size // 2, size - 1):
        logits = torch.randn(3, size)
        logits[1, place] = bad
        assert np.isfinite(max_per_row(logits)[0]).tolist() == [True, False, True]


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    size=st.sampled_from(SIZES),
    sentences=st.integers(1, 4),
    width=st.integers(1, 5),
    count=st.integers(1, 14),
    levels=st.sampled_from([0, 4]),
    seed=st.integers(0, 999),
    dead=st.booleans(),
)
def test_the_top_is_that_of_all_beams_and_tokens(
    size: int, sentences: int, width: int, count: int, levels: int, seed: int, dead: bool
) -> None:
    torch.manual_seed(seed)
    shape = (sentences, width, size)
    logs = torch.randint(levels, shape).float() if levels else torch.randn(shape)
    scores = torch.randn(sentences, width)
    if dead:
        scores[:, width // 2 :] = -math.inf
    values, beams, tokens = top_candidates(logs, scores, count)
    joined = logs + scores[:, :, None]
    expected = joined.flatten(1).topk(min(count, width * size)).values
    assert torch.from_numpy(values).equal(expected)
    places = torch.from_numpy(beams * size + tokens)
    assert joined.flatten(1).gather(1, places).equal(expected)
    assert all(len(set(row)) == len(row) for row in places.tolist()), "none comes twice"
