"""OpenAI GPT's checkpoints (Radford et al. 2018): normalised after each sum, nothing at the end."""

from regard.core.errors import choose
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
    tokens="tokens_embed",
    positions="positions_embed",
    last=None,
    causal="OpenAIGPTLMHeadModel",
    bare="OpenAIGPTModel",
    classifier="OpenAIGPTForSequenceClassification",
    context=512,
)

_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
"""Our names of activations by theirs: what is called gelu here is always the approximation."""


def _read(settings: ConfigValues, name: str) -> ModelPlan:
    """What a config of OpenAI GPT means here."""
    activation = choose("afn", settings.string("afn", "gelu"), _ACTIVATIONS)
    return decoder_plan(_NAMES, settings, name, activation, norm="after")


def _write(said: ModelToWrite) -> dict[str, object]:
    """The config of an OpenAI GPT."""
    c = gpt_of(said.model).config
    known = {our: their for their, our in reversed(_ACTIVATIONS.items())}
    # Any other is found out when the config is read again: that is how a family says what it lacks.
    named = known.get(c.activation, "gelu")
    return {"model_type": "openai-gpt", **decoder_config(_NAMES, said), "afn": named}


OPENAI_GPT_FAMILY = Family(
    name="openai-gpt",
    kinds=_NAMES.kinds,
    read=_read,
    write=_write,
    effective_settings=decoder_settings,
    generation=generation_config,
    aliases=GPT_ALIASES,
)
