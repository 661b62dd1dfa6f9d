"""Laws of layers: stepping equals the whole, and what is padded or apart never matters."""

from itertools import product

import pytest
import torch
from torch import Tensor

from regard.attention import SCORES, START, WEIGHS, causal, padding
from regard.layers import (
    POSITIONS,
    Cache,
    DecoderBlock,
    EncoderBlock,
    GatedFeedForward,
    Rotary,
    SelfAttention,
    TokenEmbedding,
)

B, T, D, H = 2, 6, 16, 4
PAIRS = [(score, "softmax") for score in SCORES] + [("scaled_dot", weigh) for weigh in WEIGHS]


def stepped(layer: SelfAttention | EncoderBlock, x: Tensor, sizes: list[int]) -> Tensor:
    """The sequence in pieces of these sizes, through a cache that must grow on the way."""
    cache, parts = Cache(room=2), []
    for part in x.split(sizes, dim=1):
        out, cache = layer.step(part, cache, causal())
        parts.append(out)
    assert cache.length == x.shape[1]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize(("score", "weigh"), PAIRS)
@pytest.mark.parametrize("sizes", [[1] * T, [3, 1, 2], [T]])
def test_cached_steps_equal_the_whole(score: str, weigh: str, sizes: list[int]) -> None:
    layer = SelfAttention(D, H, score=score, weigh=weigh).double()
    x = torch.randn(B, T, D, dtype=torch.double)
    torch.testing.assert_close(stepped(layer, x, sizes), layer(x, causal()))
    with torch.no_grad():
        torch.testing.assert_close(stepped(layer, x, sizes), layer(x, causal()))


@pytest.mark.parametrize(("key_heads", "rotary"), list(product([4, 2, 1], [False, True])))
def test_cached_steps_equal_the_whole_with_shared_heads_and_rotation(
    key_heads: int, rotary: bool
) -> None:
    turn = Rotary(D // H, longest=3) if rotary else None
    layer = SelfAttention(D, H, key_heads=key_heads, rotary=turn)
    x = torch.randn(B, T, D)
    with torch.no_grad():
        torch.testing.assert_close(stepped(layer, x, [2, 1, 3]), layer(x, causal()))


def test_gradients_flow_through_cached_steps_as_through_the_whole() -> None:
    layer = SelfAttention(D, H).double()
    x = torch.randn(B, T, D, dtype=torch.double, requires_grad=True)
    slope = torch.randn(B, T, D, dtype=torch.double)
    inputs = (x, *layer.parameters())
    got = torch.autograd.grad((stepped(layer, x, [1] * T) * slope).sum(), inputs)
    want = torch.autograd.grad((layer(x, causal()) * slope).sum(), inputs)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_decoder_block_steps_as_it_runs_whole(norm_first: bool) -> None:
    block = DecoderBlock(D, H, 24, norm_first=norm_first).eval()
    x, source = torch.randn(B, T, D), torch.randn(B, 5, D)
    memory, real = block.cross.remember(source), padding(torch.tensor([5, 2]))
    whole = block(x, memory, causal(), real)
    cache, past, parts = Cache(), START, []
    for part in x.split(1, dim=1):
        out, cache, past = block.step(part, memory, cache, causal(), real, past)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("score", SCORES)
def test_the_future_never_reaches_the_past(score: str) -> None:
    layer = EncoderBlock(D, H, 24, attention=SelfAttention(D, H, score=score)).double()
    x = torch.randn(B, T, D, dtype=torch.double)
    changed = x.clone()
    changed[:, 4:] += 5
    before, after = layer(x, causal()), layer(changed, causal())
    torch.testing.assert_close(before[:, :4], after[:, :4], atol=1e-12, rtol=0)
    assert not torch.allclose(before[:, 4:], after[:, 4:])


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_continue_where_the_cache_ends(name: str) -> None:
    mark = POSITIONS[name](D, T)
    x = torch.randn(B, T, D)
    whole = mark(x)
    torch.testing.assert_close(torch.cat((mark(x[:, :4]), mark(x[:, 4:], 4)), dim=1), whole)


def test_rotated_products_depend_on_distance_alone() -> None:
    rotary = Rotary(8)
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    near = (rotary(query, 7) * rotary(key, 4)).sum()
    far = (rotary(query, 1903) * rotary(key, 1900)).sum()
    torch.testing.assert_close(near, far, atol=1e-3, rtol=0)  # angles of thousands in float32
    assert (near - (rotary(query, 7) * rotary(key, 3)).sum()).abs() > 1e-2


def test_the_output_layer_is_the_embedding_itself() -> None:
    words = TokenEmbedding(11, D, scaled=True, padding=0)
    assert len(list(words.parameters())) == 1
    states = torch.randn(B, T, D)
    torch.testing.assert_close(words.logits(states), states @ words.table.weight.T)
    torch.testing.assert_close(words(torch.tensor([[3]])), words.table.weight[3].view(1, 1, D) * 4)
    assert (words(torch.tensor([[0]])) == 0).all()


def test_the_vector_of_padding_learns_as_an_output_alone() -> None:
    words, states = TokenEmbedding(11, D, padding=0), torch.randn(B, T, D)
    words(torch.tensor([[0, 3]])).sum().backward()
    assert words.table.weight.grad is not None
    assert (words.table.weight.grad[0] == 0).all()
    assert (words.table.weight.grad[3] == 1).all()
    words.logits(states).logsumexp(2).sum().backward()
    assert (words.table.weight.grad[0] != 0).all()


def test_a_gated_layer_is_the_product_of_its_halves() -> None:
    layer = GatedFeedForward(D, 24)
    x = torch.randn(B, T, D)
    gate, value = layer.widen.weight.chunk(2)
    expected = (torch.nn.functional.silu(x @ gate.T) * (x @ value.T)) @ layer.narrow.weight.T
    torch.testing.assert_close(layer(x), expected)
