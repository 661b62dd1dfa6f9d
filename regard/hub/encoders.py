"""What BERT, RoBERTa and DistilBERT have in common: the heads, and the settings that choose one.

A family is `EncoderNames`, the names of its tensors, and its own names for an encoder's settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from regard.core.config import Config
from regard.core.errors import UserError
from regard.hub.family import ModelPlan, ModelToWrite
from regard.hub.keys import TensorRow, TensorTable, weight_and_bias
from regard.hub.store import ConfigValues
from regard.models.text.bert import BERT, Encoding
from regard.models.text.bert_classifier import BERTClassifier
from regard.models.text.bert_reader import BERTReader
from regard.models.text.bert_tagger import BERTTagger

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_10": "clipped_gelu",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "relu2": "squared_relu",
    "relu6": "relu6",
    "leaky_relu": "leaky_relu",
    "hardswish": "hardswish",
    "mish": "mish",
    "laplace": "laplace",
    "sqrtsoftplus": "root_softplus",
    "linear": "linear",
}
"""Our names of activations by theirs; the first of several is what we write. All that transformers
has but prelu and xielu, which have weights of their own."""

_PROBLEMS = {
    "single_label_classification": "single_label",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
"""Our names of `problem_type`."""

_OLD = ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias"))
"""How normalisations were called in the first files."""


@dataclass(frozen=True, kw_only=True)
class EncoderNames:
    """Where a family has its tensors."""

    prefix: str
    encoder: Sequence[TensorRow]
    words: Sequence[TensorRow]
    """Of the words head, all but its output layer."""
    words_bias: str
    words_output: str
    """The output layer, whose weight is the table of tokens where the two are tied."""
    table: str
    """The table of tokens."""
    pooler: str | None = None
    """The layer over the first state, in models that are not classifiers."""
    next_sentence: str | None = None
    classifier: tuple[str, str] = ("", "")
    """The two layers of classifiers."""
    tagger: str = "classifier"
    reader: str = "qa_outputs"


@dataclass(frozen=True, kw_only=True)
class HeadSettings:
    """What a config says of the layers on top."""

    classifier_dropout: float
    classifier_activation: Literal["tanh", "relu"] = "tanh"
    tagger_dropout: float
    reader_dropout: float = 0.0
    words_activation: str | None = None


def encoder_plan(
    names: EncoderNames,
    settings: ConfigValues,
    architecture: str,
    encoding: Encoding,
    heads: HeadSettings,
) -> ModelPlan:
    """What an architecture with these settings is here."""
    what = _suffix(architecture)
    if what in _BERTS:
        return _bert_plan(names, settings, what, encoding, heads)
    sizes, labels = {"vocabulary": settings.integer("vocab_size", least=1)}, settings.labels()
    model: Config
    data: dict[str, object] = {}
    notes: tuple[str, ...] = ()
    if what == "ForQuestionAnswering":
        if len(labels) != 2:
            raise UserError(f"{settings.path}: a reader has 2 scores, not num_labels={len(labels)}")
        kind, task, rows = "bert_reader", "answer", weight_and_bias("output", names.reader)
        model = BERTReader.Config(encoder=encoding, dropout=heads.reader_dropout)
        labels = ()
    elif what == "ForTokenClassification":
        kind, task, rows = "bert_tagger", "tag", weight_and_bias("output", names.tagger)
        model = BERTTagger.Config(encoder=encoding, dropout=heads.tagger_dropout)
    else:
        data, notes = class_problem(settings)
        first, last = names.classifier
        kind, task = "bert_classifier", "classify"
        rows = [*weight_and_bias("pooler.dense", first), *weight_and_bias("output", last)]
        model = BERTClassifier.Config(
            encoder=encoding,
            activation=heads.classifier_activation,
            dropout=heads.classifier_dropout,
        )
    if labels:
        sizes["classes"] = len(labels)
    table = TensorTable(
        [*names.encoder, *rows],
        layers=encoding.layers,
        prefix=names.prefix,
        ignored=_COUNTED,
        old=_OLD,
    )
    return ModelPlan(
        kind=kind,
        task=task,
        model=model,
        sizes=sizes,
        table=table,
        labels=labels,
        data=data,
        notes=notes,
    )


def class_problem(settings: ConfigValues) -> tuple[dict[str, object], tuple[str, ...]]:
    """What the scores of a classifier stand for, as `[data]` has it, and what there is to tell."""
    settings.require("problem_type", None, *_PROBLEMS)
    if not settings.has("problem_type"):
        if len(settings.labels()) > 1:
            return {"problem": "single_label"}, ()
        note = (
            "num_labels=1 without problem_type: the prediction is the model's number; pipelines of "
            "transformers show its sigmoid, and so does --set data.problem=multi_label"
        )
        return {"problem": "regression"}, (note,)
    problem = _PROBLEMS[settings.string("problem_type")]
    if problem == "single_label" and len(settings.labels()) < 2:
        raise UserError(
            f"{settings.path}: one label with problem_type=single_label_classification leaves "
            "nothing to choose from; a number is problem_type=regression"
        )
    return {"problem": problem}, ()


def _bert_plan(
    names: EncoderNames, settings: ConfigValues, what: str, encoding: Encoding, heads: HeadSettings
) -> ModelPlan:
    """The same for those without a task of their own: guessing words, and the encoder alone."""
    words, follows = _BERTS[what]
    pooled = follows or (what == "Model" and names.pooler is not None)
    tied = settings.boolean("tie_word_embeddings", True)
    rows = list(names.encoder)
    twice: dict[str, str] = {}
    if words:
        rows += names.words
        rows += [TensorRow("words.bias", (names.words_bias,))] if tied else _untied(names)
        twice = {names.words_output + ".weight": names.table} if tied else {}
        if tied and names.words_bias != names.words_output + ".bias":
            twice[names.words_output + ".bias"] = names.words_bias
    if pooled and names.pooler is not None:
        rows += weight_and_bias("pooler.dense", names.pooler)
    if follows and names.next_sentence is not None:
        rows += weight_and_bias("next_sentence", names.next_sentence)
    made = ModelPlan(
        kind="bert",
        task="masked_lm",
        model=BERT.Config(
            encoder=encoding,
            words=words,
            words_activation=heads.words_activation if words else None,
            tied=tied or not words,
            pooled=pooled,
            next_sentence=follows,
        ),
        sizes={"vocabulary": settings.integer("vocab_size", least=1)},
        table=TensorTable(
            rows,
            layers=encoding.layers,
            prefix=names.prefix,
            bare=what == "Model",
            tied=twice,
            ignored=_COUNTED if tied else (*_COUNTED, names.words_bias),
            old=_OLD,
        ),
    )
    if what != "Model" or not pooled:
        return made
    bare = replace(names, pooler=None)  # some files of encoders alone were saved without it
    return replace(made, fallback=_bert_plan(bare, settings, what, encoding, heads))


def _untied(names: EncoderNames) -> list[TensorRow]:
    """An output layer of its own, with the bias that counts then."""
    return [
        TensorRow("words.output.weight", (names.words_output + ".weight",)),
        TensorRow("words.bias", (names.words_output + ".bias",)),
    ]


def _suffix(architecture: str) -> str:
    """The part of an architecture's name that says which heads it has.

    >>> _suffix("RobertaForMaskedLM"), _suffix("BertModel")
    ('ForMaskedLM', 'Model')
    """
    return next(each for each in (*_BERTS, *_TASKED.values()) if architecture.endswith(each))


def encoder_kinds(name: str, *, follows: bool) -> dict[str, str]:
    """Names in MODELS by the architectures of a family; some know what sentences follow."""
    berts = [each for each, (_, asked) in _BERTS.items() if follows or not asked]
    tasked = {f"{name}{what}": kind for kind, what in _TASKED.items()}
    return {**{f"{name}{each}": "bert" for each in berts}, **tasked}


def encoder_architecture(name: str, ours: ModelToWrite) -> str:
    """The architecture of a family that has the heads of a model."""
    model = ours.model
    if not isinstance(model, BERT):
        return f"{name}{_TASKED[ours.kind]}"
    heads = (model.config.words, model.config.next_sentence)
    return name + next(what for what, has in _BERTS.items() if has == heads)


def encoding_of(model: nn.Module) -> Encoding:
    """The settings of a model's encoder."""
    if not isinstance(model, BERT | BERTClassifier | BERTTagger | BERTReader):
        raise UserError(f"a {type(model).__name__} is no BERT, RoBERTa or DistilBERT")
    return model.encoder.config


def head_dropout(model: nn.Module) -> float | None:
    """Dropout before the classes, where a model has classes."""
    held = model.config if isinstance(model, BERTClassifier | BERTTagger | BERTReader) else None
    return None if held is None else held.dropout


def encoder_settings(model: nn.Module) -> dict[str, object]:
    """What the settings of a model come to when it is used, with nothing left unsaid."""
    encoding = encoding_of(model)
    found: dict[str, object] = {
        "width": encoding.width,
        "heads": encoding.heads,
        "layers": encoding.layers,
        "heads_left": encoding.heads_left,
        "hidden": encoding.hidden or 4 * encoding.width,
        "activation": encoding.activation,
        "context": encoding.context,
        "segments": encoding.segments,
        "uncounted": encoding.uncounted,
        "norm": encoding.norm,
        "norm_eps": encoding.norm_eps,
    }
    if isinstance(model, BERTClassifier):
        found["classifier activation"] = model.config.activation
    if isinstance(model, BERT):
        c = model.config
        found |= {"words": c.words, "pooled": c.pooled, "next_sentence": c.next_sentence}
        if c.words:
            found |= {"tied": c.tied}
            found |= {"words_activation": c.words_activation or encoding.activation}
    return found


def label_settings(ours: ModelToWrite) -> dict[str, object]:
    """How a config names classes, and what they stand for if a text has not one of them."""
    labels, problem = ours.labels, ours.data.get("problem", "single_label")
    if not labels:
        return {}
    kinds = {our: their for their, our in _PROBLEMS.items() if our != "single_label"}
    return {
        **({"problem_type": kinds[str(problem)]} if problem in kinds else {}),
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def activation_name(activation: str) -> str:
    """Their name of one of our activations."""
    return next(their for their, our in ACTIVATION_NAMES.items() if our == activation)


_BERTS: dict[str, tuple[bool, bool]] = {
    "ForMaskedLM": (True, False),
    "ForPreTraining": (True, True),
    "ForNextSentencePrediction": (False, True),
    "Model": (False, False),
}
"""Architectures without a task of their own: do they guess words, do they say what follows?"""

_TASKED = {
    "bert_classifier": "ForSequenceClassification",
    "bert_tagger": "ForTokenClassification",
    "bert_reader": "ForQuestionAnswering",
}
"""How architectures end that have one, by our name of the model."""

_COUNTED = ("*position_ids",)
"""Tables that old files hold, though anyone can count."""
