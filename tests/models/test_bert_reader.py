"""The best answer span, against all spans there are."""

import math

import pytest
import torch

from regard.outputs.spans import Spans

POSITIONS = 7


@pytest.mark.parametrize("longest", range(1, POSITIONS + 2))
def test_the_best_span_is_that_of_all_that_are_allowed(longest: int) -> None:
    first, last = torch.randn(40, POSITIONS), torch.randn(40, POSITIONS)
    allowed = torch.rand(40, POSITIONS) < 0.7
    allowed[0] = False
    places, scores = Spans(first, last).best(allowed, longest)
    for row in range(40):
        spans = {
            (begin, end): float(first[row, begin] + last[row, end])
            for begin in range(POSITIONS)
            for end in range(begin, min(begin + longest, POSITIONS))
            if allowed[row, begin] and allowed[row, end]
        }
        assert float(scores[row]) == max(spans.values(), default=-math.inf)
        if spans:
            assert tuple(places[row].tolist()) == max(spans, key=spans.__getitem__)


@pytest.mark.parametrize("longest", [1, 2, 3, 30])
def test_an_answer_of_exactly_the_longest_is_found_and_no_longer_one(longest: int) -> None:
    first, last = torch.zeros(1, 32), torch.zeros(1, 32)
    first[0, 0] = 9.0
    last[0, longest - 1], last[0, longest] = 5.0, 8.0  # one token too long, and better
    places, scores = Spans(first, last).best(torch.ones(1, 32, dtype=torch.bool), longest)
    assert places.tolist() == [[0, longest - 1]]
    assert scores.tolist() == [14.0]
