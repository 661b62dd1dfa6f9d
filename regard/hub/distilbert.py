"""DistilBERT's checkpoints (Sanh et al. 2019): BERT without segments, in half as many layers."""

from regard.core.errors import choose
from regard.hub.encoders import (
    ACTIVATIONS,
    Heads,
    Names,
    architecture,
    computes,
    encoding_of,
    head_dropout,
    kinds,
    labelled,
    plan,
    theirs_of,
)
from regard.hub.family import Family, Ours, Plan
from regard.hub.keys import Row, layer
from regard.hub.store import MOST_LAYERS, Settings
from regard.models.text.bert import Encoding

_HERE, _BLOCK = "distilbert.embeddings.", "distilbert.transformer.layer.{}."
_ATTENTION = _BLOCK + "attention."

_NAMES = Names(
    prefix="distilbert.",
    encoder=[
        Row("encoder.embed.table.weight", (_HERE + "word_embeddings.weight",)),
        Row("encoder.position.table", (_HERE + "position_embeddings.weight",)),
        *layer("encoder.norm", _HERE + "LayerNorm"),
        *layer(
            "encoder.{}.attention.project",
            *(f"{_ATTENTION}{each}_lin" for each in ("q", "k", "v")),
        ),
        *layer("encoder.{}.attention.merge", _ATTENTION + "out_lin"),
        *layer("encoder.{}.around_attention.norm", _BLOCK + "sa_layer_norm"),
        *layer("encoder.{}.feedforward.widen", _BLOCK + "ffn.lin1"),
        *layer("encoder.{}.feedforward.narrow", _BLOCK + "ffn.lin2"),
        *layer("encoder.{}.around_feedforward.norm", _BLOCK + "output_layer_norm"),
    ],
    table=_HERE + "word_embeddings.weight",
    words=[
        *layer("words.dense", "vocab_transform"),
        *layer("words.norm", "vocab_layer_norm"),
    ],
    words_bias="vocab_projector.bias",
    words_output="vocab_projector",
    classifier=("pre_classifier", "classifier"),
)


def _ours(settings: Settings, name: str) -> Plan:
    """What a config of DistilBERT means here; sinusoids, if it had any, are in its table."""
    settings.refuse_unless("pruned_heads", {}, None)
    dropout = settings.number("dropout", 0.1)
    encoding = Encoding(
        width=settings.whole("dim"),
        heads=settings.whole("n_heads"),
        layers=settings.whole("n_layers", most=MOST_LAYERS),
        hidden=settings.whole("hidden_dim"),
        activation=choose("activation", settings.word("activation", "gelu"), ACTIVATIONS),
        context=settings.whole("max_position_embeddings"),
        segments=0,
        dropout=dropout,
        attention_dropout=settings.number("attention_dropout", 0.1),
    )
    heads = Heads(
        classifier_dropout=settings.number("seq_classif_dropout", 0.2),
        classifier_activation="relu",
        tagger_dropout=dropout,
        reader_dropout=settings.number("qa_dropout", 0.1),
    )
    return plan(_NAMES, settings, name, encoding, heads)


def _theirs(written: Ours) -> dict[str, object]:
    """The config of a DistilBERT."""
    c = encoding_of(written.model)
    return {
        "architectures": [architecture("DistilBert", written)],
        "model_type": "distilbert",
        "vocab_size": written.sizes["vocabulary"],
        "dim": c.width,
        "n_heads": c.heads,
        "n_layers": c.layers,
        "hidden_dim": c.hidden or 4 * c.width,
        "activation": theirs_of(c.activation),
        "max_position_embeddings": c.context,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "seq_classif_dropout": head_dropout(written.model) or 0.0,
        "qa_dropout": head_dropout(written.model) or 0.0,
        "tie_word_embeddings": computes(written.model).get("tied", True),
        "pad_token_id": written.specials.get("pad", 0),
        **labelled(written.labels),
    }


FAMILY = Family(
    name="distilbert",
    kinds=kinds("DistilBert", follows=False),
    ours=_ours,
    theirs=_theirs,
    computes=computes,
)
