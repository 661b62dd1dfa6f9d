"""Marian's translators (Junczys-Dowmunt et al. 2018), as the OPUS-MT project gives them away.

The Transformer of the paper, with the sines of positions before their cosines, a bias for each
word, and sentences that begin with what fills rows. How their outputs are searched for stands in
generation_config.json, or in config.json in older folders.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from torch import nn

from regard.core.errors import UserError, choose
from regard.hub.encoders import ACTIVATION_NAMES, activation_name
from regard.hub.family import Family, ModelPlan, ModelToWrite
from regard.hub.generation import (
    NEVER_FOLLOWED,
    banned_tokens,
    generation_settings,
    long_bad_words,
    token_numbers,
    unfollowed,
)
from regard.hub.keys import TensorRow, TensorTable, weight_and_bias
from regard.hub.store import MOST_LAYERS, ConfigValues
from regard.models.translation.transformer import Transformer

_ARCHITECTURE = "MarianMTModel"
_PREFIX = "model."
_SHARED = "model.shared.weight"
_SOURCES = "model.encoder.embed_tokens.weight"
_TARGETS = "model.decoder.embed_tokens.weight"
_OUTPUT = "lm_head.weight"


def _self_attention(ours: str, theirs: str) -> list[TensorRow]:
    """Self-attention, whose three projections are one here."""
    asked = [f"{theirs}.{each}_proj" for each in "qkv"]
    return [
        *weight_and_bias(f"{ours}.project", *asked),
        *weight_and_bias(f"{ours}.merge", f"{theirs}.out_proj"),
    ]


def _cross(ours: str, theirs: str) -> list[TensorRow]:
    """Attention to the source."""
    named = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "merge": "out_proj"}
    pairs = ((f"{ours}.{one}", f"{theirs}.{other}") for one, other in named.items())
    return [row for one, other in pairs for row in weight_and_bias(one, other)]


def _layer(side: str) -> list[TensorRow]:
    """A layer of the encoder or the decoder, `{}` its number."""
    ours, theirs = f"{side}.{{}}.", f"{_PREFIX}{side}.layers.{{}}."
    looks = [
        *_cross(f"{ours}cross", f"{theirs}encoder_attn"),
        *weight_and_bias(f"{ours}around_cross.norm", f"{theirs}encoder_attn_layer_norm"),
    ]
    return [
        *_self_attention(f"{ours}attention", f"{theirs}self_attn"),
        *weight_and_bias(f"{ours}around_attention.norm", f"{theirs}self_attn_layer_norm"),
        *(looks if side == "decoder" else []),
        *weight_and_bias(f"{ours}feedforward.widen", f"{theirs}fc1"),
        *weight_and_bias(f"{ours}feedforward.narrow", f"{theirs}fc2"),
        *weight_and_bias(f"{ours}around_feedforward.norm", f"{theirs}final_layer_norm"),
    ]


_EMBEDDINGS: dict[str, tuple[tuple[TensorRow, ...], dict[str, str]]] = {
    "all": (
        (TensorRow("embed.table.weight", (_SHARED,)),),
        {_SOURCES: _SHARED, _TARGETS: _SHARED, _OUTPUT: _SHARED},
    ),
    "decoder": (
        (
            TensorRow("source_embed.table.weight", (_SOURCES,)),
            TensorRow("embed.table.weight", (_TARGETS,)),
        ),
        {_OUTPUT: _TARGETS},
    ),
    "none": (
        (
            TensorRow("source_embed.table.weight", (_SOURCES,)),
            TensorRow("embed.table.weight", (_TARGETS,)),
            TensorRow("output.weight", (_OUTPUT,)),
        ),
        {},
    ),
}
"""Where the tables of words stand, and which are tied, by what `_shared_embeddings` says."""


def _tensor_table(config: Transformer.Config) -> TensorTable:
    """All tensors of a Marian."""
    rows, tied = _EMBEDDINGS[config.shared]
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    numbered = [
        row.for_layer(number)
        for side, count in layers.items()
        for number in range(count)
        for row in _layer(side)
    ]
    bias = (
        [TensorRow("bias", ("final_logits_bias",), unsqueezed=True)] if config.output_bias else []
    )
    return TensorTable(
        [*rows, *numbered, *bias],
        prefix=_PREFIX,
        tied=tied,
        ignored=("*embed_positions.weight",),
    )


def _read(settings: ConfigValues, name: str) -> ModelPlan:
    """What a config of Marian means here."""
    for key, known in _PLAIN.items():
        settings.require(key, known)
    words = settings.integer("vocab_size", least=1)
    sizes = {
        "vocabulary": settings.integer("decoder_vocab_size", words, least=1),
        "source_vocabulary": words,
    }
    said = generation_settings(settings)
    for each in (settings, said):
        if each.has("decoder_start_token_id"):
            each.integer("decoder_start_token_id", most=sizes["vocabulary"] - 1)
    activation = settings.string("activation_function", "gelu")
    config = Transformer.Config(
        width=settings.integer("d_model"),
        heads=_same(settings, "attention_heads"),
        encoder_layers=settings.integer("encoder_layers", most=MOST_LAYERS),
        decoder_layers=settings.integer("decoder_layers", most=MOST_LAYERS),
        hidden=_same(settings, "ffn_dim"),
        activation=choose("activation_function", activation, ACTIVATION_NAMES),
        norm="after",
        position="sinusoidal_halves",
        context=settings.integer("max_position_embeddings"),
        scaled=settings.boolean("scale_embedding", False),
        shared=_shared_embeddings(settings),
        output_bias=True,
        dropout=settings.number("dropout", 0.1),
        attention_dropout=settings.number("attention_dropout", 0.0),
        activation_dropout=settings.number("activation_dropout", 0.0),
    )
    bare = config.model_copy(update={"output_bias": False})
    made = ModelPlan(
        kind="transformer",
        task="translate",
        model=config,
        sizes=sizes,
        table=_tensor_table(config),
        data=_searching(said, settings),
        notes=_told(said, settings),
        ends=token_numbers(said, "eos_token_id"),
    )
    return replace(made, fallback=replace(made, model=bare, table=_tensor_table(bare)))


def _same(settings: ConfigValues, name: str) -> int:
    """A setting that both stacks have, and must have alike here."""
    one, other = (settings.integer(f"{side}_{name}") for side in ("encoder", "decoder"))
    if one != other:
        raise UserError(
            f"{settings.path}: encoder_{name}={one} and decoder_{name}={other} are one setting "
            "here and must be equal"
        )
    return one


def _shared_embeddings(settings: ConfigValues) -> Literal["none", "decoder", "all"]:
    """Which tables of words are one."""
    tied = settings.boolean("tie_word_embeddings", True)
    if not settings.boolean("share_encoder_decoder_embeddings", True):
        return "decoder" if tied else "none"
    if not tied:
        raise UserError(
            f"{settings.path}: share_encoder_decoder_embeddings=true with "
            "tie_word_embeddings=false is not known here"
        )
    return "all"


def _searching(said: ConfigValues, settings: ConfigValues) -> dict[str, object]:
    """How outputs are searched for, as the `[data]` table of a recipe has it.

    Their longest output counts the mark in front and the one that ends it, and their new tokens
    count the one that ends them; ours counts neither. Without a bound, it is that of the context.
    """
    if said.has("max_new_tokens"):
        most = said.integer("max_new_tokens") - 1
    else:
        most = said.integer("max_length", settings.integer("max_position_embeddings")) - 2
    least = said.integer("min_length", 0) - 1
    pads = token_numbers(said, "pad_token_id")
    banned = banned_tokens(said, token_numbers(said, "eos_token_id"))
    search = {
        "width": max(1, said.integer("num_beams", 1, most=1024)),
        "length_penalty": "average",
        "alpha": said.number("length_penalty", 1.0),
        "max_length": max(1, most),
        "max_per_source": 0.0,
        "min_length": min(max(0, said.integer("min_new_tokens", max(0, least))), max(1, most)),
        "no_repeat": said.integer("no_repeat_ngram_size", 0),
        "stop": _stopping(said),
        "free_end": bool(_forced_ends(said, settings)),
        "banned": [token for token in banned if token not in pads],
        # There the first token, which fills rows too, counts as written.
        "pads": not set(pads) & set(banned) and said.integer("no_repeat_ngram_size", 0) != 1,
    }
    return {"search": search}


def _stopping(said: ConfigValues) -> str:
    """When a sentence is finished."""
    early = said.values.get("early_stopping")
    if early is None or isinstance(early, bool):
        return "first" if early else "estimate"
    if early != "never":
        raise said.wrong("early_stopping", early, 'true, false or "never"')
    return "exact"


def _forced_ends(said: ConfigValues, settings: ConfigValues) -> tuple[int, ...]:
    """The tokens that end an output of the maximum length; 0 where config.json does not say."""
    if said is settings and "forced_eos_token_id" not in said.values:
        return (0,)
    return token_numbers(said, "forced_eos_token_id")


def _told(said: ConfigValues, settings: ConfigValues) -> tuple[str, ...]:
    """What there is to tell of settings that are not followed here, or not there."""
    file = said.path.name
    found = unfollowed(said, _UNFOLLOWED)
    if long_bad_words(said):
        found.append(f"{file}: bad_words_ids of several tokens are not followed here")
    pads = token_numbers(said, "pad_token_id")
    if said.integer("no_repeat_ngram_size", 0) > 1 and not set(pads) & set(banned_tokens(said, ())):
        found.append(
            f"{file}: no_repeat_ngram_size counts the token before an output too there, not here; "
            f"with bad_words_ids={[[each] for each in pads]} both are the same"
        )
    ends, forced = token_numbers(said, "eos_token_id"), _forced_ends(said, settings)
    if not ends:
        found.append(f"{file}: has no eos_token_id; here outputs end at the tokeniser's")
    if not forced:
        found.append(f"{file}: has no forced_eos_token_id; here an output of max_length ends too")
    elif forced and forced != ends:
        found.append(f"{file}: forced_eos_token_id={list(forced)} is not followed here")
    if not said.has("max_length") and not said.has("max_new_tokens"):
        found.append(
            f"{file}: has no max_length; transformers stops after 20 tokens, and here the context "
            "is the bound; set data.search.max_length"
        )
    return tuple(found)


def _write(said: ModelToWrite) -> dict[str, object]:
    """The config of a Marian."""
    c = _transformer(said.model).config
    hidden = c.hidden or 4 * c.width
    marks = said.specials
    begin = marks.get("bos", marks.get("pad"))
    return {
        "architectures": [_ARCHITECTURE],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": said.sizes["source_vocabulary"],
        "decoder_vocab_size": said.sizes["vocabulary"],
        "d_model": c.width,
        **{f"{side}_attention_heads": c.heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": hidden for side in ("encoder", "decoder")},
        "encoder_layers": c.encoder_layers,
        "decoder_layers": c.decoder_layers,
        "activation_function": activation_name(c.activation),
        "max_position_embeddings": c.context,
        "scale_embedding": c.scaled,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": c.shared == "all",
        "tie_word_embeddings": c.shared != "none",
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "activation_dropout": c.activation_dropout,
        "pad_token_id": marks.get("pad"),
        "eos_token_id": marks.get("eos"),
        "forced_eos_token_id": marks.get("eos"),
        "bos_token_id": None,
        "decoder_start_token_id": begin,
    }


def _transformer(model: nn.Module) -> Transformer:
    """The model, if it is one that Marian has."""
    if not isinstance(model, Transformer):
        raise UserError(f"a {type(model).__name__} is no Transformer")
    return model


def _computes(model: nn.Module) -> Mapping[str, object]:
    """What the settings of a model come to when it is used, with nothing left unsaid."""
    c = _transformer(model).config
    dropouts = {name for name in type(c).model_fields if name.endswith("dropout")}
    found: dict[str, object] = c.model_dump(exclude=dropouts | {"output_bias", "source"})
    found["hidden"] = c.hidden or 4 * c.width
    return found


def _generation(said: ModelToWrite) -> dict[str, object]:
    """generation_config.json: where outputs begin and end, and how they are searched for."""
    marks, config = said.specials, _write(said)
    pad = marks.get("pad")
    search = said.data.get("search")
    found = search if isinstance(search, Mapping) else {}
    searched = ConfigValues(Path("recipe.toml"), found)
    most = _transformer(said.model).config.context - 2
    written: dict[str, object] = {
        "pad_token_id": pad,
        "eos_token_id": marks.get("eos"),
        "forced_eos_token_id": marks.get("eos"),
        "decoder_start_token_id": config["decoder_start_token_id"],
        "max_length": searched.integer("max_length", most) + 2,
        "num_beams": searched.integer("width", 4),
        "length_penalty": searched.number("alpha", 1.0),
        "no_repeat_ngram_size": searched.integer("no_repeat", 0) or None,
        "min_new_tokens": searched.integer("min_length", 0) or None,
        "early_stopping": _EARLY[searched.string("stop", "exact")],
        "bad_words_ids": None if pad is None or found.get("pads") is True else [[pad]],
        "suppress_tokens": list(token_numbers(searched, "banned")) or None,
    }
    return {name: value for name, value in written.items() if value is not None}


_EARLY: dict[str, object] = {"exact": "never", "estimate": False, "first": True}
"""Their names of our ways to finish a sentence."""

_PLAIN: dict[str, object] = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "is_decoder": False,
}
"""What old configs may say, and how it must be."""

_UNFOLLOWED: dict[str, object] = {
    **NEVER_FOLLOWED,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
}
"""Settings of `generate` that the search here does not have, and what of each says nothing."""

MARIAN_FAMILY = Family(
    name="marian",
    kinds={_ARCHITECTURE: "transformer"},
    read=_read,
    write=_write,
    effective_settings=_computes,
    generation=_generation,
    aliases={
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
    },
)
