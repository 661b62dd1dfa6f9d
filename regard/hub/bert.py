"""BERT's checkpoints (Devlin et al. 2019)."""

from regard.core.errors import choose
from regard.hub.encoders import (
    ACTIVATION_NAMES,
    EncoderNames,
    HeadSettings,
    activation_name,
    encoder_architecture,
    encoder_kinds,
    encoder_plan,
    encoder_settings,
    encoding_of,
    head_dropout,
    label_settings,
)
from regard.hub.family import Family, ModelPlan, ModelToWrite
from regard.hub.keys import TensorRow, weight_and_bias
from regard.hub.store import MOST_LAYERS, ConfigValues
from regard.models.text.bert import Encoding


def bert_rows(prefix: str) -> list[TensorRow]:
    """The encoder, as BERT and RoBERTa name its tensors."""
    here, block = f"{prefix}embeddings.", f"{prefix}encoder.layer.{{}}."
    attention = f"{block}attention."
    asked = [f"{attention}self.{each}" for each in ("query", "key", "value")]
    return [
        TensorRow("encoder.embed.table.weight", (f"{here}word_embeddings.weight",)),
        TensorRow("encoder.position.table", (f"{here}position_embeddings.weight",)),
        TensorRow("encoder.segment.table.weight", (f"{here}token_type_embeddings.weight",)),
        *weight_and_bias("encoder.norm", f"{here}LayerNorm"),
        *weight_and_bias("encoder.{}.attention.project", *asked),
        *weight_and_bias("encoder.{}.attention.merge", f"{attention}output.dense"),
        *weight_and_bias("encoder.{}.around_attention.norm", f"{attention}output.LayerNorm"),
        *weight_and_bias("encoder.{}.feedforward.widen", f"{block}intermediate.dense"),
        *weight_and_bias("encoder.{}.feedforward.narrow", f"{block}output.dense"),
        *weight_and_bias("encoder.{}.around_feedforward.norm", f"{block}output.LayerNorm"),
    ]


_NAMES = EncoderNames(
    prefix="bert.",
    encoder=bert_rows("bert."),
    table="bert.embeddings.word_embeddings.weight",
    words=[
        *weight_and_bias("words.dense", "cls.predictions.transform.dense"),
        *weight_and_bias("words.norm", "cls.predictions.transform.LayerNorm"),
    ],
    words_bias="cls.predictions.bias",
    words_output="cls.predictions.decoder",
    pooler="bert.pooler.dense",
    next_sentence="cls.seq_relationship",
    classifier=("bert.pooler.dense", "classifier"),
)


def bert_encoding(settings: ConfigValues) -> Encoding:
    """The settings of an encoder, as BERT and RoBERTa name them."""
    settings.require("is_decoder", False)
    settings.require("add_cross_attention", False)
    settings.require("position_embedding_type", "absolute")
    settings.require("pruned_heads", {}, None)
    return Encoding(
        width=settings.integer("hidden_size"),
        heads=settings.integer("num_attention_heads"),
        layers=settings.integer("num_hidden_layers", most=MOST_LAYERS),
        hidden=settings.integer("intermediate_size"),
        activation=choose("hidden_act", settings.string("hidden_act", "gelu"), ACTIVATION_NAMES),
        context=settings.integer("max_position_embeddings"),
        segments=settings.integer("type_vocab_size", 2, least=1),
        norm_eps=settings.number("layer_norm_eps", 1e-12),
        dropout=settings.number("hidden_dropout_prob", 0.1),
        attention_dropout=settings.number("attention_probs_dropout_prob", 0.1),
    )


def bert_heads(settings: ConfigValues) -> HeadSettings:
    """Dropouts of the layers on top."""
    hidden = settings.number("hidden_dropout_prob", 0.1)
    chosen = settings.number("classifier_dropout", hidden)
    return HeadSettings(classifier_dropout=chosen, tagger_dropout=chosen)


def _read(settings: ConfigValues, name: str) -> ModelPlan:
    """What a config of BERT means here."""
    return encoder_plan(_NAMES, settings, name, bert_encoding(settings), bert_heads(settings))


def bert_config(written: ModelToWrite) -> dict[str, object]:
    """What BERT and RoBERTa write alike."""
    c = encoding_of(written.model)
    return {
        "vocab_size": written.sizes["vocabulary"],
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "num_hidden_layers": c.layers,
        "intermediate_size": c.hidden or 4 * c.width,
        "hidden_act": activation_name(c.activation),
        "type_vocab_size": c.segments,
        "layer_norm_eps": c.norm_eps,
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "classifier_dropout": head_dropout(written.model),
        "tie_word_embeddings": encoder_settings(written.model).get("tied", True),
        **label_settings(written),
    }


def _write(written: ModelToWrite) -> dict[str, object]:
    """The config of a BERT."""
    return {
        "architectures": [encoder_architecture("Bert", written)],
        "model_type": "bert",
        **bert_config(written),
        "max_position_embeddings": encoding_of(written.model).context,
        "pad_token_id": written.specials.get("pad", 0),
    }


BERT_FAMILY = Family(
    name="bert",
    kinds=encoder_kinds("Bert", follows=True),
    read=_read,
    write=_write,
    effective_settings=encoder_settings,
)
