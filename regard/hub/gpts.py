"""What OpenAI GPT and GPT-2 have in common: layers, heads, and how both are written.

Their matrices are stored as x W and transposed on the way. A family is `DecoderNames` and its own
names for the settings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.hub.encoders import class_problem, label_settings
from regard.hub.family import ModelPlan, ModelToWrite
from regard.hub.generation import (
    NEVER_FOLLOWED,
    generation_settings,
    token_numbers,
    unfollowed,
)
from regard.hub.keys import TensorRow, TensorTable, weight_and_bias
from regard.hub.store import MOST_LAYERS, ConfigValues
from regard.models.language.gpt import GPT
from regard.models.text.gpt_classifier import GPTClassifier

_PREFIX = "transformer."


@dataclass(frozen=True, kw_only=True)
class DecoderNames:
    """Where a family has its tensors, and what its architectures are called."""

    tokens: str
    positions: str
    last: str | None
    """The norm behind the last layer, if there is one."""
    causal: str
    """The architecture that guesses the next token."""
    bare: str
    """The architecture that has no head."""
    classifier: str
    context: int
    """How many positions there are where a config does not say."""
    hidden: str | None = None
    """The setting of the width of feed-forward layers; None if it is always four times theirs."""

    @property
    def kinds(self) -> dict[str, str]:
        """Names in MODELS by architecture."""
        return {self.causal: "gpt", self.bare: "gpt", self.classifier: "gpt_classifier"}


def _rows(names: DecoderNames, body: str, *, tied: bool) -> list[TensorRow]:
    """The tensors of a GPT that is called `body` here."""
    block, ours = f"{_PREFIX}h.{{}}.", f"{body}layers.{{}}."
    last = [] if names.last is None else weight_and_bias(f"{body}norm", f"{_PREFIX}{names.last}")
    output = [] if tied else [TensorRow(f"{body}output.weight", ("lm_head.weight",))]
    turned = {
        "attention.project": "attn.c_attn",
        "attention.merge": "attn.c_proj",
        "feedforward.widen": "mlp.c_fc",
        "feedforward.narrow": "mlp.c_proj",
    }
    return [
        TensorRow(f"{body}embed.table.weight", (f"{_PREFIX}{names.tokens}.weight",)),
        TensorRow(f"{body}position.table", (f"{_PREFIX}{names.positions}.weight",)),
        *(
            row
            for one, other in turned.items()
            for row in weight_and_bias(ours + one, block + other, transposed=True)
        ),
        *weight_and_bias(f"{ours}around_attention.norm", f"{block}ln_1"),
        *weight_and_bias(f"{ours}around_feedforward.norm", f"{block}ln_2"),
        *last,
        *output,
    ]


def decoder_plan(
    names: DecoderNames, settings: ConfigValues, architecture: str, activation: str, norm: str
) -> ModelPlan:
    """What a config means here."""
    width = settings.integer("n_embd")
    hidden = 4 * width
    if names.hidden is not None:
        hidden = settings.integer(names.hidden, hidden, least=1)
    has_words = architecture == names.causal
    tied = settings.boolean("tie_word_embeddings", True) or not has_words
    body: dict[str, object] = {
        "width": width,
        "heads": settings.integer("n_head"),
        "layers": settings.integer("n_layer", most=MOST_LAYERS),
        "context": settings.integer("n_positions", names.context),
        "hidden": hidden,
        "activation": activation,
        "norm": norm,
        "tied": tied,
        "norm_eps": settings.number("layer_norm_epsilon", 1e-5),
        "dropout": settings.number("resid_pdrop", 0.1),
        "embedding_dropout": settings.number("embd_pdrop", 0.1),
        "attention_dropout": settings.number("attn_pdrop", 0.1),
    }
    made = GPT.Config.model_validate(body)
    sizes = {"vocabulary": settings.integer("vocab_size", least=1)}
    if architecture != names.classifier:
        said = generation_settings(settings)
        ends = token_numbers(said, "eos_token_id")
        told = {**_UNFOLLOWED, "max_length": made.context}
        notes = unfollowed(said, told, "; regard generate has options of its own")
        table = TensorTable(
            _rows(names, "", tied=tied),
            layers=made.layers,
            prefix=_PREFIX,
            bare=architecture == names.bare,
            tied={"lm_head.weight": f"{_PREFIX}{names.tokens}.weight"} if tied else {},
            ignored=_TRIANGLES,
        )
        return ModelPlan(
            kind="gpt",
            task="language_model",
            model=made,
            sizes=sizes,
            table=table,
            data={"stop_at": [each for each in ends if each < sizes["vocabulary"]]},
            notes=tuple(notes),
        )
    labels = settings.labels()
    data, of_problem = class_problem(settings)
    padding = settings.integer("pad_token_id") if settings.has("pad_token_id") else None
    model: Config = GPTClassifier.Config(body=made, dropout=0.0, padding=padding)
    return ModelPlan(
        kind="gpt_classifier",
        task="classify",
        model=model,
        sizes={**sizes, "classes": len(labels)},
        table=TensorTable(
            [*_rows(names, "body.", tied=True), TensorRow("output.weight", ("score.weight",))],
            layers=made.layers,
            prefix=_PREFIX,
            ignored=_TRIANGLES,
        ),
        labels=labels,
        data=data,
        notes=of_problem,
    )


def gpt_of(model: nn.Module) -> GPT:
    """The GPT that a model is, or has."""
    found = model.body if isinstance(model, GPTClassifier) else model
    if not isinstance(found, GPT):
        raise UserError(f"a {type(model).__name__} is no GPT")
    return found


def decoder_config(names: DecoderNames, ours: ModelToWrite) -> dict[str, object]:
    """A config, but for the activation and what only one family has."""
    c = gpt_of(ours.model).config
    classifies = isinstance(ours.model, GPTClassifier)
    said = ours.specials
    held = ours.model.config.padding if isinstance(ours.model, GPTClassifier) else None
    padding = {} if held is None else {"pad_token_id": held}
    return {
        "architectures": [names.classifier if classifies else names.causal],
        "vocab_size": ours.sizes["vocabulary"],
        "n_embd": c.width,
        "n_head": c.heads,
        "n_layer": c.layers,
        "n_positions": c.context,
        "layer_norm_epsilon": c.norm_eps,
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout if c.embedding_dropout is None else c.embedding_dropout,
        "attn_pdrop": c.dropout if c.attention_dropout is None else c.attention_dropout,
        "tie_word_embeddings": c.tied,
        **{f"{role}_token_id": said.get(role) for role in ("bos", "eos", "pad")},
        **padding,
        **label_settings(ours),
    }


def decoder_settings(model: nn.Module) -> Mapping[str, object]:
    """What the settings of a model come to when it is used, with nothing left unsaid."""
    c = gpt_of(model).config
    found: dict[str, object] = c.model_dump(
        exclude={"dropout", "embedding_dropout", "attention_dropout", "recompute", "source"}
    )
    found["hidden"] = c.hidden or 4 * c.width
    found["key_heads"] = c.key_heads or c.heads
    if isinstance(model, GPTClassifier):
        found["bias of classes"] = model.config.bias
    return found


def generation_config(ours: ModelToWrite) -> dict[str, object]:
    """generation_config.json: where texts begin and end, and how long they may be."""
    if isinstance(ours.model, GPTClassifier):
        return {}
    said: Sequence[str] = ("bos", "eos", "pad")
    ends = token_numbers(ConfigValues(Path("recipe.toml"), ours.data), "stop_at")
    return {
        **{f"{role}_token_id": ours.specials[role] for role in said if role in ours.specials},
        **({"eos_token_id": list(ends) if len(ends) > 1 else ends[0]} if ends else {}),
        "max_length": gpt_of(ours.model).context_limit,
    }


GPT_ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
"""Other names of settings, which transformers takes too."""

_UNFOLLOWED: dict[str, object] = {
    **NEVER_FOLLOWED,
    "num_beams": 1,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "suppress_tokens": None,
    "min_length": 0,
    "min_new_tokens": 0,
    "max_new_tokens": None,
    "forced_eos_token_id": None,
}
"""Settings of `generate` that are those of a request here, and what of each says nothing."""

_TRIANGLES = ("*.attn.bias", "*.attn.masked_bias")
"""Masks that old files hold, though anyone can draw them."""
