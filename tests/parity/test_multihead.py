"""Our layers against torch.nn and transformers, output and weights, at 1e-5 in float32."""

import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import (
    LlamaConfig,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from regard.attention import Mask, causal, padding, record
from regard.layers import CrossAttention, EncoderBlock, RecurrentEncoder, Rotary, SelfAttention

B, T, S, D, H = 3, 6, 7, 16, 4
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
LENGTHS = torch.tensor([6, 3, 1])


def twins() -> tuple[SelfAttention, nn.MultiheadAttention]:
    ours, theirs = SelfAttention(D, H), nn.MultiheadAttention(D, H, batch_first=True)
    ours.project.load_state_dict({"weight": theirs.in_proj_weight, "bias": theirs.in_proj_bias})
    ours.merge.load_state_dict(theirs.out_proj.state_dict())
    return ours, theirs


def torch_masks(mask: Mask | None, keys: int) -> torch.Tensor | None:
    """torch's polarity: True forbids."""
    return None if mask is None else ~mask.table(T, keys).expand(B, H, T, keys).flatten(0, 1)


@pytest.mark.parametrize("mask", [None, causal(), padding(LENGTHS), causal() & padding(LENGTHS)])
def test_self_attention_equals_torch(mask: Mask | None) -> None:
    ours, theirs = twins()
    x = torch.randn(B, T, D, requires_grad=True)
    with record(ours) as tape:
        out = ours(x, mask)
    expected, weights = theirs(x, x, x, attn_mask=torch_masks(mask, T), average_attn_weights=False)
    torch.testing.assert_close(out, expected, **CLOSE)
    torch.testing.assert_close(tape.weights("attend"), weights, **CLOSE)
    slope = torch.randn_like(out)
    (got,) = torch.autograd.grad((out * slope).sum(), x, retain_graph=True)
    (want,) = torch.autograd.grad((expected * slope).sum(), x)
    torch.testing.assert_close(got, want, **CLOSE)


def test_cross_attention_with_widths_of_its_own_equals_torch() -> None:
    theirs = nn.MultiheadAttention(D, H, kdim=10, vdim=12, batch_first=True)
    ours = CrossAttention(D, H, key_width=10, value_width=12)
    biases = theirs.in_proj_bias.chunk(3)
    weights = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    for layer, weight, bias in zip(
        (ours.query, ours.key, ours.value), weights, biases, strict=True
    ):
        layer.load_state_dict({"weight": weight, "bias": bias})
    ours.merge.load_state_dict(theirs.out_proj.state_dict())
    x, keys, values = torch.randn(B, T, D), torch.randn(B, S, 10), torch.randn(B, S, 12)
    mask = padding(torch.tensor([7, 2, 5]))
    with record(ours) as tape:
        out = ours(x, ours.remember(keys, values), mask)
    expected, weights_ = theirs(
        x, keys, values, attn_mask=torch_masks(mask, S), average_attn_weights=False
    )
    torch.testing.assert_close(out, expected, **CLOSE)
    torch.testing.assert_close(tape.weights("attend"), weights_, **CLOSE)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_encoder_block_equals_torch(norm_first: bool) -> None:
    theirs = nn.TransformerEncoderLayer(D, H, 24, 0.0, batch_first=True, norm_first=norm_first)
    ours = EncoderBlock(D, H, 24, norm_first=norm_first)
    attention = theirs.self_attn
    ours.attention.project.load_state_dict(
        {"weight": attention.in_proj_weight, "bias": attention.in_proj_bias}
    )
    ours.attention.merge.load_state_dict(attention.out_proj.state_dict())
    ours.feedforward.widen.load_state_dict(theirs.linear1.state_dict())
    ours.feedforward.narrow.load_state_dict(theirs.linear2.state_dict())
    for norm in (theirs.norm1, theirs.norm2):
        nn.init.normal_(norm.weight)
    ours.around_attention.norm.load_state_dict(theirs.norm1.state_dict())
    ours.around_feedforward.norm.load_state_dict(theirs.norm2.state_dict())
    x = torch.randn(B, T, D)
    expected = theirs(x, src_mask=~causal().table(T, T)[0, 0])
    torch.testing.assert_close(ours(x, causal()), expected, **CLOSE)


def test_rotary_positions_equal_those_of_llama() -> None:
    config = LlamaConfig(hidden_size=D, num_attention_heads=H, max_position_embeddings=64)
    query, key = torch.randn(B, H, T, D // H), torch.randn(B, H, T, D // H)
    positions = torch.arange(5, 5 + T)[None]
    cosine, sine = LlamaRotaryEmbedding(config)(query, positions)
    expected = apply_rotary_pos_emb(query, key, cosine, sine)
    for longest in (64, 2):  # from the table, and past its end
        rotary = Rotary(D // H, longest)
        got = rotary(query, 5), rotary(key, 5)
        torch.testing.assert_close(got, expected, **CLOSE)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_shared_key_heads_equal_heads_that_repeat_them(key_heads: int) -> None:
    shared, full = SelfAttention(D, H, key_heads=key_heads), SelfAttention(D, H)
    wide = D // H

    def repeated(tensor: torch.Tensor) -> torch.Tensor:
        query, key, value = tensor.split([H * wide, key_heads * wide, key_heads * wide])
        copies = [
            part.unflatten(0, (key_heads, wide)).repeat_interleave(H // key_heads, 0).flatten(0, 1)
            for part in (key, value)
        ]
        return torch.cat((query, *copies))

    full.project.load_state_dict(
        {name: repeated(value) for name, value in shared.project.state_dict().items()}
    )
    full.merge.load_state_dict(shared.merge.state_dict())
    x = torch.randn(B, T, D)
    with record(shared) as few, record(full) as many:
        torch.testing.assert_close(shared(x, causal()), full(x, causal()), **CLOSE)
    torch.testing.assert_close(few.weights("attend"), many.weights("attend"), **CLOSE)


@pytest.mark.parametrize("kind", ["elman", "gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_padded_batch_is_encoded_as_each_sequence_alone(kind: str, bidirectional: bool) -> None:
    encoder = RecurrentEncoder(kind, D, 5, layers=2, bidirectional=bidirectional)
    x = torch.randn(4, T, D)
    lengths = torch.tensor([3, T, 0, 1])
    together = encoder(x, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert (together.states[row, length:] == 0).all()
        if length == 0:
            assert (together.final[:, row] == 0).all()
            continue
        alone = encoder(x[row : row + 1, :length])
        torch.testing.assert_close(together.states[row, :length], alone.states[0], **CLOSE)
        torch.testing.assert_close(together.final[:, row], alone.final[:, 0], **CLOSE)
        if kind == "lstm":
            torch.testing.assert_close(together.cell[:, row], alone.cell[:, 0], **CLOSE)
    together.states.sum().backward()
    assert all(p.grad.isfinite().all() for p in encoder.parameters())


def test_the_final_state_is_that_of_the_last_real_token_of_each_direction() -> None:
    encoder = RecurrentEncoder("gru", D, 5)
    encoded = encoder(torch.randn(2, T, D), torch.tensor([4, 2]))
    for row, length in enumerate((4, 2)):
        assert torch.equal(encoded.final[0, row, :5], encoded.states[row, length - 1, :5])
        assert torch.equal(encoded.final[0, row, 5:], encoded.states[row, 0, 5:])
