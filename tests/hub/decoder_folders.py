"""Small folders of GPT-2, OpenAI GPT and Marian for tests, made by transformers itself."""

import io
import json
from pathlib import Path

import sentencepiece
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import nn
from transformers import PreTrainedModel

LINES = [
    "the cat sat on the mat .",
    "a dog saw the cat and ran away !",
    "good food, bad service; never again",
    "Überall liegen Äpfel auf den Straßen herum",
]


def drawn(model: PreTrainedModel, folder: Path) -> None:
    """Weights drawn anew, and saved."""
    torch.manual_seed(5)
    for each in model.parameters():
        nn.init.normal_(each, std=0.4)
    model.eval().save_pretrained(folder)


def varied(folder: Path) -> Path:
    """Weights with which outputs depend on the text: normalisations have none of their own."""
    path = folder / "model.safetensors"
    drawn_anew = torch.Generator().manual_seed(1)
    held = {}
    for name, each in load_file(path).items():
        if "layer_norm" in name or ".ln_" in name:
            held[name] = torch.full_like(each, float(name.endswith("weight")))
        else:
            held[name] = torch.randn(each.shape, generator=drawn_anew)
        if name == "final_logits_bias":
            held[name][0, 0] = 3.0  # some outputs end early
    save_file(held, path, metadata={"format": "pt"})
    return folder


def gpt2_folder(folder: Path, architecture: str = "GPT2LMHeadModel", **settings: object) -> Path:
    """A GPT-2 with a vocabulary of its own, as vocab.json and merges.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces.train_from_iterator(LINES, trainer)
    pieces.model.save(str(folder))
    sizes = {"n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 40, "vocab_size": 300}
    marks = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = transformers.GPT2Config(**{**sizes, **marks, **settings})
    drawn(getattr(transformers, architecture)(config), folder)
    return folder


def gpt_folder(folder: Path, **settings: object) -> Path:
    """An OpenAI GPT."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=90, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    pieces.train_from_iterator(LINES, trainer)
    pieces.model.save(str(folder))
    sizes = {"n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 40}
    known = {"vocab_size": pieces.get_vocab_size()}
    config = transformers.OpenAIGPTConfig(**{**sizes, **known, **settings})
    drawn(transformers.OpenAIGPTLMHeadModel(config), folder)
    return folder


def marian_folder(folder: Path, **settings: object) -> Path:
    """A Marian with two SentencePiece models."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {"</s>": 0, "<unk>": 1}
    for side, lines in (("source", LINES[2:]), ("target", LINES[:2])):
        file = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 5),
            model_writer=file,
            vocab_size=60,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{side}.spm").write_bytes(file.getvalue())
        model = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
        for number in range(3, len(model)):
            vocabulary.setdefault(model.id_to_piece(number), len(vocabulary))
    pad = vocabulary.setdefault("<pad>", len(vocabulary))
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer", "model_max_length": 512})
    )
    sizes = {"d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": len(vocabulary)}
    each = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("attention_heads", 2), ("ffn_dim", 12))
    }
    marks = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0}
    searched = {
        "max_length": 20,
        "num_beams": 3,
        "bad_words_ids": [[pad]],
        "forced_eos_token_id": 0,
    }
    config = transformers.MarianConfig(
        **{**sizes, **each, **marks, "activation_function": "swish", **settings}
    )
    model = transformers.MarianMTModel(config)
    for name, value in searched.items():
        setattr(model.generation_config, name, value)
    drawn(model, folder)
    return folder
