"""OpenAI GPT's checkpoints (Radford et al. 2018): normalised after each sum, nothing at the end."""

from regard.core.errors import choose
from regard.hub.family import Family, Ours, Plan
from regard.hub.gpts import Names, body_of, computes, generation, read, written
from regard.hub.store import Settings

_NAMES = Names(
    tokens="tokens_embed",
    positions="positions_embed",
    last=None,
    causal="OpenAIGPTLMHeadModel",
    bare="OpenAIGPTModel",
    classifier="OpenAIGPTForSequenceClassification",
)

_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
"""Our names of activations by theirs: what is called gelu here is always the approximation."""


def _ours(settings: Settings, name: str) -> Plan:
    """What a config of OpenAI GPT means here."""
    activation = choose("afn", settings.word("afn", "gelu"), _ACTIVATIONS)
    return read(_NAMES, settings, name, activation, norm="after")


def _theirs(said: Ours) -> dict[str, object]:
    """The config of an OpenAI GPT."""
    c = body_of(said.model).config
    known = {our: their for their, our in reversed(_ACTIVATIONS.items())}
    # Any other is found out when the config is read again: that is how a family says what it lacks.
    named = known.get(c.activation, "gelu")
    return {"model_type": "openai-gpt", **written(_NAMES, said), "afn": named}


FAMILY = Family(
    name="openai-gpt",
    kinds=_NAMES.kinds,
    ours=_ours,
    theirs=_theirs,
    computes=computes,
    generation=generation,
)
