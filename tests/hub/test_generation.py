"""Settings of `generate`: followed as transformers does by default, refused, or told by name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.hub.generation import GENERATION_FILE
from regard.runs.pretrained import from_pretrained, import_run, save_pretrained
from regard.runs.run import Run, load
from tests.hub.decoder_folders import LINES, gpt2_folder, marian_folder, varied

transformers.logging.set_verbosity_error()
pytestmark = pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, which is not used
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
    {"early_stopping": True, "length_penalty": 2.0, "num_beams": 4},
    {"length_penalty": 2.0, "num_beams": 5},
    {"no_repeat_ngram_size": 1, "bad_words_ids": None, "max_length": 9},
    {"min_length": 9, "early_stopping": True, "suppress_tokens": [28, 34]},
]
"""Each makes other outputs than its neighbours; tests/parity/test_grid.py has many more."""


@pytest.mark.parametrize("changes", FOLLOWED, ids=lambda each: "-".join(each))
def test_a_marian_writes_what_transformers_writes(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    folder = varied(marian_folder(tmp_path / "there"))
    with_settings(folder, **changes)
    opened = from_pretrained(folder)
    assert not [each for each in opened.began if "generation_config.json" in each]
    import_run(opened, tmp_path / "run", tmp_path)
    run = load(tmp_path / "run")
    there = theirs(folder, TEXTS)
    assert ours(run, TEXTS) == there
    save_pretrained(run, tmp_path / "back")
    assert theirs(tmp_path / "back", TEXTS[:2]) == there[:2]


def test_the_end_of_an_output_of_the_maximum_length_costs_nothing(tmp_path: Path) -> None:
    folder = varied(marian_folder(tmp_path))
    with_settings(folder, max_length=4, num_beams=6, no_repeat_ngram_size=1)
    words = [word for line in LINES for word in line.split()]
    texts = [f"{one} {two}" for one in words[:6] for two in words[-6:]]
    run = from_pretrained(folder)
    there = theirs(folder, texts)
    assert ours(run, texts) == there
    search = run.task.data.search.model_copy(update={"free_end": False})
    data = run.task.data.model_copy(update={"search": search})
    assert ours(replace(run, task=replace(run.task, data=data)), texts) != there


def test_outputs_that_end_elsewhere_are_refused(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path)
    with_settings(folder, eos_token_id=[0, 5])
    with pytest.raises(UserError, match=r"eos_token_id=\[0, 5\], but outputs end only at the end"):
        from_pretrained(folder)
    with_settings(folder, eos_token_id=0, suppress_tokens=[0, 5])
    with pytest.raises(UserError, match=r"suppress_tokens=\[0, 5\] must be tokens that do not"):
        from_pretrained(folder)
    with_settings(folder, suppress_tokens=None, bad_words_ids=[5])
    with pytest.raises(UserError, match=r"bad_words_ids=\[5\] must be a list of lists of tokens"):
        from_pretrained(folder)


def test_settings_that_a_gpt_does_not_follow_are_told_by_name(tmp_path: Path) -> None:
    folder = gpt2_folder(tmp_path / "there")
    told = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "bad_words_ids": [[5]]}
    told |= {"suppress_tokens": [7], "max_length": 30, "do_sample": True}
    with_settings(folder, **told, eos_token_id=[3, 9], top_k=50, min_length=0)
    run = from_pretrained(folder)
    notes = [each.split(": ")[1].split("=")[0] for each in run.began if GENERATION_FILE in each]
    assert sorted(notes) == sorted(told)
    assert run.task.ends == {3, 9}
    save_pretrained(run, tmp_path / "back")
    back = transformers.GenerationConfig.from_pretrained(tmp_path / "back")
    assert back.eos_token_id == [3, 9]
