"""The same Transformer in other libraries: our weights as a Marian model and in CTranslate2's form.

All are of the paper's kind: normalised after each sum, sinusoidal positions, one table for the
decoder's input and output. So outputs can be compared, and what is timed is the same work.
"""

from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.protocols import Batch
from regard.export.ctranslate2 import export_ctranslate2
from regard.layers.block import DecoderBlock, EncoderBlock
from regard.layers.position import Sinusoidal
from regard.models.translation.transformer import Transformer

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
    names = [f"t{number}" for number in range(model.embed.table.num_embeddings)]
    specials = {"unk": 1, "bos": BOS, "eos": EOS}
    export_ctranslate2(model, folder, words=names, source_words=names, specials=specials)


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
