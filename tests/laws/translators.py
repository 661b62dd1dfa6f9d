"""Every translator, small: the table that the laws of test_translators.py run over."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.core.padding import IGNORE
from regard.models import MODELS
from tests.laws.families import FAMILIES

B, S, T, V, SOURCES = 4, 7, 6, 11, 13
PAD, UNKNOWN, BOS, EOS = range(4)
LENGTHS = torch.tensor([7, 3, 1, 5])
WRITTEN = torch.tensor([6, 2, 5, 4])

NAMES = FAMILIES["translators"]

TRANSFORMER: dict[str, object] = {
    "width": 16,
    "heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "hidden": 24,
    "dropout": 0.0,
    "position": "learned",
    "context": 32,
}

LUONG: dict[str, object] = {"width": 8, "layers": 2, "weigh": "local_p", "reach": 2}

ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "encoder_decoder": ("encoder_decoder", {"width": 8, "layers": 2}),
    "encoder_decoder, other": (
        "encoder_decoder",
        {"cell": "gru", "width": 8, "layers": 1, "reverse": False, "tied": True},
    ),
    "bahdanau": ("bahdanau", {"width": 8, "hidden": 16}),
    "bahdanau, other": (
        "bahdanau",
        {"cell": "lstm", "width": 6, "hidden": 8, "readout": "tanh", "tied": True},
    ),
    "bahdanau, weights that are carried on": (
        "bahdanau",
        {"width": 6, "hidden": 8, "score": "coverage", "weigh": "sparsemax"},
    ),
    "hard_attention": ("hard_attention", {"width": 8, "hidden": 16}),
    "hard_attention, other": (
        "hard_attention",
        {"cell": "lstm", "width": 6, "hidden": 8, "baseline": "learned", "expectation": 0.0},
    ),
    "hard_attention, weights that are carried on": (
        "hard_attention",
        {"width": 6, "hidden": 8, "score": "coverage", "baseline": "none", "reward": "step"},
    ),
    "luong": ("luong", LUONG),
    "luong, other": (
        "luong",
        {**LUONG, "cell": "gru", "layers": 1, "weigh": "softmax", "bidirectional": True},
    ),
    "luong, not fed": ("luong", {**LUONG, "feeding": False, "score": "additive"}),
    "luong, not fed, that minds its step": (
        "luong",
        {**LUONG, "feeding": False, "reverse": True, "score": "location", "weigh": "local_m"},
    ),
    "luong, weights that are carried on": (
        "luong",
        {**LUONG, "feeding": False, "score": "location_aware", "weigh": "softmax"},
    ),
    "online_aligner": ("online_aligner", {"width": 8, "layers": 2}),
    "online_aligner, other": (
        "online_aligner",
        {"cell": "gru", "width": 8, "layers": 1, "tied": True},
    ),
    "pointer_generator": ("pointer_generator", {"width": 8, "hidden": 16}),
    "pointer_generator, other": (
        "pointer_generator",
        {"width": 6, "hidden": 8, "score": "additive", "coverage": 1.0, "tied": True},
    ),
    "transformer": ("transformer", TRANSFORMER),
    "transformer, other": (
        "transformer",
        {
            **TRANSFORMER,
            "norm": "before",
            "position": "sinusoidal",
            "context": 2,
            "shared": "none",
            "bias": False,
            "output_bias": True,
            "activation": "gelu",
        },
    ),
    "transformer, weights that are carried on": (
        "transformer",
        {
            **TRANSFORMER,
            "encoder_score": "relative_clipped",
            "decoder_score": "relative_skewed",
            "cross_score": "coverage",
            "cross_weigh": "entmax15",
        },
    ),
    "transformer, attention that minds its step": (
        "transformer",
        {**TRANSFORMER, "decoder_score": "additive", "cross_weigh": "local_m"},
    ),
}
"""Small models, by a label: the name in MODELS and a config. The first row of a name is the plain
one."""

ONLINE = ("online_aligner",)
"""Models that write while they read."""

WITHOUT = ("encoder_decoder", "online_aligner")
"""Models that look back at nothing."""

OTHER: dict[str, dict[str, object]] = {
    "encoder_decoder": {
        "cell": "gru",
        "width": 10,
        "layers": 1,
        "reverse": False,
        "dropout": 0.5,
        "tied": True,
        "init_range": 0.2,
    },
    "bahdanau": {
        "cell": "lstm",
        "width": 10,
        "hidden": 10,
        "score": "bilinear",
        "weigh": "sparsemax",
        "readout": "tanh",
        "dropout": 0.5,
        "tied": True,
        "init_range": 0.2,
    },
    "hard_attention": {
        "cell": "lstm",
        "width": 10,
        "hidden": 10,
        "score": "bilinear",
        "weigh": "sparsemax",
        "readout": "tanh",
        "dropout": 0.5,
        "tied": True,
        "init_range": 0.2,
        "reward": "step",
        "baseline": "learned",
        "entropy": 0.1,
        "expectation": 1.0,
    },
    "luong": {
        "cell": "gru",
        "width": 10,
        "layers": 1,
        "bidirectional": True,
        "reverse": True,
        "score": "dot",
        "weigh": "softmax",
        "reach": 1,
        "feeding": False,
        "dropout": 0.5,
        "tied": True,
        "init_range": 0.2,
    },
    "online_aligner": {
        "cell": "gru",
        "width": 10,
        "layers": 1,
        "entropy": 0.5,
        "dropout": 0.5,
        "tied": True,
        "init_range": 0.2,
    },
    "pointer_generator": {
        "width": 10,
        "hidden": 10,
        "score": "additive",
        "coverage": 1.0,
        "dropout": 0.5,
        "tied": True,
        "init_range": 0.2,
    },
    "transformer": {
        "width": 20,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "hidden": 12,
        "activation": "gelu",
        "norm": "before",
        "position": "sinusoidal",
        "context": 20,
        "scaled": False,
        "shared": "none",
        "bias": False,
        "output_bias": True,
        "dropout": 0.5,
        "embedding_dropout": 0.5,
        "attention_dropout": 0.5,
        "activation_dropout": 0.5,
        "encoder_score": "additive",
        "encoder_weigh": "sparsemax",
        "decoder_score": "additive",
        "decoder_weigh": "sparsemax",
        "cross_score": "additive",
        "cross_weigh": "sparsemax",
    },
}
"""Another value for every field of every config: each must make a difference."""

ELSEWHERE = {("pointer_generator", "unk"), ("transformer", "source")}
"""Fields that make one only to texts of their own; the tests of the model have them."""


def made(label: str, changes: Mapping[str, object] | None = None) -> nn.Module:
    """A small one as it begins."""
    name, config = ROWS[label]
    return MODELS[name](MODELS[name].Config(**{**config, **(changes or {})}), V, SOURCES)


def built(label: str) -> nn.Module:
    """A small one in double, with weights large enough that everything matters."""
    model = made(label).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    return model


def texts() -> dict[str, Tensor]:
    """Sentences of several lengths, with words that the vocabulary does not have."""
    source = torch.randint(4, V, (B, S))
    source[0, [1, 4]] = source[3, 2] = UNKNOWN
    extended = source.clone()
    extended[0, 1], extended[0, 4], extended[3, 2] = V, V + 1, V
    tokens, targets = torch.randint(4, V, (B, T)), torch.full((B, T), IGNORE)
    tokens[:, 0] = BOS
    for row, (read, wrote) in enumerate(zip(LENGTHS.tolist(), WRITTEN.tolist(), strict=True)):
        for ids in (source, extended):
            ids[row, read - 1], ids[row, read:] = EOS, PAD
        targets[row, : wrote - 1], targets[row, wrote - 1] = tokens[row, 1:wrote], EOS
        tokens[row, wrote:] = PAD
    return {
        "source": source,
        "source_lengths": LENGTHS.clone(),
        "source_extended": extended,
        "tokens": tokens,
        "targets": targets,
    }
