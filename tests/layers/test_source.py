"""A source that rows share says what one memory for each row would say."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import (
    SCORES,
    START,
    WEIGHS,
    Attend,
    Memory,
    padding,
    record,
    score_named,
    weigh_named,
)
from regard.core.errors import UserError
from regard.layers import SourceMemory
from regard.layers.source_memory import shareable

N, H, S, E = 4, 2, 6, 8
LENGTHS = torch.tensor([6, 3, 1, 5])


def attention(score: str = "scaled_dot", weigh: str = "softmax", heads: int = H) -> Attend:
    attend = Attend(score_named(score, E, heads=heads), weigh_named(weigh, E), kind="cross")
    return attend.double().eval()


def remembered(attend: Attend, heads: int = H) -> Memory:
    keys, values = torch.randn(2, N, heads, S, E, dtype=torch.double)
    return attend.remember(keys, values)


def queries(rows: int, heads: int = H) -> Tensor:
    return torch.randn(rows, heads, 1, E, dtype=torch.double)


def beams(size: int, sentences: int = N) -> Tensor:
    return torch.arange(sentences).repeat_interleave(size)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=12), max_size=4), st.booleans())
def test_any_choices_of_rows_read_what_one_memory_for_each_would(
    choices: list[list[int]], grouped: bool
) -> None:
    torch.manual_seed(0)
    attend = attention()
    memory = remembered(attend)
    source, sentence = SourceMemory.of(memory, LENGTHS, attends=[attend]), torch.arange(N)
    for choice in [[*beams(3).tolist()], *choices] if grouped else choices:
        rows = torch.tensor(choice) % len(sentence)
        source, sentence = source.select(rows), sentence[rows]
    query = queries(len(sentence))
    want = attend(query, memory.select(sentence), padding(LENGTHS[sentence]))
    torch.testing.assert_close(source.read(attend, query), want, atol=1e-12, rtol=0)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("weigh", WEIGHS)
@pytest.mark.parametrize("score", SCORES)
def test_every_attention_steps_as_with_one_memory_for_each_row(
    score: str, weigh: str, heads: int
) -> None:
    """A new row of the tables that minds its step fails here until PLACED knows it."""
    attend = attention(score, weigh, heads)
    memory = remembered(attend, heads)
    source = SourceMemory.of(memory, LENGTHS, attends=[attend]).select(beams(3))
    alone, mask = memory.select(beams(3)), padding(LENGTHS[beams(3)])
    past = past_alone = START
    for _ in range(3):
        query = queries(3 * N, heads)
        read, past = source.step(attend, query, 0, past)
        want, past_alone = attend.step(query, alone, mask, past_alone)
        torch.testing.assert_close(read, want, atol=1e-12, rtol=0)
        rows = torch.randint(3, (N, 3)).add(3 * torch.arange(N)[:, None]).flatten()
        source, past, past_alone = source.select(rows), past.select(rows), past_alone.select(rows)


def test_a_beam_search_never_copies_a_memory_until_sentences_leave() -> None:
    attend = attention()
    start = SourceMemory.of(remembered(attend), LENGTHS, attends=[attend])
    wide = start.select(beams(3))
    mixed = wide.select(torch.tensor([2, 0, 0, 3, 5, 5, 8, 7, 6, 9, 9, 9]))
    assert wide.memories is start.memories
    assert mixed.memories is start.memories
    assert (start.beams, wide.beams, mixed.beams) == (1, 3, 3)
    assert wide.mask is start.mask, "and the table of its padding is made once"
    fewer = mixed.select(torch.tensor([2, 0, 0, 8, 7, 6]))
    assert fewer.memories[0].key.shape[0] == 2
    assert fewer.beams == 3
    narrow = wide.select(torch.tensor([0, 3, 6, 9]))
    assert narrow.memories is start.memories
    assert narrow.beams == 1


def test_rows_that_carry_a_past_have_a_memory_each() -> None:
    attend = attention("coverage")
    source = SourceMemory.of(remembered(attend), LENGTHS, attends=[attention(), attend])
    wide = source.select(beams(2))
    assert wide.beams == 1
    assert wide.memories[0].key.shape[0] == 2 * N


def test_each_layer_has_its_own_memory() -> None:
    attend = attention()
    memories = (remembered(attend), remembered(attend))
    source = SourceMemory.of(memories, LENGTHS, attends=[attend]).select(beams(2)[2:])
    query = queries(2 * (N - 1))
    for layer, memory in enumerate(memories):
        want = attend(query, memory.select(beams(2)[2:]), padding(LENGTHS[beams(2)[2:]]))
        torch.testing.assert_close(source.read(attend, query, layer), want)


def test_weights_to_point_with_are_those_of_each_row() -> None:
    attend = attention("additive", heads=1)
    memory = remembered(attend, 1)
    source = SourceMemory.of(memory, LENGTHS, attends=[attend]).select(beams(3))
    query = queries(3 * N, 1)
    want = attend.weights(query, memory.select(beams(3)), padding(LENGTHS[beams(3)]))
    torch.testing.assert_close(source.weights(attend, query), want, atol=1e-12, rtol=0)


def test_recorded_weights_have_a_row_for_each_beam() -> None:
    attend = attention()
    memory = remembered(attend)
    source = SourceMemory.of(memory, LENGTHS, attends=[attend]).select(beams(3))
    query = queries(3 * N)
    with record(attend) as tape:
        source.read(attend, query)
    (call,) = tape
    assert call.weights.shape == (N, H, 3, S)
    want = attend.weights(query, memory.select(beams(3)), padding(LENGTHS[beams(3)]))
    torch.testing.assert_close(source.apart(call.weights), want)


def test_without_padding_there_is_no_mask() -> None:
    attend = attention()
    source = SourceMemory.of(remembered(attend), torch.tensor([6, 3, 6, 6]), attends=[attend])
    assert source.mask is not None
    assert source.select(torch.tensor([0, 2, 3])).mask is None


def test_gradients_reach_a_shared_memory() -> None:
    attend = attention()
    states = torch.randn(N, H, S, E, dtype=torch.double, requires_grad=True)
    source = SourceMemory.of(attend.remember(states, states), LENGTHS, attends=[attend])
    source.select(beams(3)).read(attend, queries(3 * N)).sum().backward()
    assert states.grad is not None
    real = torch.arange(S) < LENGTHS[:, None]
    assert torch.equal(states.grad.abs().amax((1, 3)) > 0, real)


def test_a_source_refuses_what_does_not_fit(as_users_run_it: None) -> None:
    attend = attention()
    with pytest.raises(UserError, match="2 lengths were given for 4 sentences"):
        SourceMemory.of(remembered(attend), torch.tensor([1, 2]), attends=[attend])
    source = SourceMemory.of(remembered(attend), LENGTHS, attends=[attend]).select(beams(2))
    with pytest.raises(UserError, match="3 rows were given for a source of 4 sentences with"):
        source.read(attend, queries(3))


def test_only_attention_that_minds_its_step_keeps_rows_apart() -> None:
    apart = {score for score in SCORES if not shareable(attention(score))}
    assert apart == {
        "location_aware",
        "coverage",
        "relative_clipped",
        "relative_skewed",
        "relative_xl",
    }
    apart = {weigh for weigh in WEIGHS if not shareable(attention(weigh=weigh))}
    assert apart == {"local_m", "mixture_window", "shift_sharpen"}
