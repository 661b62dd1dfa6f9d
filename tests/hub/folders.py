"""Small foreign folders for tests, made by transformers itself."""

import json
from pathlib import Path

import torch
import transformers
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch import nn

WORDS = ["the", "cat", "sat", "on", "mat", "a", "dog", "##s", "good", "bad", ".", "!"]
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = {token: number for number, token in enumerate([*MARKS, *WORDS])}

SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 32,
}


def tokeniser() -> Tokenizer:
    """BERT's pipeline over a few words."""
    pipeline = Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    pipeline.normalizer = normalizers.BertNormalizer()
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.add_special_tokens(MARKS)
    pipeline.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return pipeline


def bert_folder(folder: Path, architecture: str = "BertForMaskedLM", **settings: object) -> Path:
    """A BERT with weights drawn anew, its tokeniser beside it."""
    torch.manual_seed(5)
    config = transformers.BertConfig(**{**SIZES, **settings})
    model = getattr(transformers, architecture)(config).eval()
    for each in model.parameters():
        nn.init.normal_(each, std=0.3)
    model.save_pretrained(folder)
    write_tokeniser(folder)
    return folder


def roberta_folder(folder: Path, architecture: str = "RobertaForMaskedLM") -> Path:
    """A RoBERTa with weights drawn anew, and byte pairs of a few words."""
    torch.manual_seed(6)
    pipeline = Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=280,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pipeline.train_from_iterator(["the cat sat on a good mat ."] * 4, trainer)
    pipeline.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    pipeline.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    sizes = {**SIZES, "vocab_size": pipeline.get_vocab_size(), "type_vocab_size": 1}
    model = getattr(transformers, architecture)(transformers.RobertaConfig(**sizes)).eval()
    for each in model.parameters():
        nn.init.normal_(each, std=0.3)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(pipeline.to_str())
    roles = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "unk": "<unk>"}
    roles |= {"pad": "<pad>", "mask": "<mask>"}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                **{f"{name}_token": mark for name, mark in roles.items()},
            }
        )
    )
    return folder


def write_tokeniser(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(tokeniser().to_str())
    names = ("pad", "unk", "cls", "sep", "mask")
    roles = {f"{name}_token": mark for name, mark in zip(names, MARKS, strict=True)}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
                **roles,
            }
        )
    )


def changed(folder: Path, **settings: object) -> None:
    """Change values of a folder's config.json; None removes one."""
    path = folder / "config.json"
    held = {**json.loads(path.read_text()), **settings}
    path.write_text(json.dumps({name: each for name, each in held.items() if each is not None}))
