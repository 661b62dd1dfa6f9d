"""Settings of `generate`: followed as transformers does by default, refused, or told by name."""

import json
from pathlib import Path

import pytest
import torch
import transformers

from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.runs.pretrained import from_pretrained, import_run, save_pretrained
from regard.runs.run import Run, load
from tests.hub.decoder_folders import LINES, gpt2_folder, marian_folder

transformers.logging.set_verbosity_error()
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
TEXTS = [*LINES, "good food", "Äpfel auf den Straßen herum; never again"]


def with_settings(folder: Path, **changes: object) -> None:
    """Change values of generation_config.json; None removes one."""
    path = folder / "generation_config.json"
    held = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: each for name, each in held.items() if each is not None}))


def theirs(folder: Path, texts: list[str]) -> list[list[int]]:
    """The outputs of transformers without marks, one text at a time."""
    words = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.MarianMTModel.from_pretrained(folder)
    torch.manual_seed(1)
    outputs = [model.generate(**words([text], return_tensors="pt"))[0] for text in texts]
    marks = (model.config.pad_token_id, 0)
    return [[n for n in each[1:].tolist() if n not in marks] for each in outputs]


def ours(run: Run, texts: list[str]) -> list[list[int]]:
    """Our outputs, all at once."""
    pad = run.task.numbering.target.pad
    found = run.task.translate(run.model, [Text(text) for text in texts])
    return [[n for n in each.outputs[0].hypothesis.tokens if n != pad] for each in found]


FOLLOWED: list[dict[str, object]] = [
    {},
    {"early_stopping": True},
    {"early_stopping": False},
    {"early_stopping": "never"},
    {"early_stopping": True, "length_penalty": 2.0, "num_beams": 4},
    {"length_penalty": 2.0, "num_beams": 5},
    {"length_penalty": 0.0, "num_beams": 2},
    {"num_beams": 1},
    {"bad_words_ids": None},
    {"bad_words_ids": [[28], [4], [0]]},
    {"suppress_tokens": [28, 34]},
    {"eos_token_id": [0]},
    {"max_length": 5},
    {"max_length": None, "max_new_tokens": 7},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2, "bad_words_ids": None},
    {"min_length": 9, "early_stopping": True},
    {"min_new_tokens": 6},
]


def sharpened(folder: Path, scale: float) -> None:
    """Make outputs end earlier or later, so that beams finish at different lengths."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    held = load_file(path)
    bias = held["final_logits_bias"]
    bias[0, 0] = scale
    save_file({**held, "final_logits_bias": bias}, path, metadata={"format": "pt"})


@pytest.mark.parametrize("ends", [0.0, 3.0])
@pytest.mark.parametrize("changes", FOLLOWED, ids=lambda each: json.dumps(each)[1:-1] or "as it is")
def test_a_marian_writes_what_transformers_writes(
    tmp_path: Path, changes: dict[str, object], ends: float
) -> None:
    folder = marian_folder(tmp_path / "there")
    sharpened(folder, ends)
    with_settings(folder, **changes)
    opened = from_pretrained(folder)
    assert not [each for each in opened.began if "generation_config.json" in each]
    import_run(opened, tmp_path / "run", tmp_path)
    run = load(tmp_path / "run")
    assert ours(run, TEXTS) == theirs(folder, TEXTS)
    save_pretrained(run, tmp_path / "back")
    assert theirs(tmp_path / "back", TEXTS[:2]) == theirs(folder, TEXTS[:2])
