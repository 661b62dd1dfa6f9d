"""RoBERTa's checkpoints (Liu et al. 2019): BERT whose positions count what is real.

The first two rows of its table of positions belong to the padding token and to nothing.
"""

from dataclasses import replace

from regard.core.errors import UserError
from regard.hub import bert
from regard.hub.encoders import Names, architecture, computes, encoding_of, kinds, plan
from regard.hub.family import Family, Ours, Plan
from regard.hub.keys import layer
from regard.hub.store import Settings

_NAMES = Names(
    prefix="roberta.",
    encoder=bert.rows("roberta."),
    table="roberta.embeddings.word_embeddings.weight",
    words=[
        *layer("words.dense", "lm_head.dense"),
        *layer("words.norm", "lm_head.layer_norm"),
    ],
    words_bias="lm_head.bias",
    words_output="lm_head.decoder",
    pooler="roberta.pooler.dense",
    classifier=("classifier.dense", "classifier.out_proj"),
)


def _ours(settings: Settings, name: str) -> Plan:
    """What a config of RoBERTa means here."""
    pad = settings.whole("pad_token_id", 1)
    rows = settings.whole("max_position_embeddings")
    if rows <= pad + 1:
        raise UserError(
            f"{settings.path}: max_position_embeddings={rows} leaves no position after "
            f"pad_token_id={pad}"
        )
    update = {"uncounted": pad, "context": rows - pad - 1}
    encoding = bert.encoding(settings).model_copy(update=update)
    # The words head has gelu, whatever the layers have.
    heads = replace(bert.heads(settings), words_activation="gelu")
    return plan(_NAMES, settings, name, encoding, heads)


def _theirs(written: Ours) -> dict[str, object]:
    """The config of a RoBERTa."""
    c = encoding_of(written.model)
    pad = c.uncounted or 0
    return {
        "architectures": [architecture("Roberta", written)],
        "model_type": "roberta",
        **bert.shared(written),
        "max_position_embeddings": c.context + pad + 1,
        "pad_token_id": pad,
        "bos_token_id": written.specials.get("bos", 0),
        "eos_token_id": written.specials.get("eos", 2),
    }


FAMILY = Family(
    name="roberta",
    kinds=kinds("Roberta", follows=False),
    ours=_ours,
    theirs=_theirs,
    computes=computes,
)
