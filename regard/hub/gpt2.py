"""GPT-2's checkpoints (Radford et al. 2019)."""

from regard.core.errors import choose
from regard.hub.encoders import ACTIVATIONS, theirs_of
from regard.hub.family import Family, Ours, Plan
from regard.hub.gpts import Names, body_of, computes, generation, read, written
from regard.hub.store import Settings

_NAMES = Names(
    tokens="wte",
    positions="wpe",
    last="ln_f",
    causal="GPT2LMHeadModel",
    bare="GPT2Model",
    classifier="GPT2ForSequenceClassification",
)


def _ours(settings: Settings, name: str) -> Plan:
    """What a config of GPT-2 means here."""
    settings.refuse_unless("scale_attn_weights", True)
    settings.refuse_unless("scale_attn_by_inverse_layer_idx", False)
    settings.refuse_unless("add_cross_attention", False)
    given = settings.word("activation_function", "gelu_new")
    activation = choose("activation_function", given, ACTIVATIONS)
    return read(_NAMES, settings, name, activation, norm="before")


def _theirs(said: Ours) -> dict[str, object]:
    """The config of a GPT-2."""
    c = body_of(said.model).config
    names = {"gelu_tanh": "gelu_new"}
    return {
        "model_type": "gpt2",
        **written(_NAMES, said),
        "n_inner": c.hidden,
        "activation_function": names.get(c.activation) or theirs_of(c.activation),
    }


FAMILY = Family(
    name="gpt2",
    kinds=_NAMES.kinds,
    ours=_ours,
    theirs=_theirs,
    computes=computes,
    generation=generation,
)
