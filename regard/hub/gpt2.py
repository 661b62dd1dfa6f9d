"""GPT-2's checkpoints (Radford et al. 2019)."""

from regard.core.errors import choose
from regard.hub.encoders import ACTIVATION_NAMES, activation_name
from regard.hub.family import Family, ModelPlan, ModelToWrite
from regard.hub.gpts import (
    GPT_ALIASES,
    DecoderNames,
    decoder_config,
    decoder_plan,
    decoder_settings,
    generation_config,
    gpt_of,
)
from regard.hub.store import ConfigValues

_NAMES = DecoderNames(
    tokens="wte",
    positions="wpe",
    last="ln_f",
    causal="GPT2LMHeadModel",
    bare="GPT2Model",
    classifier="GPT2ForSequenceClassification",
    context=1024,
    hidden="n_inner",
)


def _read(settings: ConfigValues, name: str) -> ModelPlan:
    """What a config of GPT-2 means here."""
    settings.require("scale_attn_weights", True)
    settings.require("scale_attn_by_inverse_layer_idx", False)
    settings.require("add_cross_attention", False)
    given = settings.string("activation_function", "gelu_new")
    activation = choose("activation_function", given, ACTIVATION_NAMES)
    return decoder_plan(_NAMES, settings, name, activation, norm="before")


def _write(said: ModelToWrite) -> dict[str, object]:
    """The config of a GPT-2."""
    c = gpt_of(said.model).config
    names = {"gelu_tanh": "gelu_new"}
    return {
        "model_type": "gpt2",
        **decoder_config(_NAMES, said),
        "n_inner": c.hidden,
        "activation_function": names.get(c.activation) or activation_name(c.activation),
    }


GPT2_FAMILY = Family(
    name="gpt2",
    kinds=_NAMES.kinds,
    read=_read,
    write=_write,
    effective_settings=decoder_settings,
    generation=generation_config,
    aliases=GPT_ALIASES,
)
