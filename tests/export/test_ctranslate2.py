"""A model in CTranslate2 finds texts as likely as ours does, whatever kind of model it is."""

from pathlib import Path

import pytest
import torch
from torch import nn

from regard.core.errors import UserError
from regard.export.ctranslate2 import ctranslate2_difference, export_ctranslate2
from regard.models.language.gpt import GPT
from regard.models.language.rnn_lm import RNNLM
from regard.models.translation.transformer import Transformer

pytest.importorskip("ctranslate2")

V, S = 23, 19
WORDS = ["", "a", "a", "<bos>", "<eos>", *(f"w{number}" for number in range(V - 5))]
OTHERS = [f"s{number}" for number in range(S)]
SPECIALS = {"unk": 0, "bos": 3, "eos": 4}

GPTS: dict[str, dict[str, object]] = {
    "GPT-2": {"activation": "gelu_tanh"},
    "GPT": {"norm": "after"},
    "nanoGPT": {"bias": False},
    "untied": {"tied": False, "position": "sinusoidal"},
}
TRANSLATORS: dict[str, dict[str, object]] = {
    "the paper's": {},
    "before": {"norm": "before", "activation": "gelu", "shared": "none"},
    "Marian's": {"activation": "silu", "output_bias": True},
    "learned": {"position": "learned", "scaled": False, "context": 32},
}


def shaken(model: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.mark.parametrize("name", GPTS)
def test_a_gpt_finds_texts_as_likely_as_ours(name: str, tmp_path: Path) -> None:
    config = GPT.Config.model_validate({"width": 16, "heads": 2, "layers": 2, **GPTS[name]})
    model = shaken(GPT(config, V))
    assert export_ctranslate2(model, tmp_path / "out", words=WORDS, specials=SPECIALS) < 1e-4
    model.layers[0].attention.project.weight.data.neg_()
    off = ctranslate2_difference(model, tmp_path / "out", words=WORDS, specials=SPECIALS)
    assert off > 0.01, "another model is told apart"


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_finds_texts_as_likely_as_ours(name: str, tmp_path: Path) -> None:
    sizes = {"width": 16, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    model = shaken(Transformer(Transformer.Config.model_validate(sizes | TRANSLATORS[name]), V, S))
    about = {"words": WORDS, "source_words": OTHERS, "specials": SPECIALS}
    assert export_ctranslate2(model, tmp_path / "out", **about) < 1e-4
    model.decoder[0].cross.merge.weight.data.neg_()
    assert ctranslate2_difference(model, tmp_path / "out", **about) > 0.01


def test_what_it_cannot_hold_is_said(tmp_path: Path, as_users_run_it: None) -> None:
    odd = GPT(GPT.Config(width=8, heads=2, key_heads=1, position="rotary", weigh="sparsemax"), V)
    with pytest.raises(UserError, match=r"key_heads=1, position='rotary', weigh='sparsemax'"):
        export_ctranslate2(odd, tmp_path, words=WORDS, specials=SPECIALS)
    with pytest.raises(UserError, match="for gpt and transformer, not for a RNNLM"):
        export_ctranslate2(
            RNNLM(RNNLM.Config(width=8), V), tmp_path, words=WORDS, specials=SPECIALS
        )
