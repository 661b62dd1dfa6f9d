"""OpenAI GPT and GPT-2 here and in transformers, over a grid of odd configurations."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from regard.attention import record
from regard.core.errors import UserError
from regard.hub import FAMILIES, LoadedCheckpoint, read_checkpoint, write_checkpoint
from regard.hub.family import ModelToWrite
from regard.models.language.gpt import GPT
from regard.models.text.gpt_classifier import GPTClassifier

transformers.logging.set_verbosity_error()

V, PAD = 23, 2
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
SMALL = {"vocab_size": V, "n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 20}
ODD: dict[str, list[dict[str, object]]] = {
    "gpt2": [
        {"n_embd": 6, "n_head": 1, "n_layer": 1, "activation_function": "relu"},
        {"n_embd": 12, "n_head": 3, "n_layer": 3, "n_inner": 7},
        {"activation_function": "gelu", "layer_norm_epsilon": 1e-3, "tie_word_embeddings": False},
        {"activation_function": "silu", "n_positions": 9, "n_head": 8},
    ],
    "openai-gpt": [
        {"n_embd": 6, "n_head": 1, "n_layer": 1, "afn": "relu"},
        {"n_embd": 12, "n_head": 3, "n_layer": 3, "layer_norm_epsilon": 1e-3},
        {"afn": "silu", "tie_word_embeddings": False, "n_positions": 9},
    ],
}
CASES = [
    pytest.param(family, odd, architecture, id=f"{architecture}-{number}")
    for family, odds in ODD.items()
    for architecture in FAMILIES[family].kinds
    for number, odd in enumerate(odds)
]


def theirs(family: str, odd: dict[str, object], architecture: str) -> PreTrainedModel:
    """A foreign model with weights drawn anew, biases and normalisations too."""
    marks = {"pad_token_id": PAD, "bos_token_id": 0, "eos_token_id": 1}
    config = transformers.AutoConfig.for_model(family, **{**SMALL, **odd, **marks}, num_labels=3)
    config._attn_implementation = "eager"
    model = getattr(transformers, architecture)(config).eval()
    for each in model.parameters():
        nn.init.normal_(each, std=0.3)
    return model


def padded(side: str) -> tuple[Tensor, Tensor]:
    """Tokens of three rows, and which of them are real."""
    real = torch.arange(7) < torch.tensor([7, 3, 5])[:, None]
    real = real.flip(1) if side == "before" else real
    return torch.where(real, torch.randint(3, V, real.shape), PAD), real


def given(loaded: LoadedCheckpoint) -> ModelToWrite:
    return ModelToWrite(
        kind=loaded.plan.kind,
        model=loaded.model,
        sizes=loaded.plan.sizes,
        labels=loaded.plan.labels,
        specials={"pad": PAD, "bos": 0, "eos": 1},
    )


@pytest.mark.parametrize(("family", "odd", "architecture"), CASES)
def test_logits_states_and_every_map_agree_and_weights_come_back_to_the_bit(
    family: str, odd: dict[str, object], architecture: str, tmp_path: Path
) -> None:
    model = theirs(family, odd, architecture)
    model.save_pretrained(tmp_path / "theirs")
    loaded = read_checkpoint(tmp_path / "theirs")
    assert loaded.notes == ()
    for side in ("behind", "before"):
        agree(model, loaded.model, side)
    write_checkpoint(given(loaded), tmp_path / "ours", family=family)
    named = json.loads((tmp_path / "ours/config.json").read_text())["architectures"][0]
    kept = getattr(transformers, named)
    back, notes = kept.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not notes["missing_keys"]
    assert not notes["unexpected_keys"]
    before, after = model.state_dict(), back.state_dict()
    if architecture.endswith("Model") and not architecture.endswith("LMHeadModel"):
        before = {f"transformer.{name}": each for name, each in before.items()}
        after.pop("lm_head.weight")
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    again = read_checkpoint(tmp_path / "ours").model.state_dict()
    ours = loaded.model.state_dict()
    assert again.keys() == ours.keys()
    assert all(torch.equal(again[name], ours[name]) for name in ours)


@torch.no_grad()
def agree(model: PreTrainedModel, ours: nn.Module, side: str) -> None:
    """Whatever both say of rows with padding on one side, ours being given each row alone."""
    tokens, real = padded(side)
    places = (real.cumsum(1) - 1).clamp_min(0)
    said = model(
        tokens,
        attention_mask=real.long(),
        position_ids=places,
        output_attentions=True,
        output_hidden_states=True,
    )
    body = ours.body if isinstance(ours, GPTClassifier) else ours
    assert isinstance(body, GPT)
    for row in range(len(tokens)):
        mine = tokens[row][real[row]][None]  # [1,T]
        with record(body) as tape:
            states = body.states(mine)
        torch.testing.assert_close(states[0], said.hidden_states[-1][row][real[row]], **CLOSE)
        assert len(tape.sites) == len(said.attentions)
        for there, site in zip(said.attentions, tape.sites, strict=True):
            there = there[row][:, real[row]][:, :, real[row]]
            torch.testing.assert_close(tape.weights(site)[0], there, **CLOSE)
        if isinstance(ours, GPTClassifier):
            scored = ours({"tokens": mine, "lengths": torch.tensor([mine.shape[1]])}).logits
            torch.testing.assert_close(scored[0], said.logits[row], **CLOSE)
        elif "logits" in said:
            logits = body.predicted(states).logits()
            torch.testing.assert_close(logits[0], said.logits[row][real[row]], **CLOSE)
    if isinstance(ours, GPTClassifier) and side == "behind":
        scored = ours({"tokens": tokens, "lengths": real.sum(1)}).logits
        torch.testing.assert_close(scored, said.logits, **CLOSE)


@pytest.mark.parametrize(
    ("family", "architecture"),
    [("gpt2", "GPT2LMHeadModel"), ("openai-gpt", "OpenAIGPTLMHeadModel")],
)
@torch.no_grad()
def test_steps_with_a_cache_write_what_transformers_writes(
    family: str, architecture: str, tmp_path: Path
) -> None:
    model = theirs(family, {"n_layer": 3}, architecture)
    model.save_pretrained(tmp_path)
    ours = read_checkpoint(tmp_path).model
    assert isinstance(ours, GPT)
    tokens, real = padded("before")
    written = model.generate(
        tokens,
        attention_mask=real.long(),
        max_new_tokens=9,
        do_sample=False,
        eos_token_id=V + 1,  # never
        output_logits=True,
        return_dict_in_generate=True,
    )
    alone = [tokens[row][real[row]][None] for row in range(len(tokens))]
    joined = ours.join([ours.start({"tokens": each}) for each in alone])
    state, last = joined, tokens[:, -1]
    assert state is not None
    for step, there in enumerate(written.logits):
        logits, state = ours.step(last, state)
        torch.testing.assert_close(logits, there, **CLOSE)
        last = logits.argmax(1)
        assert torch.equal(last, written.sequences[:, 7 + step])


def test_generation_config_is_written_as_transformers_reads_it(tmp_path: Path) -> None:
    model = GPT(GPT.Config(width=8, heads=2, layers=1, context=11), V)
    said = {"bos": 0, "eos": 1, "pad": PAD}
    ours = ModelToWrite(kind="gpt", model=model, sizes={"vocabulary": V}, specials=said)
    write_checkpoint(ours, tmp_path)
    read = transformers.GenerationConfig.from_pretrained(tmp_path)
    assert (read.bos_token_id, read.eos_token_id, read.pad_token_id) == (0, 1, PAD)
    assert read.max_length == 11


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"position": "rotary"}, "position=learned, not rotary"),
        ({"key_heads": 1}, "key_heads=2, not 1"),
        ({"score": "dot"}, "score=scaled_dot, not dot"),
        ({"weigh": "sparsemax"}, "weigh=softmax, not sparsemax"),
        ({"norm": "after", "activation": "tanh"}, "activation=gelu_tanh, not tanh"),
        ({"norm": "after", "activation": "relu", "hidden": 5}, "hidden=32, not 5"),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_what_neither_family_can_hold_is_not_written(
    changed: dict[str, object], match: str, tmp_path: Path
) -> None:
    config = GPT.Config.model_validate({"width": 8, "heads": 2, "layers": 1, **changed})
    ours = ModelToWrite(kind="gpt", model=GPT(config, V), sizes={"vocabulary": V})
    with pytest.raises(UserError, match=match):
        write_checkpoint(ours, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=true is not"),
        ({"scale_attn_weights": False}, "scale_attn_weights=false is not known"),
        ({"activation_function": "xielu"}, "xielu"),
        ({"n_embd": 16}, r"wte.weight is \[23, 8\], and the config makes it \[23, 16\]"),
        ({"n_layer": 3}, "the weights lack"),
        ({"n_head": 3}, "not divisible"),
        ({"n_positions": "many"}, "n_positions"),
        ({"architectures": ["GPT2LMHead"]}, "Known: GPT2LMHeadModel, GPT2Model"),
        ({"architectures": ["GPT2ForQuestionAnswering"]}, "Known: GPT2ForSequenceClassification, "),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_a_config_that_is_not_known_here_is_refused(
    changed: dict[str, object], match: str, tmp_path: Path
) -> None:
    theirs("gpt2", {}, "GPT2LMHeadModel").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with pytest.raises(UserError, match=match):
        read_checkpoint(tmp_path)


def test_old_files_hold_masks_and_tied_tensors_which_say_nothing(tmp_path: Path) -> None:
    model = theirs("gpt2", {}, "GPT2LMHeadModel")
    model.save_pretrained(tmp_path)
    held = {name.removeprefix("transformer."): each for name, each in model.state_dict().items()}
    for layer in range(2):
        held[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 20, 20, dtype=torch.uint8)
        held[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    (tmp_path / "model.safetensors").unlink()
    torch.save(held, tmp_path / "pytorch_model.bin")
    loaded = read_checkpoint(tmp_path)
    assert loaded.notes == ()
    agree(model, loaded.model, "behind")
