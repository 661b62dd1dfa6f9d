"""The Transformer against transformers' Marian (norm after) and torch.nn.Transformer (before)."""

import pytest
import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel
from transformers.models.marian.modeling_marian import MarianAttention

from regard.core.padding import IGNORE
from regard.layers import DecoderBlock, EncoderBlock
from regard.models.translation.transformer import Transformer

B, S, T, D, H, FF, V, SOURCES = 3, 7, 6, 16, 4, 24, 20, 23
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
LENGTHS = torch.tensor([7, 2, 5])
REAL = torch.arange(S) < LENGTHS[:, None]


def batch(source_vocabulary: int) -> dict[str, Tensor]:
    source = torch.randint(4, source_vocabulary, (B, S)).masked_fill(~REAL, 0)
    return {
        "source": source,
        "source_lengths": LENGTHS,
        "tokens": torch.randint(4, V, (B, T)),
    }


def copy(target: nn.Module, *sources: nn.Module) -> None:
    """The weights of a layer, or of several that ours has in one."""
    for name, parameter in target.named_parameters():
        joined = torch.cat([source.get_parameter(name).data for source in sources])
        assert joined.shape == parameter.shape
        parameter.data.copy_(joined)


def stirred(model: nn.Module) -> None:
    """Weights of all norms and biases at random, so that a mix-up shows."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.5)


def from_marian(ours: EncoderBlock | DecoderBlock, theirs: nn.Module) -> None:
    attention = theirs.self_attn
    assert isinstance(attention, MarianAttention)
    copy(ours.attention.project, attention.q_proj, attention.k_proj, attention.v_proj)
    copy(ours.attention.merge, attention.out_proj)
    copy(ours.around_attention.norm, theirs.self_attn_layer_norm)
    copy(ours.feedforward.widen, theirs.fc1)
    copy(ours.feedforward.narrow, theirs.fc2)
    copy(ours.around_feedforward.norm, theirs.final_layer_norm)
    if isinstance(ours, DecoderBlock):
        cross = theirs.encoder_attn
        for one, other in (
            (ours.cross.query, cross.q_proj),
            (ours.cross.key, cross.k_proj),
            (ours.cross.value, cross.v_proj),
            (ours.cross.merge, cross.out_proj),
            (ours.around_cross.norm, theirs.encoder_attn_layer_norm),
        ):
            copy(one, other)


def marian(shared: bool, activation: str, scaled: bool) -> MarianMTModel:
    config = MarianConfig(
        vocab_size=V,
        decoder_vocab_size=V,
        d_model=D,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=H,
        decoder_attention_heads=H,
        encoder_ffn_dim=FF,
        decoder_ffn_dim=FF,
        activation_function=activation,
        dropout=0.0,
        attention_dropout=0.0,
        max_position_embeddings=32,
        scale_embedding=scaled,
        pad_token_id=0,
        eos_token_id=3,
        decoder_start_token_id=2,
        share_encoder_decoder_embeddings=shared,
        tie_word_embeddings=True,
        init_std=0.3,
    )
    model = MarianMTModel(config).eval()
    stirred(model)
    nn.init.normal_(model.final_logits_bias)
    return model


def like_marian(theirs: MarianMTModel) -> Transformer:
    """Ours with its weights; it has sines before cosines where the paper and we alternate."""
    c = theirs.config
    config = Transformer.Config(
        width=D,
        heads=H,
        encoder_layers=2,
        decoder_layers=3,
        hidden=FF,
        activation={"swish": "silu", "relu": "relu"}[c.activation_function],
        context=32,
        scaled=c.scale_embedding,
        shared="all" if c.share_encoder_decoder_embeddings else "decoder",
        output_bias=True,
        dropout=0.0,
    )
    ours, inner = Transformer(config, V, V), theirs.model
    for mine, sides in ((ours.encoder, inner.encoder), (ours.decoder, inner.decoder)):
        for one, other in zip(mine, sides.layers, strict=True):
            assert isinstance(one, EncoderBlock | DecoderBlock)
            from_marian(one, other)
        halves = sides.embed_positions.weight.data
        alternating = ours.position.table[:32]
        torch.testing.assert_close(alternating[:, 0::2], halves[:, : D // 2], **CLOSE)
        torch.testing.assert_close(alternating[:, 1::2], halves[:, D // 2 :], **CLOSE)
        halves.copy_(alternating)
    copy(ours.embed.table, inner.decoder.embed_tokens)
    if ours.source_embed is not None:
        copy(ours.source_embed.table, inner.encoder.embed_tokens)
    assert torch.equal(theirs.lm_head.weight, inner.decoder.embed_tokens.weight)
    assert ours.bias is not None
    ours.bias.data.copy_(theirs.final_logits_bias[0])
    return ours.eval()


@pytest.mark.parametrize(
    ("shared", "activation", "scaled"), [(True, "swish", True), (False, "relu", False)]
)
def test_normalised_after_each_sum_it_equals_marian(
    shared: bool, activation: str, scaled: bool
) -> None:
    theirs = marian(shared, activation, scaled)
    ours, words = like_marian(theirs), batch(V)
    targets = torch.randint(4, V, (B, T))
    targets[1, 3:] = IGNORE
    expected = theirs(
        input_ids=words["source"],
        attention_mask=REAL.long(),
        decoder_input_ids=words["tokens"],
        labels=targets,
    )
    prediction = ours(words)
    torch.testing.assert_close(prediction.logits(), expected.logits, **CLOSE)
    real = (targets != IGNORE).sum()
    torch.testing.assert_close(prediction.nll(targets) / real, expected.loss, **CLOSE)
    state = ours.start(words)
    for place in range(T):
        logits, state = ours.step(words["tokens"][:, place], state)
        torch.testing.assert_close(logits, expected.logits[:, place], **CLOSE)


def test_its_gradients_are_those_of_marian() -> None:
    theirs = marian(True, "relu", True)
    ours, words = like_marian(theirs), batch(V)
    targets = torch.randint(4, V, (B, T))
    theirs(
        input_ids=words["source"],
        attention_mask=REAL.long(),
        decoder_input_ids=words["tokens"],
        labels=targets,
    ).loss.backward()
    (ours(words).nll(targets) / targets.numel()).backward()
    table, other = ours.embed.table.weight.grad, theirs.model.shared.weight.grad
    assert table is not None
    assert other is not None
    torch.testing.assert_close(table[1:], other[1:], **CLOSE)  # theirs never teaches the padding
    first, theirs_first = ours.encoder[0], theirs.model.encoder.layers[0]
    assert isinstance(first, EncoderBlock)
    torch.testing.assert_close(
        first.feedforward.widen.weight.grad, theirs_first.fc1.weight.grad, **CLOSE
    )


def from_torch(ours: EncoderBlock | DecoderBlock, theirs: nn.Module) -> None:
    def attended(mine: nn.Module, other: nn.MultiheadAttention) -> None:
        mine.project.load_state_dict({"weight": other.in_proj_weight, "bias": other.in_proj_bias})
        copy(mine.merge, other.out_proj)

    attended(ours.attention, theirs.self_attn)
    copy(ours.feedforward.widen, theirs.linear1)
    copy(ours.feedforward.narrow, theirs.linear2)
    copy(ours.around_attention.norm, theirs.norm1)
    last = theirs.norm2
    if isinstance(ours, DecoderBlock):
        other = theirs.multihead_attn
        weights, biases = other.in_proj_weight.chunk(3), other.in_proj_bias.chunk(3)
        for mine, weight, bias in zip(
            (ours.cross.query, ours.cross.key, ours.cross.value), weights, biases, strict=True
        ):
            mine.load_state_dict({"weight": weight, "bias": bias})
        copy(ours.cross.merge, other.out_proj)
        copy(ours.around_cross.norm, theirs.norm2)
        last = theirs.norm3
    copy(ours.around_feedforward.norm, last)


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_normalised_before_each_branch_it_equals_torch(position: str) -> None:
    config = Transformer.Config(
        width=D,
        heads=H,
        encoder_layers=2,
        decoder_layers=3,
        hidden=FF,
        norm="before",
        position=position,
        context=8,
        shared="none",
        output_bias=True,
        dropout=0.0,
    )
    ours = Transformer(config, V, SOURCES).eval()
    layer = nn.TransformerEncoderLayer(D, H, FF, 0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(D), enable_nested_tensor=False)
    theirs = nn.Transformer(
        D, H, 2, 3, FF, 0.0, custom_encoder=encoder, batch_first=True, norm_first=True
    )
    stirred(ours)
    stirred(theirs)
    for mine, sides in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        for one, other in zip(mine, sides.layers, strict=True):
            assert isinstance(one, EncoderBlock | DecoderBlock)
            from_torch(one, other)
    copy(ours.source_norm, theirs.encoder.norm)
    copy(ours.norm, theirs.decoder.norm)
    words = batch(SOURCES)
    assert ours.source_embed is not None
    assert ours.output is not None
    source = ours.source_embed.table(words["source"]) * 4 + ours.source_position.table[:S]
    target = ours.embed.table(words["tokens"]) * 4 + ours.position.table[:T]
    states = theirs(
        source,
        target,
        tgt_mask=torch.ones(T, T).triu(1).bool(),
        src_key_padding_mask=~REAL,
        memory_key_padding_mask=~REAL,
    )
    expected = states @ ours.output.weight.T + ours.bias
    torch.testing.assert_close(ours(words).logits(), expected, **CLOSE)
