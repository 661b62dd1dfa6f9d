"""Models to export, and their export as users run it: `python -m tests.export.kinds FOLDER`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from regard.export.onnx import export_onnx
from regard.models.language.gpt import GPT
from regard.models.text.bert import BERT, Encoding
from regard.models.text.bert_classifier import BERTClassifier

V = 23
ENCODING = Encoding(width=8, heads=2, layers=1, hidden=12, context=16)
ALONE = ENCODING.model_copy(update={"segments": 0})

BUILT: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: BERT(BERT.Config(encoder=ENCODING), V),
    "pretraining": lambda: BERT(BERT.Config(encoder=ENCODING, pooled=True, next_sentence=True), V),
    "next sentence": lambda: BERT(
        BERT.Config(encoder=ENCODING, words=False, pooled=True, next_sentence=True), V
    ),
    "alone": lambda: BERT(BERT.Config(encoder=ENCODING, words=False, pooled=True), V),
    "classifier": lambda: BERTClassifier(BERTClassifier.Config(encoder=ALONE), V, 3),
    "gpt": lambda: GPT(GPT.Config(width=8, heads=2, layers=1, context=16), V),
}

OUTPUTS: dict[str, list[str]] = {
    "bert": ["logits"],
    "pretraining": ["logits", "next_sentence"],
    "next sentence": ["next_sentence"],
    "alone": ["states", "pooled"],
    "classifier": ["logits"],
    "gpt": ["logits"],
}
"""What each file gives."""


def exported(folder: Path) -> dict[str, float]:
    """How far each file is off."""
    told = {}
    for name, built in BUILT.items():
        torch.manual_seed(0)
        model = built()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
        told[name] = export_onnx(model, folder / f"{name}.onnx")
    return told


if __name__ == "__main__":
    print(json.dumps(exported(Path(sys.argv[1]))))
