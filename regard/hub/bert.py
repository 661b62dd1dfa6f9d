"""BERT's checkpoints (Devlin et al. 2019)."""

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


def rows(prefix: str) -> list[Row]:
    """The encoder, as BERT and RoBERTa name its tensors."""
    here, block = f"{prefix}embeddings.", f"{prefix}encoder.layer.{{}}."
    attention = f"{block}attention."
    asked = [f"{attention}self.{each}" for each in ("query", "key", "value")]
    return [
        Row("encoder.embed.table.weight", (f"{here}word_embeddings.weight",)),
        Row("encoder.position.table", (f"{here}position_embeddings.weight",)),
        Row("encoder.segment.table.weight", (f"{here}token_type_embeddings.weight",)),
        *layer("encoder.norm", f"{here}LayerNorm"),
        *layer("encoder.{}.attention.project", *asked),
        *layer("encoder.{}.attention.merge", f"{attention}output.dense"),
        *layer("encoder.{}.around_attention.norm", f"{attention}output.LayerNorm"),
        *layer("encoder.{}.feedforward.widen", f"{block}intermediate.dense"),
        *layer("encoder.{}.feedforward.narrow", f"{block}output.dense"),
        *layer("encoder.{}.around_feedforward.norm", f"{block}output.LayerNorm"),
    ]


_NAMES = Names(
    prefix="bert.",
    encoder=rows("bert."),
    table="bert.embeddings.word_embeddings.weight",
    words=[
        *layer("words.dense", "cls.predictions.transform.dense"),
        *layer("words.norm", "cls.predictions.transform.LayerNorm"),
    ],
    words_bias="cls.predictions.bias",
    words_output="cls.predictions.decoder",
    pooler="bert.pooler.dense",
    next_sentence="cls.seq_relationship",
    classifier=("bert.pooler.dense", "classifier"),
)


def encoding(settings: Settings) -> Encoding:
    """The settings of an encoder, as BERT and RoBERTa name them."""
    settings.refuse_unless("is_decoder", False)
    settings.refuse_unless("add_cross_attention", False)
    settings.refuse_unless("position_embedding_type", "absolute")
    settings.refuse_unless("pruned_heads", {}, None)
    return Encoding(
        width=settings.whole("hidden_size"),
        heads=settings.whole("num_attention_heads"),
        layers=settings.whole("num_hidden_layers", most=MOST_LAYERS),
        hidden=settings.whole("intermediate_size"),
        activation=choose("hidden_act", settings.word("hidden_act", "gelu"), ACTIVATIONS),
        context=settings.whole("max_position_embeddings"),
        segments=settings.whole("type_vocab_size", 2, least=1),
        norm_eps=settings.number("layer_norm_eps", 1e-12),
        dropout=settings.number("hidden_dropout_prob", 0.1),
        attention_dropout=settings.number("attention_probs_dropout_prob", 0.1),
    )


def heads(settings: Settings) -> Heads:
    """Dropouts of the layers on top."""
    hidden = settings.number("hidden_dropout_prob", 0.1)
    chosen = settings.number("classifier_dropout", hidden)
    return Heads(classifier_dropout=chosen, tagger_dropout=chosen)


def _ours(settings: Settings, name: str) -> Plan:
    """What a config of BERT means here."""
    return plan(_NAMES, settings, name, encoding(settings), heads(settings))


def shared(written: Ours) -> dict[str, object]:
    """What BERT and RoBERTa write alike."""
    c = encoding_of(written.model)
    return {
        "vocab_size": written.sizes["vocabulary"],
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "num_hidden_layers": c.layers,
        "intermediate_size": c.hidden or 4 * c.width,
        "hidden_act": theirs_of(c.activation),
        "type_vocab_size": c.segments,
        "layer_norm_eps": c.norm_eps,
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "classifier_dropout": head_dropout(written.model),
        "tie_word_embeddings": computes(written.model).get("tied", True),
        **labelled(written.labels),
    }


def _theirs(written: Ours) -> dict[str, object]:
    """The config of a BERT."""
    return {
        "architectures": [architecture("Bert", written)],
        "model_type": "bert",
        **shared(written),
        "max_position_embeddings": encoding_of(written.model).context,
        "pad_token_id": written.specials.get("pad", 0),
    }


FAMILY = Family(
    name="bert", kinds=kinds("Bert", follows=True), ours=_ours, theirs=_theirs, computes=computes
)
