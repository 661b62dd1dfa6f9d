"""The same Transformer in other libraries: our weights as a Marian model and in CTranslate2's form.

All are of the paper's kind: normalised after each sum, sinusoidal positions, one table for the
decoder's input and output. So outputs can be compared, and what is timed is the same work.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.protocols import Batch
from regard.layers.block import DecoderBlock, EncoderBlock
from regard.layers.position import Sinusoidal
from regard.models.transformer import Transformer

PAD, BOS, EOS = 0, 2, 3
"""Tokens as ours are numbered."""


def ours(
    width: int, layers: int, heads: int, hidden: int, vocabulary: int, dropout: float = 0.1
) -> Transformer:
    """A Transformer with one vocabulary for both sides, as Marian has it, and random weights."""
    config = Transformer.Config(
        width=width,
        heads=heads,
        encoder_layers=layers,
        decoder_layers=layers,
        hidden=hidden,
        shared="all",
        dropout=dropout,
        context=256,
    )
    return Transformer(config, vocabulary, vocabulary)


def marian(model: Transformer) -> nn.Module:
    """transformers' MarianMTModel with our weights, and the attention it chooses by itself."""
    from transformers import MarianConfig, MarianMTModel

    config, words = model.config, model.embed.table.weight
    hidden = config.hidden or 4 * config.width
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=words.shape[0],
            max_position_embeddings=config.context,
            encoder_layers=config.encoder_layers,
            encoder_ffn_dim=hidden,
            encoder_attention_heads=config.heads,
            decoder_layers=config.decoder_layers,
            decoder_ffn_dim=hidden,
            decoder_attention_heads=config.heads,
            d_model=config.width,
            activation_function=config.activation,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.activation_dropout,
            scale_embedding=config.scaled,
            bos_token_id=BOS,
            pad_token_id=PAD,
            eos_token_id=EOS,
            forced_eos_token_id=None,
            decoder_start_token_id=BOS,
        )
    )
    theirs.load_state_dict(_marian_weights(model), strict=False)
    theirs.generation_config.bad_words_ids = None
    theirs.generation_config.forced_eos_token_id = None
    module: nn.Module = theirs
    return module


def _marian_weights(model: Transformer) -> dict[str, Tensor]:
    """Our weights by Marian's names."""
    named: dict[str, Tensor] = {"model.shared.weight": model.embed.table.weight}
    for side, position in (("encoder", model.source_position), ("decoder", model.position)):
        assert isinstance(position, Sinusoidal)
        named[f"model.{side}.embed_positions.weight"] = position.table
        named[f"model.{side}.embed_tokens.weight"] = model.embed.table.weight
    named["lm_head.weight"] = model.embed.table.weight
    for side, blocks in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, block in enumerate(blocks):
            assert isinstance(block, EncoderBlock | DecoderBlock)
            parts: dict[str, nn.Module] = {
                "self_attn.out_proj": block.attention.merge,
                "self_attn_layer_norm": block.around_attention.norm,
                "fc1": block.feedforward.get_submodule("widen"),
                "fc2": block.feedforward.get_submodule("narrow"),
                "final_layer_norm": block.around_feedforward.norm,
            }
            if isinstance(block, DecoderBlock):
                parts |= {
                    "encoder_attn.q_proj": block.cross.query,
                    "encoder_attn.k_proj": block.cross.key,
                    "encoder_attn.v_proj": block.cross.value,
                    "encoder_attn.out_proj": block.cross.merge,
                    "encoder_attn_layer_norm": block.around_cross.norm,
                }
            layer = f"model.{side}.layers.{number}"
            for name, part in parts.items():
                for key, weight in part.state_dict().items():
                    named[f"{layer}.{name}.{key}"] = weight
            for key, weight in block.attention.project.state_dict().items():
                for which, third in zip("qkv", weight.chunk(3), strict=True):
                    named[f"{layer}.self_attn.{which}_proj.{key}"] = third
    return named


def ctranslate(model: Transformer, folder: Path) -> None:
    """A folder that CTranslate2 can open, with our weights in float32; token n is called tn."""
    from ctranslate2 import specs

    config = model.config
    assert config.norm == "after"
    assert config.activation == "relu"
    spec = specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers), config.heads, pre_norm=False
    )
    words = model.embed.table.weight.detach()
    for side, position, blocks in (
        (spec.encoder, model.source_position, model.encoder),
        (spec.decoder, model.position, model.decoder),
    ):
        assert isinstance(position, Sinusoidal)
        (side.embeddings[0] if side is spec.encoder else side.embeddings).weight = words.numpy()
        side.position_encodings.encodings = position.table.numpy()
        side.scale_embeddings = config.scaled
        for layer, block in zip(side.layer, blocks, strict=True):
            assert isinstance(block, EncoderBlock | DecoderBlock)
            _attention(layer.self_attention, block.attention.project, block.attention.merge)
            _same(layer.self_attention.layer_norm, block.around_attention.norm)
            _same(layer.ffn.linear_0, block.feedforward.get_submodule("widen"))
            _same(layer.ffn.linear_1, block.feedforward.get_submodule("narrow"))
            _same(layer.ffn.layer_norm, block.around_feedforward.norm)
            if isinstance(block, DecoderBlock):
                cross = block.cross
                _same(layer.attention.linear[0], cross.query)
                _joined(layer.attention.linear[1], cross.key, cross.value)
                _same(layer.attention.linear[2], cross.merge)
                _same(layer.attention.layer_norm, block.around_cross.norm)
    spec.decoder.projection.weight = words.numpy()
    names = [f"t{number}" for number in range(words.shape[0])]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.decoder_start_token = f"t{BOS}"
    spec.config.eos_token, spec.config.unk_token = f"t{EOS}", "t1"
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))


def _attention(spec: object, project: nn.Linear, merge: nn.Linear) -> None:
    """Queries, keys and values in one product, as CTranslate2 has them too."""
    linear = spec.linear  # type: ignore[attr-defined]
    _same(linear[0], project)
    _same(linear[1], merge)


def _same(spec: object, module: nn.Module) -> None:
    """A linear layer or a norm."""
    names = ("gamma", "beta") if isinstance(module, nn.LayerNorm) else ("weight", "bias")
    for name, weight in zip(names, module.parameters(), strict=True):
        setattr(spec, name, weight.detach().numpy())


def _joined(spec: object, *modules: nn.Linear) -> None:
    """Several linear layers one under another."""
    for name in ("weight", "bias"):
        weights = [module.get_parameter(name).detach() for module in modules]
        setattr(spec, name, torch.cat(weights).numpy())


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with embeddings, positions and a tied output, as its tutorial has it."""

    def __init__(self, like: Transformer) -> None:
        super().__init__()
        config, words = like.config, like.embed.table.weight
        self.scale = config.width**0.5
        self.embed = nn.Embedding(*words.shape)
        self.position = Sinusoidal(config.width)
        self.drop = nn.Dropout(config.dropout)
        self.body = nn.Transformer(
            config.width,
            config.heads,
            config.encoder_layers,
            config.decoder_layers,
            config.hidden or 4 * config.width,
            config.dropout,
            batch_first=True,
        )

    def forward(self, batch: Batch) -> Tensor:
        """The logits."""
        source, tokens = batch["source"], batch["tokens"]
        padded = source == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        states = self.body(
            self.drop(self.position(self.embed(source) * self.scale)),
            self.drop(self.position(self.embed(tokens) * self.scale)),
            tgt_mask=causal,
            src_key_padding_mask=padded,
            memory_key_padding_mask=padded,
            tgt_is_causal=True,
        )
        return F.linear(states, self.embed.weight)
