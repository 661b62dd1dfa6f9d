"""Masks are rules: they combine as logic does, and a table of them says what the rule says."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import (
    Attend,
    Mask,
    ScaledDot,
    Smoothed,
    Softmax,
    blocks,
    blocks_2d,
    causal,
    padding,
    prefix,
    segment,
    table,
    window,
)

B, T = 2, 12
LENGTHS = torch.tensor([5, T])
IDS = torch.tensor([[0] * 4 + [1] * 8, [0] * 6 + [1] * 3 + [2] * 3])
TABLE = torch.rand(B, 1, T, T, generator=torch.Generator().manual_seed(1)) < 0.5
REAL = torch.rand(B, T, generator=torch.Generator().manual_seed(2)) < 0.5

RULES: dict[str, tuple[Mask, Callable[[int, int, int], bool]]] = {
    "causal": (causal(), lambda b, q, k: k <= q),
    "lengths": (padding(LENGTHS), lambda b, q, k: k < LENGTHS[b]),
    "real": (padding(REAL), lambda b, q, k: bool(REAL[b, k])),
    "window": (window(left=2, right=1), lambda b, q, k: q - 2 <= k <= q + 1),
    "window left": (window(left=3), lambda b, q, k: k >= q - 3),
    "window right": (window(right=0), lambda b, q, k: k <= q),
    "blocks": (blocks(4), lambda b, q, k: q // 4 == k // 4),
    "blocks before": (blocks(4, before=1), lambda b, q, k: q // 4 - k // 4 in (0, 1)),
    # an image of 3 rows and 4 columns in blocks of 2 x 2, one row above, one column on each side
    "blocks 2-D": (
        blocks_2d(4, (2, 2), above=1, left=1, right=1),
        lambda b, q, k: (
            (q // 4) // 2 * 2 - 1 <= k // 4 < (q // 4) // 2 * 2 + 2
            and (q % 4) // 2 * 2 - 1 <= k % 4 < (q % 4) // 2 * 2 + 3
        ),
    ),
    "segment": (segment(IDS), lambda b, q, k: bool(IDS[b, q] == IDS[b, k])),
    "prefix": (prefix(LENGTHS), lambda b, q, k: k <= q or k < LENGTHS[b]),
    "table": (table(TABLE), lambda b, q, k: bool(TABLE[b, 0, q, k])),
}
MASKS = st.sampled_from([mask for mask, _ in RULES.values()])


def written(mask: Mask) -> torch.Tensor:
    return mask.table(T, T).expand(B, 1, T, T)


@pytest.mark.parametrize("name", RULES)
def test_the_table_says_what_the_rule_says(name: str) -> None:
    mask, rule = RULES[name]
    loop = torch.tensor([[[[rule(b, q, k) for k in range(T)] for q in range(T)]] for b in range(B)])
    assert torch.equal(written(mask), loop)


@pytest.mark.parametrize("name", RULES)
def test_an_offset_gives_the_rows_of_the_whole(name: str) -> None:
    mask, _ = RULES[name]
    for first in range(T):
        rows = mask.table(T - first, T, first=first).expand(B, 1, T - first, T)
        assert torch.equal(rows, written(mask)[:, :, first:])
        chosen = mask.rows(torch.tensor([first]), T).expand(B, 1, 1, T)
        assert torch.equal(chosen, written(mask)[:, :, first : first + 1])


@settings(max_examples=60, deadline=None)
@given(MASKS, MASKS, MASKS)
def test_masks_obey_the_laws_of_logic(a: Mask, b: Mask, c: Mask) -> None:
    assert torch.equal(written(~(a & b)), written(~a | ~b))
    assert torch.equal(written(~(a | b)), written(~a & ~b))
    assert torch.equal(written(a & (b | c)), written((a & b) | (a & c)))
    assert torch.equal(written(a | (b & c)), written((a | b) & (a | c)))
    assert torch.equal(written(~~a), written(a))
    assert torch.equal(written(a & ~a), torch.zeros(B, 1, T, T, dtype=torch.bool))


@settings(max_examples=60, deadline=None)
@given(MASKS, MASKS, st.integers(0, T - 1))
def test_lowering_loses_nothing(a: Mask, b: Mask, first: int) -> None:
    for mask in (a, a & b, a | b, ~a):
        lowered = mask.lower(T - first, T, first=first)
        assert lowered.table is None or not lowered.is_causal
        if lowered.is_causal:
            said = torch.ones(T - first, T, dtype=torch.bool).tril()
        else:
            said = torch.ones(1, dtype=torch.bool) if lowered.table is None else lowered.table
        rows = written(mask)[:, :, first:]
        assert torch.equal(said.expand_as(rows), rows)


def test_causal_needs_no_table_for_a_whole_sequence_or_a_single_step() -> None:
    assert causal().lower(T, T).table is None
    assert causal().lower(1, T, first=T - 1).table is None
    assert not causal().lower(1, T, first=T - 1).is_causal
    assert causal().lower(2, T, first=T - 2).table is not None
    assert (~~causal()).lower(T, T).table is not None


def test_padding_makes_one_row_for_all_queries_and_makes_it_once() -> None:
    mask = padding(LENGTHS)
    assert mask.table(T, T).shape == (B, 1, 1, T)
    assert mask.table(1, T, first=3) is mask.table(1, T, first=4)


@pytest.mark.parametrize("name", RULES)
def test_a_mask_of_inference_serves_a_training_pass_afterwards(name: str) -> None:
    mask = replace(RULES[name][0], memo={})
    query, value = torch.randn(B, 1, T, 4, requires_grad=True), torch.randn(B, 1, T, 4)
    for weigh in (Smoothed(), Softmax()):  # written out, and by a fused kernel
        mask.memo.clear()
        attend = Attend(ScaledDot(4), weigh)
        with torch.inference_mode():
            attend(query, attend.remember(value, value), mask)
        attend(query, attend.remember(value, value), mask).sum().backward()
    assert query.grad is not None
    with torch.inference_mode():
        assert mask.table(T, T) is mask.table(T, T), "made once in each mode"


def test_masks_say_what_they_are() -> None:
    assert repr(causal() & ~(window(2, 0) | blocks(4))) == (
        "causal() & ~(window(left=2, right=0) | blocks(4, before=0))"
    )
    assert repr(padding(torch.arange(9))) == "padding([0, 1, 2, 3, 4, 5, ... 9 in all])"
