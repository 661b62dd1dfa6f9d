"""Folders of GPT-2, OpenAI GPT and Marian as runs: they write what transformers writes."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import transformers

from regard.core.errors import UserError
from regard.decode import GenerationRequest, Greedy
from regard.runs.pretrained import from_pretrained, import_run, save_pretrained
from regard.runs.recipe import build_recipe, config_values, read_recipe
from regard.runs.run import create, load
from tests.hub.decoder_folders import LINES, gpt2_folder, gpt_folder, marian_folder

pytestmark = pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, which is not used
transformers.logging.set_verbosity_error()
GREEDY = GenerationRequest(policy=Greedy(), max_tokens=12)


def kept(folder: Path, place: Path) -> Path:
    """A run of a folder, written and to be opened again."""
    import_run(from_pretrained(folder, device="cpu"), place, place)
    return place


@pytest.mark.parametrize("make", [gpt2_folder, gpt_folder])
def test_a_gpt_writes_what_transformers_writes(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = make(tmp_path / "theirs")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    run = load(kept(folder, tmp_path / "run"), "cpu")
    save_pretrained(run, tmp_path / "back")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    for line in LINES:
        given = words(line, return_tensors="pt")["input_ids"]
        assert again(line, return_tensors="pt")["input_ids"].tolist() == given.tolist()
        numbers = theirs.generate(given, max_new_tokens=12, do_sample=False)
        assert torch.equal(numbers, back.generate(given, max_new_tokens=12, do_sample=False))
        written = "".join(piece.text for piece in run.generate(line, GREEDY))
        whole = run.task.reads.decode(numbers[0].tolist())
        assert run.task.reads.decode(given[0].tolist()) + written == whole


def test_a_gpt_2_stops_where_it_ends_a_document(tmp_path: Path) -> None:
    folder = gpt2_folder(tmp_path / "theirs")
    model = transformers.GPT2LMHeadModel.from_pretrained(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    # The token that it writes fourth is made the one that ends.
    given = words(LINES[0], return_tensors="pt")["input_ids"]
    free = model.generate(given, max_new_tokens=12, do_sample=False, eos_token_id=299)
    fourth = int(free[0, given.shape[1] + 3])
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": fourth}))
    run = from_pretrained(folder, device="cpu")
    cut = free[0, given.shape[1] :].tolist()
    expected = cut[: cut.index(fourth) + 1]
    assert [piece.token for piece in run.generate(LINES[0], GREEDY)] == expected


def test_a_classifier_says_what_transformers_says(tmp_path: Path) -> None:
    names = {0: "bad", 1: "good", 2: "odd"}
    folder = gpt2_folder(
        tmp_path / "theirs",
        "GPT2ForSequenceClassification",
        id2label=names,
        label2id={name: number for number, name in names.items()},
    )
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    run = load(kept(folder, tmp_path / "run"), "cpu")
    save_pretrained(run, tmp_path / "back")
    back = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "back")
    assert back.config.id2label == names
    assert not (tmp_path / "back/generation_config.json").exists()
    for line, answer in zip(LINES, run.predict(LINES), strict=True):
        given = words(line, return_tensors="pt")["input_ids"]
        likely = theirs(given).logits.softmax(1)[0].tolist()
        told = answer.fields["probabilities"]
        assert told == pytest.approx(dict(zip(names.values(), likely, strict=True)), abs=2e-6)
        assert torch.equal(theirs(given).logits, back(given).logits)


@torch.no_grad()
@pytest.mark.parametrize("pair", [False, True])
def test_the_marks_around_texts_are_written_too(tmp_path: Path, pair: bool) -> None:
    source = kept(gpt2_folder(tmp_path / "gpt2", n_positions=90), tmp_path / "run0")
    rows = [f"{line}\t{other}\t{n}" for n, (line, other) in enumerate(pairwise(LINES))]
    (tmp_path / "train.tsv").write_text("\n".join(rows * 3))
    tables: dict[str, object] = {
        "task": "classify",
        "about": {"title": "t", "paper": "p", "minutes": 1.0},
        "data": {
            "train": "train.tsv",
            "text": [1, 2] if pair else [1],
            "label": 3,
            "tokeniser": "source",
            "template": "gpt",
        },
        "model": {"kind": "gpt_classifier", "source": str(source)},
        "train": {"updates": 1, "optimiser": {"name": "adamw", "lr": 1e-3}},
    }
    run = create(build_recipe(tables), tmp_path / "run", tmp_path, "cpu")
    for each in run.model.parameters():
        torch.nn.init.normal_(each, std=0.4)
    save_pretrained(run, tmp_path / "out")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts, others = LINES[:3], LINES[1:] if pair else None
    batch = words(texts, others, padding=True, return_tensors="pt")
    likely = theirs(**batch).logits.softmax(1).tolist()
    lines = ["\t".join(each) for each in zip(texts, others, strict=True)] if others else texts
    again = from_pretrained(
        tmp_path / "out", changes=['data.text=["one", "two"]'] if pair else [], device="cpu"
    )
    for opened in (run, again):
        for told, there in zip(opened.predict(lines), likely, strict=True):
            assert list(told.fields["probabilities"].values()) == pytest.approx(there, abs=2e-6)
    if pair:
        tables["data"] = {**config_values(run.recipe.data), "both_orders": True}
        turned = create(build_recipe(tables), tmp_path / "turned", tmp_path, "cpu")
        with pytest.raises(UserError, match=r"both orders .* data\.both_orders=false"):
            save_pretrained(turned, tmp_path / "other")
        assert not (tmp_path / "other").exists()


def test_a_marian_translates_as_transformers_does(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "theirs", scale_embedding=True)
    theirs = transformers.MarianMTModel.from_pretrained(folder)
    words = transformers.MarianTokenizer.from_pretrained(folder)
    run = load(kept(folder, tmp_path / "run"), "cpu")
    save_pretrained(run, tmp_path / "back")
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    expected = []
    for line in LINES:
        given = words(line, return_tensors="pt")
        numbers = theirs.generate(**given, early_stopping="never")
        expected.append(words.decode(numbers[0], skip_special_tokens=True))
        held = again(line, return_tensors="pt")
        assert held["input_ids"].tolist() == given["input_ids"].tolist()
        assert torch.equal(numbers, back.generate(**held, early_stopping="never"))
    assert run.translate(LINES) == expected
    read = back.generation_config
    assert (read.num_beams, read.max_length, read.length_penalty) == (3, 20, 1.0)


def test_attention_of_an_imported_model_is_drawn_on_its_words(tmp_path: Path) -> None:
    run = from_pretrained(marian_folder(tmp_path / "marian"), device="cpu")
    (first, *_) = run.look("good food")
    assert first.weights.shape[-1] == len(first.keys)
    assert "".join(first.keys[:-1]).replace(" ", "") == "goodfood"
    run = from_pretrained(gpt2_folder(tmp_path / "gpt2"), device="cpu")
    (first, *_) = run.look("the cat sat")
    assert "".join(first.keys).startswith("the cat sat")


def test_an_imported_run_is_trained_on_from(tmp_path: Path) -> None:
    gpt = kept(gpt2_folder(tmp_path / "gpt2"), tmp_path / "runs/gpt2")
    marian = kept(marian_folder(tmp_path / "marian"), tmp_path / "runs/marian")
    (tmp_path / "train.txt").write_text("\n".join(LINES * 20))
    for side, lines in (("source", LINES), ("target", LINES[::-1])):
        for split in ("train", "validation"):
            (tmp_path / f"{split}.{side}").write_text("\n".join(lines))
    for run, window in ((gpt, ["data.window=8"]), (marian, [])):
        changes = [f"model.source={run}", "train.epochs=1", "data.batch=2", *window]
        recipe = read_recipe(str(run / "recipe.toml"), changes)
        begun = create(recipe, tmp_path / f"tuned-{run.name}", tmp_path, "cpu")
        source = load(run, "cpu").model.state_dict()
        own = begun.model.state_dict()
        assert all(torch.equal(own[name], source[name]) for name in source)
        assert begun.task.sizes == load(run, "cpu").task.sizes
        assert begun.train().update > 0
        assert not all(torch.equal(begun.model.state_dict()[n], source[n]) for n in source)
        save_pretrained(load(begun.folder, "cpu"), tmp_path / f"back-{run.name}")
