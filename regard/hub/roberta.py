"""RoBERTa's checkpoints (Liu et al. 2019): BERT whose positions count what is real.

XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020) are the same model under other
names, with other vocabularies.

The first two rows of its table of positions belong to the padding token and to nothing.
"""

from dataclasses import replace

from regard.core.errors import UserError
from regard.hub import bert
from regard.hub.encoders import (
    EncoderNames,
    encoder_architecture,
    encoder_kinds,
    encoder_plan,
    encoder_settings,
    encoding_of,
)
from regard.hub.family import Family, ModelPlan, ModelToWrite
from regard.hub.keys import weight_and_bias
from regard.hub.store import ConfigValues

_NAMES = EncoderNames(
    prefix="roberta.",
    encoder=bert.bert_rows("roberta."),
    table="roberta.embeddings.word_embeddings.weight",
    words=[
        *weight_and_bias("words.dense", "lm_head.dense"),
        *weight_and_bias("words.norm", "lm_head.layer_norm"),
    ],
    words_bias="lm_head.bias",
    words_output="lm_head.decoder",
    pooler="roberta.pooler.dense",
    classifier=("classifier.dense", "classifier.out_proj"),
)


def _read(settings: ConfigValues, name: str) -> ModelPlan:
    """What a config of RoBERTa means here."""
    pad = settings.integer("pad_token_id", 1)
    rows = settings.integer("max_position_embeddings")
    if rows <= pad + 1:
        raise UserError(
            f"{settings.path}: max_position_embeddings={rows} leaves no position after "
            f"pad_token_id={pad}"
        )
    update = {"uncounted": pad, "context": rows - pad - 1}
    encoding = bert.bert_encoding(settings).model_copy(update=update)
    # The words head has gelu, whatever the layers have.
    heads = replace(bert.bert_heads(settings), words_activation="gelu")
    return encoder_plan(_NAMES, settings, name, encoding, heads)


def _config(written: ModelToWrite, model_type: str, prefix: str) -> dict[str, object]:
    """The config of a RoBERTa, or of a model that is the same."""
    c = encoding_of(written.model)
    pad = c.uncounted or 0
    return {
        "architectures": [encoder_architecture(prefix, written)],
        "model_type": model_type,
        **bert.bert_config(written),
        "max_position_embeddings": c.context + pad + 1,
        "pad_token_id": pad,
        "bos_token_id": written.specials.get("bos", 0),
        "eos_token_id": written.specials.get("eos", 2),
    }


def _family(model_type: str, prefix: str) -> Family:
    """A family of this model type, whose architectures begin with `prefix`."""
    return Family(
        name=model_type,
        kinds=encoder_kinds(prefix, follows=False),
        read=_read,
        write=lambda written: _config(written, model_type, prefix),
        effective_settings=encoder_settings,
    )


ROBERTA_FAMILY = _family("roberta", "Roberta")
XLM_ROBERTA_FAMILY = _family("xlm-roberta", "XLMRoberta")
CAMEMBERT_FAMILY = _family("camembert", "Camembert")
