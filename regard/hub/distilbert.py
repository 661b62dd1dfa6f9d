"""DistilBERT's checkpoints (Sanh et al. 2019): BERT without segments, in half as many layers."""

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

_HERE, _BLOCK = "distilbert.embeddings.", "distilbert.transformer.layer.{}."
_ATTENTION = _BLOCK + "attention."

_NAMES = EncoderNames(
    prefix="distilbert.",
    encoder=[
        TensorRow("encoder.embed.table.weight", (_HERE + "word_embeddings.weight",)),
        TensorRow("encoder.position.table", (_HERE + "position_embeddings.weight",)),
        *weight_and_bias("encoder.norm", _HERE + "LayerNorm"),
        *weight_and_bias(
            "encoder.{}.attention.project",
            *(f"{_ATTENTION}{each}_lin" for each in ("q", "k", "v")),
        ),
        *weight_and_bias("encoder.{}.attention.merge", _ATTENTION + "out_lin"),
        *weight_and_bias("encoder.{}.around_attention.norm", _BLOCK + "sa_layer_norm"),
        *weight_and_bias("encoder.{}.feedforward.widen", _BLOCK + "ffn.lin1"),
        *weight_and_bias("encoder.{}.feedforward.narrow", _BLOCK + "ffn.lin2"),
        *weight_and_bias("encoder.{}.around_feedforward.norm", _BLOCK + "output_layer_norm"),
    ],
    table=_HERE + "word_embeddings.weight",
    words=[
        *weight_and_bias("words.dense", "vocab_transform"),
        *weight_and_bias("words.norm", "vocab_layer_norm"),
    ],
    words_bias="vocab_projector.bias",
    words_output="vocab_projector",
    classifier=("pre_classifier", "classifier"),
)


def _read(settings: ConfigValues, name: str) -> ModelPlan:
    """What a config of DistilBERT means here; sinusoids, if it had any, are in its table."""
    settings.require("pruned_heads", {}, None)
    dropout = settings.number("dropout", 0.1)
    encoding = Encoding(
        width=settings.integer("dim"),
        heads=settings.integer("n_heads"),
        layers=settings.integer("n_layers", most=MOST_LAYERS),
        hidden=settings.integer("hidden_dim"),
        activation=choose("activation", settings.string("activation", "gelu"), ACTIVATION_NAMES),
        context=settings.integer("max_position_embeddings"),
        segments=0,
        dropout=dropout,
        attention_dropout=settings.number("attention_dropout", 0.1),
    )
    heads = HeadSettings(
        classifier_dropout=settings.number("seq_classif_dropout", 0.2),
        classifier_activation="relu",
        tagger_dropout=dropout,
        reader_dropout=settings.number("qa_dropout", 0.1),
    )
    return encoder_plan(_NAMES, settings, name, encoding, heads)


def _write(written: ModelToWrite) -> dict[str, object]:
    """The config of a DistilBERT."""
    c = encoding_of(written.model)
    return {
        "architectures": [encoder_architecture("DistilBert", written)],
        "model_type": "distilbert",
        "vocab_size": written.sizes["vocabulary"],
        "dim": c.width,
        "n_heads": c.heads,
        "n_layers": c.layers,
        "hidden_dim": c.hidden or 4 * c.width,
        "activation": activation_name(c.activation),
        "max_position_embeddings": c.context,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "seq_classif_dropout": head_dropout(written.model) or 0.0,
        "qa_dropout": head_dropout(written.model) or 0.0,
        "tie_word_embeddings": encoder_settings(written.model).get("tied", True),
        "pad_token_id": written.specials.get("pad", 0),
        **label_settings(written),
    }


DISTILBERT_FAMILY = Family(
    name="distilbert",
    kinds=encoder_kinds("DistilBert", follows=False),
    read=_read,
    write=_write,
    effective_settings=encoder_settings,
    aliases={
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    },
)
