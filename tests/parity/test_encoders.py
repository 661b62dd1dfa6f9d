"""BERT, RoBERTa, its kin and DistilBERT here and in transformers, over odd configurations."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from regard.attention import record
from regard.hub import FAMILIES, LoadedCheckpoint, read_checkpoint, write_checkpoint
from regard.hub.family import ModelToWrite
from regard.outputs.classes import Classes

transformers.logging.set_verbosity_error()

ODD: dict[str, list[dict[str, object]]] = {
    "bert": [
        {"hidden_size": 6, "num_attention_heads": 1, "num_hidden_layers": 1, "hidden_act": "relu"},
        {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 3, "type_vocab_size": 5},
        {"hidden_act": "gelu_new", "intermediate_size": 7, "layer_norm_eps": 1e-5},
        {"hidden_act": "silu", "tie_word_embeddings": False, "max_position_embeddings": 17},
    ],
    "roberta": [
        {"hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 1, "type_vocab_size": 1},
        {"hidden_act": "relu", "pad_token_id": 3, "max_position_embeddings": 21},
        {"tie_word_embeddings": False, "intermediate_size": 5, "num_hidden_layers": 3},
    ],
    "xlm-roberta": [
        {"hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 1, "type_vocab_size": 1},
        {"hidden_act": "quick_gelu", "pad_token_id": 2, "max_position_embeddings": 23},
    ],
    "camembert": [
        {"hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 1, "type_vocab_size": 1},
        {"tie_word_embeddings": False, "intermediate_size": 5},
    ],
    "distilbert": [
        {"dim": 6, "n_heads": 1, "n_layers": 1, "activation": "relu"},
        {"dim": 12, "n_heads": 6, "hidden_dim": 7, "n_layers": 3},
        {"sinusoidal_pos_embds": True, "tie_word_embeddings": False},
    ],
}
SMALL: dict[str, dict[str, object]] = {
    "bert": {
        "vocab_size": 23,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 20,
    },
    "distilbert": {
        "vocab_size": 23,
        "dim": 8,
        "n_heads": 2,
        "n_layers": 2,
        "hidden_dim": 12,
        "max_position_embeddings": 20,
    },
}
SMALL |= dict.fromkeys(("roberta", "xlm-roberta", "camembert"), SMALL["bert"])
CASES = [
    pytest.param(family, odd, architecture, id=f"{architecture}-{number}")
    for family, odds in ODD.items()
    for number, (odd, architecture) in enumerate(
        pair
        for pair in itertools.product(odds, FAMILIES[family].kinds)
        # Every head in the first configuration; in the others the one that guesses words and one.
        if pair[0] is odds[0] or pair[1].endswith(("MaskedLM", "SequenceClassification"))
    )
]


def theirs(family: str, odd: dict[str, object], architecture: str) -> PreTrainedModel:
    """A foreign model with weights drawn anew, biases and normalisations too."""
    heads = (
        {"num_labels": 3} if architecture.endswith(("eClassification", "nClassification")) else {}
    )
    config = transformers.AutoConfig.for_model(family, **{**SMALL[family], **odd, **heads})
    config._attn_implementation = "eager"
    model = getattr(transformers, architecture)(config).eval()
    for each in model.parameters():
        nn.init.normal_(each, std=0.3)
    return model


def batches(pad: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Tokens without padding, with padding behind, and with padding before."""
    tokens = torch.randint(4, 23, (2, 7))
    yield "none", tokens, torch.ones(2, 7, dtype=torch.bool)
    for side in ("behind", "before"):
        real = torch.ones(2, 7, dtype=torch.bool)
        real[1, 4:] = False
        real = real if side == "behind" else real.flip(1)
        yield side, torch.where(real, tokens, pad), real


def compared(
    said: object, model: nn.Module, batch: dict[str, Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """Whatever the heads of both say, side by side."""
    ours = model(batch)
    if isinstance(ours, Classes):
        return [(said.logits, ours.logits)]
    pairs = {
        "scores": "logits",
        "first": "start_logits",
        "last": "end_logits",
        "pooled": "pooler_output",
    }
    found = [
        (getattr(said, their), getattr(ours, our))
        for our, their in pairs.items()
        if getattr(ours, our, None) is not None and getattr(said, their, None) is not None
    ]
    words = getattr(ours, "words", None)
    if words is not None:
        scores = said.logits if "logits" in said else said.prediction_logits
        found.append((scores, words.logits()))
    follows = getattr(ours, "next_sentence", None)
    if follows is not None:
        scores = said.seq_relationship_logits if "seq_relationship_logits" in said else said.logits
        found.append((scores, follows))
    return found


@pytest.mark.parametrize(("family", "odd", "architecture"), CASES)
def test_logits_states_and_every_map_agree_and_weights_come_back_to_the_bit(
    family: str, odd: dict[str, object], architecture: str, tmp_path: Path
) -> None:
    model = theirs(family, odd, architecture)
    model.save_pretrained(tmp_path / "theirs")
    loaded = read_checkpoint(tmp_path / "theirs")
    assert loaded.notes == ()
    agree(model, loaded)
    written = ModelToWrite(
        kind=loaded.plan.kind,
        model=loaded.model,
        sizes=loaded.plan.sizes,
        labels=loaded.plan.labels,
        specials={"pad": model.config.pad_token_id},
    )
    write_checkpoint(written, tmp_path / "ours", family=family)
    back, notes = getattr(transformers, architecture).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    unused = {"cls.predictions.bias", "lm_head.bias"} if not back.config.tie_word_embeddings else {}
    assert set(notes["missing_keys"]) <= set(unused)
    assert not notes["unexpected_keys"]
    before, after = model.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] in (
        [],
        sorted(unused & before.keys()) if unused else [],
    )


@torch.no_grad()
def agree(model: PreTrainedModel, loaded: LoadedCheckpoint) -> None:
    ours = loaded.model
    segments = getattr(model.config, "type_vocab_size", 0)
    for side, tokens, real in batches(model.config.pad_token_id):
        parts = torch.randint(0, max(1, segments), tokens.shape)
        given = {"token_type_ids": parts} if segments else {}
        said = model(
            tokens,
            attention_mask=real.long(),
            output_attentions=True,
            output_hidden_states=True,
            **given,
        )
        batch = {"tokens": tokens, "allowed": real, "parts": parts}
        if side == "behind":
            batch = {"tokens": tokens, "lengths": real.sum(1), "parts": parts}
        if hasattr(ours, "output") and "lengths" not in batch:
            batch["lengths"] = real.sum(1)
        pairs = compared(said, ours, batch)
        assert pairs or type(model).__name__ == "DistilBertModel"
        for there, here in pairs:
            if there.dim() > 1 and there.shape[:2] == real.shape:  # what padding says means nothing
                there, here = there[real], here[real]
            torch.testing.assert_close(here, there, atol=1e-5, rtol=1e-5)
        for there, here in zip(said.hidden_states, ours.encoder.every(batch), strict=True):
            torch.testing.assert_close(here[real], there[real], atol=1e-5, rtol=1e-5)
        with record(ours) as tape:
            ours(batch)
        assert len(tape.sites) == len(said.attentions)
        for there, site in zip(said.attentions, tape.sites, strict=True):
            here = tape.weights(site)
            rows = real[:, None, :, None].expand_as(here)
            torch.testing.assert_close(here[rows], there[rows], atol=1e-5, rtol=1e-5)
