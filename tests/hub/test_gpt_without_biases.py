"""A GPT without biases is written for transformers as one whose biases are zero."""

from pathlib import Path

import torch
from transformers import GPT2LMHeadModel

from regard.hub import ModelToWrite, read_checkpoint, write_checkpoint
from regard.models.language.gpt import GPT, with_biases


def test_transformers_computes_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = GPT.Config(width=16, heads=2, layers=2, context=12, bias=False, activation="gelu_tanh")
    model = GPT(config, 11).eval()
    write_checkpoint(ModelToWrite(kind="gpt", model=model, sizes={"vocabulary": 11}), tmp_path)
    theirs = GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    tokens = torch.randint(0, 11, (2, 9))
    with torch.no_grad():
        logits = model({"tokens": tokens}).logits()
        assert torch.allclose(theirs(tokens).logits, logits, atol=1e-5)
        again = read_checkpoint(tmp_path).model.eval()
        assert torch.allclose(again({"tokens": tokens}).logits(), logits, atol=1e-6)
    assert with_biases(again) is again
