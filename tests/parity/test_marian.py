"""Marian here and in transformers, over a grid of odd configurations; and its translations."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from regard.attention import record
from regard.core.errors import UserError
from regard.decode.beam import Beam
from regard.decode.sentences import decode
from regard.hub import LoadedCheckpoint, read_checkpoint, write_checkpoint
from regard.hub.family import ModelToWrite
from regard.models.translation.transformer import Transformer

transformers.logging.set_verbosity_error()

V, PAD, EOS = 23, 22, 0
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
LENGTHS = torch.tensor([7, 3, 5])
REAL = torch.arange(7) < LENGTHS[:, None]
ODD: list[dict[str, object]] = [
    {"d_model": 6, "encoder_layers": 1, "decoder_layers": 2, "activation_function": "relu"},
    {"d_model": 12, "heads": 3, "encoder_layers": 3, "decoder_layers": 1, "ffn": 7},
    {"activation_function": "gelu", "scale_embedding": True, "max_position_embeddings": 600},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 27, "heads": 8},
    {
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "decoder_vocab_size": 31,
    },
]


def theirs(odd: dict[str, object]) -> MarianMTModel:
    """A foreign model with weights drawn anew, biases and normalisations too."""
    odd = dict(odd)
    heads, ffn = odd.pop("heads", 2), odd.pop("ffn", 12)
    marks = {"pad_token_id": PAD, "eos_token_id": EOS, "forced_eos_token_id": EOS}
    settings = {
        "vocab_size": V,
        "d_model": 8,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": ffn,
        "decoder_ffn_dim": ffn,
        "activation_function": "swish",
        "max_position_embeddings": 40,
        "decoder_start_token_id": 18,
        **marks,
        **odd,
    }
    config = MarianConfig(**settings)
    config._attn_implementation = "eager"
    model = MarianMTModel(config).eval()
    for name, each in model.named_parameters():
        if "embed_positions" not in name:
            nn.init.normal_(each, std=0.4)
    nn.init.normal_(model.final_logits_bias)
    return model


def batch(targets: int) -> dict[str, Tensor]:
    return {
        "source": torch.where(REAL, torch.randint(1, 18, REAL.shape), PAD),
        "source_lengths": LENGTHS,
        "tokens": torch.randint(1, targets, (3, 6)),
    }


def given(loaded: LoadedCheckpoint) -> ModelToWrite:
    marks = {"pad": PAD, "eos": EOS, "bos": 18}
    return ModelToWrite(
        kind=loaded.plan.kind, model=loaded.model, sizes=loaded.plan.sizes, specials=marks
    )


@pytest.mark.parametrize("odd", ODD)
def test_logits_and_every_map_agree_and_weights_come_back_to_the_bit(
    odd: dict[str, object], tmp_path: Path
) -> None:
    model = theirs(odd)
    model.save_pretrained(tmp_path / "theirs")
    loaded = read_checkpoint(tmp_path / "theirs")
    assert [note.split(";")[0] for note in loaded.notes] == [
        "generation_config.json: has no max_length"
    ]
    agree(model, loaded.model)
    write_checkpoint(given(loaded), tmp_path / "ours")
    back, notes = MarianMTModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not notes["missing_keys"]
    assert not notes["unexpected_keys"]
    before, after = model.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []


@torch.no_grad()
def agree(model: MarianMTModel, ours: nn.Module) -> None:
    """Logits, every map and every step."""
    assert isinstance(ours, Transformer)
    held = batch(model.config.decoder_vocab_size)
    said = model(
        input_ids=held["source"],
        attention_mask=REAL.long(),
        decoder_input_ids=held["tokens"],
        output_attentions=True,
    )
    with record(ours) as tape:
        prediction = ours(held)
    torch.testing.assert_close(prediction.logits(), said.logits, **CLOSE)
    states, _ = ours.encode(held["source"], LENGTHS)
    torch.testing.assert_close(states[REAL], said.encoder_last_hidden_state[REAL], **CLOSE)
    maps = {
        "encoder.{}.attention": said.encoder_attentions,
        "decoder.{}.attention": said.decoder_attentions,
        "decoder.{}.cross": said.cross_attentions,
    }
    assert len(tape.sites) == sum(len(each) for each in maps.values())
    for site, every in maps.items():
        for number, there in enumerate(every):
            here = tape.weights(site.format(number))
            if site.startswith("encoder"):
                rows = REAL[:, None, :, None].expand_as(here)
                here, there = here[rows], there[rows]
            torch.testing.assert_close(here, there, **CLOSE)
    state = ours.start(held)
    for place in range(6):
        logits, state = ours.step(held["tokens"][:, place], state)
        torch.testing.assert_close(logits, said.logits[:, place], **CLOSE)


def test_far_positions_are_those_of_marian(tmp_path: Path) -> None:
    model = theirs({"max_position_embeddings": 600})
    model.save_pretrained(tmp_path)
    ours = read_checkpoint(tmp_path).model
    assert isinstance(ours, Transformer)
    there = model.model.encoder.embed_positions.weight
    torch.testing.assert_close(ours.position.table, there, atol=1e-6, rtol=0)
    far = ours.position(torch.zeros(1, 1, 8), 599)[0]
    torch.testing.assert_close(far, there[599:], atol=1e-6, rtol=0)


@pytest.mark.parametrize("width", [1, 3, 5])
@pytest.mark.parametrize(("alpha", "no_repeat"), [(1.0, 0), (0.5, 0), (1.0, 2)])
@torch.no_grad()
def test_its_translations_are_those_of_generate(
    width: int, alpha: float, no_repeat: int, tmp_path: Path
) -> None:
    model = theirs({"activation_function": "swish", "scale_embedding": True})
    model.save_pretrained(tmp_path)
    loaded = read_checkpoint(tmp_path)
    sources = torch.randint(1, 18, (12, 7))
    lengths = torch.randint(1, 8, (12,))
    real = torch.arange(7) < lengths[:, None]
    sources = torch.where(real, sources, PAD)
    written = model.generate(
        sources,
        attention_mask=real.long(),
        num_beams=width,
        do_sample=False,
        max_length=14,
        length_penalty=alpha,
        no_repeat_ngram_size=no_repeat,
        early_stopping="never" if width > 1 else False,
        bad_words_ids=[[PAD]],
    )
    beam = Beam(
        width=width,
        length_penalty="average",
        alpha=alpha,
        max_length=12,
        max_per_source=0,
        no_repeat=no_repeat,
        bos=18,
        eos=EOS,
        banned=(PAD,),
    )

    def read(some: list[int]) -> dict[str, Tensor]:
        return {"source": sources[some], "source_lengths": lengths[some]}

    found = decode(loaded.model, read, lengths.tolist(), beam, max_rows=64)
    for row, (best,) in zip(written.tolist(), found, strict=True):
        there = row[1 : row.index(EOS)] if EOS in row else [n for n in row[1:] if n != PAD]
        assert list(best.tokens) == there
        assert PAD not in best.tokens


def test_generation_config_says_how_outputs_are_searched_for(tmp_path: Path) -> None:
    model = theirs({})
    model.generation_config.num_beams = 6
    model.generation_config.max_length = 30
    model.generation_config.bad_words_ids = [[PAD]]
    model.generation_config.length_penalty = 0.7
    model.save_pretrained(tmp_path)
    loaded = read_checkpoint(tmp_path)
    search = loaded.plan.data["search"]
    assert isinstance(search, dict)
    assert (search["width"], search["max_length"], search["alpha"]) == (6, 28, 0.7)
    write_checkpoint(given(loaded), tmp_path / "out")
    read = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
    assert (read.eos_token_id, read.pad_token_id, read.decoder_start_token_id) == (EOS, PAD, 18)
    assert read.bad_words_ids == [[PAD]]


@pytest.mark.parametrize(
    ("changed", "search", "told"),
    [
        ({}, {}, ()),
        ({"no_repeat_ngram_size": 2}, {"no_repeat": 2}, ()),
        ({"max_new_tokens": 5}, {"max_length": 4}, ()),
        ({"repetition_penalty": 1.0, "do_sample": False, "min_length": 0}, {}, ()),
        ({"repetition_penalty": 1.5}, {}, ("repetition_penalty=1.5 is not followed here",)),
        ({"forced_eos_token_id": None}, {}, ("has no forced_eos_token_id; here an output of",)),
    ],
)
def test_settings_of_the_search_are_followed_or_told(
    changed: dict[str, object], search: dict[str, object], told: tuple[str, ...], tmp_path: Path
) -> None:
    theirs({}).save_pretrained(tmp_path)
    path = tmp_path / "generation_config.json"
    marks = {"eos_token_id": EOS, "forced_eos_token_id": EOS, "pad_token_id": PAD}
    settings = {"num_beams": 2, "max_length": 20, "bad_words_ids": [[PAD]], **marks, **changed}
    path.write_text(json.dumps(settings))
    loaded = read_checkpoint(tmp_path)
    found = loaded.plan.data["search"]
    assert isinstance(found, dict)
    assert {"width": 2, "max_length": 18, "no_repeat": 0, **search}.items() <= found.items()
    assert len(loaded.notes) == len(told)
    for said, part in zip(loaded.notes, told, strict=True):
        assert said.startswith(f"generation_config.json: {part}")
    write_checkpoint(replace(given(loaded), data=loaded.plan.data), tmp_path / "out")
    again = read_checkpoint(tmp_path / "out").plan.data["search"]
    assert isinstance(again, dict)
    # What is written ends outputs of the maximum length, as the search here does.
    assert again == {**found, "free_end": True}


def test_old_folders_have_no_bias_and_hold_positions(tmp_path: Path) -> None:
    model = theirs({})
    nn.init.zeros_(model.final_logits_bias)
    model.save_pretrained(tmp_path)
    held = model.state_dict()
    del held["final_logits_bias"]
    (tmp_path / "model.safetensors").unlink()
    torch.save(held, tmp_path / "pytorch_model.bin")
    loaded = read_checkpoint(tmp_path)
    assert isinstance(loaded.model, Transformer)
    assert loaded.model.bias is None
    agree(model, loaded.model)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"decoder_ffn_dim": 13}, "encoder_ffn_dim=12 and decoder_ffn_dim=13"),
        ({"normalize_before": True}, "normalize_before=true is not known"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=false is not known"),
        ({"vocab_size": 24}, r"shared.weight is \[23, 8\]|one vocabulary"),
        ({"architectures": ["MarianForCausalLM"]}, "Known: MarianMTModel"),
        ({"decoder_start_token_id": 99999}, "decoder_start_token_id=99999 must be .* 0 to 22"),
        ({"d_model": 7}, r"config\.json: width=7 "),
        ({"decoder_vocab_size": 22}, r"config\.json: shared=.all. needs one vocabulary"),
        ({"decoder_vocab_size": 0}, r"config\.json: decoder_vocab_size=0 must be"),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_a_config_that_is_not_known_here_is_refused(
    changed: dict[str, object], match: str, tmp_path: Path
) -> None:
    theirs({}).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with pytest.raises(UserError, match=match):
        read_checkpoint(tmp_path)


@pytest.mark.usefixtures("as_users_run_it")
def test_what_marian_has_not_is_not_written(tmp_path: Path) -> None:
    model = Transformer(Transformer.Config(width=8, heads=2, shared="all"), V, V)
    sizes = {"vocabulary": V, "source_vocabulary": V}
    with pytest.raises(UserError, match="position=sinusoidal_halves, not sinusoidal"):
        write_checkpoint(ModelToWrite(kind="transformer", model=model, sizes=sizes), tmp_path)
