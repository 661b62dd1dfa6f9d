"""Odd configs, weights and folders: read as transformers reads them, or refused by name."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.activations import ACT2CLS, ACT2FN

from regard import hub
from regard.core.errors import UserError
from regard.hub.encoders import ACTIVATION_NAMES
from regard.layers.feedforward import ACTIVATIONS
from regard.runs.pretrained import from_pretrained, import_run, save_pretrained
from regard.runs.run import load
from tests.hub.decoder_folders import gpt2_folder, gpt_folder, marian_folder
from tests.hub.folders import VOCABULARY, bert_folder, changed, write_tokeniser

transformers.logging.set_verbosity_error()
TOKENS = torch.tensor([[2, 5, 6, 7, 3]])


def with_tensor(folder: Path, name: str, tensor: Tensor) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), name: tensor}, path, metadata={"format": "pt"})


def distilbert_folder(folder: Path, architecture: str, **settings: object) -> Path:
    sizes = {"dim": 8, "n_heads": 2, "n_layers": 2, "hidden_dim": 12, "vocab_size": len(VOCABULARY)}
    config = transformers.DistilBertConfig(**{**sizes, "max_position_embeddings": 32, **settings})
    torch.manual_seed(0)
    getattr(transformers, architecture)(config).save_pretrained(folder)
    write_tokeniser(folder)
    return folder


@pytest.mark.parametrize("architecture", hub.FAMILIES["distilbert"].kinds)
def test_a_distilbert_goes_back_without_naming_its_family(
    tmp_path: Path, architecture: str
) -> None:
    folder = distilbert_folder(tmp_path / "there", architecture)
    run = import_run(from_pretrained(folder), tmp_path / "run", tmp_path)
    save_pretrained(run, tmp_path / "back")
    back, there = (
        getattr(transformers, architecture).from_pretrained(each).state_dict()
        for each in (tmp_path / "back", folder)
    )
    assert all(torch.equal(back[name], there[name]) for name in there)


def test_a_model_that_no_family_holds_is_told_why_by_each(tmp_path: Path) -> None:
    run = from_pretrained(distilbert_folder(tmp_path, "DistilBertModel"))
    with pytest.raises(UserError, match=r"bert cannot hold it: type_vocab_size=0 must be"):
        save_pretrained(run, tmp_path / "back", family="bert")


@torch.no_grad()
@pytest.mark.parametrize("name", ["cls.predictions.decoder.weight", "cls.predictions.decoder.bias"])
def test_tied_tensors_that_differ_are_both_used_as_there(tmp_path: Path, name: str) -> None:
    folder = bert_folder(tmp_path)
    like = load_file(folder / "model.safetensors")
    shape = like["bert.embeddings.word_embeddings.weight"].shape
    with_tensor(folder, name, torch.randn(shape if name.endswith("weight") else shape[:1]))
    loaded = hub.read_checkpoint(folder)
    assert f"{name} is not " in loaded.notes[0]
    there = transformers.BertForMaskedLM.from_pretrained(folder)(TOKENS).logits
    batch = {"tokens": TOKENS, "lengths": torch.tensor([5]), "parts": torch.zeros_like(TOKENS)}
    here = loaded.model(batch).words.logits()
    torch.testing.assert_close(here.reshape(there.shape), there, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_same_holds_for_gpt_2_and_a_marian_is_refused(tmp_path: Path) -> None:
    folder = gpt2_folder(tmp_path / "gpt2")
    with_tensor(folder, "lm_head.weight", torch.randn(300, 8))
    loaded = hub.read_checkpoint(folder)
    there = transformers.GPT2LMHeadModel.from_pretrained(folder)(TOKENS).logits
    here = loaded.model({"tokens": TOKENS, "lengths": torch.tensor([5])}).logits()
    torch.testing.assert_close(here.reshape(there.shape), there, atol=1e-5, rtol=1e-5)
    marian = marian_folder(tmp_path / "marian")
    shared = load_file(marian / "model.safetensors")["model.shared.weight"]
    with_tensor(marian, "lm_head.weight", torch.randn(shared.shape))
    with pytest.raises(UserError, match=r"lm_head\.weight is not model\.shared\.weight, though"):
        hub.read_checkpoint(marian)


def renamed(folder: Path, names: dict[str, str]) -> None:
    path = folder / "config.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps({names.get(name, name): each for name, each in held.items()}))


def test_settings_may_have_their_general_names(tmp_path: Path) -> None:
    general = {"n_embd": "hidden_size", "n_head": "num_attention_heads"}
    general |= {"n_layer": "num_hidden_layers", "n_positions": "max_position_embeddings"}
    for name, make in (("gpt2", gpt2_folder), ("gpt", gpt_folder)):
        folder = make(tmp_path / name)
        renamed(folder, general)
        loaded = hub.read_checkpoint(folder)
        config = transformers.AutoConfig.from_pretrained(folder)
        assert loaded.plan.model.heads == config.n_head == 2
        changed(folder, n_head=4)
        with pytest.raises(UserError, match="n_head=4 and num_attention_heads=2 are one setting"):
            hub.read_checkpoint(folder)
    folder = distilbert_folder(tmp_path / "distilbert", "DistilBertModel")
    changed(folder, num_attention_heads=4)
    with pytest.raises(UserError, match="n_heads=2 and num_attention_heads=4 are one setting"):
        hub.read_checkpoint(folder)


def test_what_a_gpt_leaves_out_is_what_transformers_takes(tmp_path: Path) -> None:
    gpt2 = gpt2_folder(tmp_path / "gpt2", n_positions=1024)
    changed(gpt2, n_positions=None, n_ctx=512)
    assert hub.read_checkpoint(gpt2).plan.model.context == 1024
    gpt = gpt_folder(tmp_path / "gpt", n_positions=512)
    changed(gpt, n_positions=None, n_inner=5)  # a setting that this model does not have
    loaded = hub.read_checkpoint(gpt)
    assert (loaded.plan.model.context, loaded.plan.model.hidden) == (512, 32)


def test_a_config_without_a_type_is_told_what_to_add(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path)
    changed(folder, model_type=None)
    with pytest.raises(UserError, match=r'model_type is missing.*; add "model_type": "bert"$'):
        hub.read_checkpoint(folder)
    changed(folder, architectures=None)
    with pytest.raises(UserError, match="add model_type, one of bert, roberta, xlm-roberta"):
        hub.read_checkpoint(folder)


def test_every_activation_of_transformers_is_computed() -> None:
    assert set(ACT2CLS) - set(ACTIVATION_NAMES) == {"prelu", "xielu"}  # which have weights
    x = torch.linspace(-12, 12, 241)
    for theirs, ours in ACTIVATION_NAMES.items():
        torch.testing.assert_close(
            ACTIVATIONS[ours](x), ACT2FN[theirs](x), atol=1e-5, rtol=1e-5, msg=theirs
        )


@torch.no_grad()
@pytest.mark.parametrize("make", [bert_folder, gpt2_folder])
@pytest.mark.parametrize(
    ("labels", "problem"),
    [(1, None), (1, "regression"), (3, "regression"), (3, "multi_label_classification")],
)
def test_scores_of_other_problems_are_those_of_transformers(
    tmp_path: Path, make: object, labels: int, problem: str | None
) -> None:
    kind = "GPT2" if make is gpt2_folder else "Bert"
    architecture = f"{kind}ForSequenceClassification"
    folder = make(tmp_path / "there", architecture, num_labels=labels, problem_type=problem)
    run = import_run(from_pretrained(folder), tmp_path / "run", tmp_path)
    told = [each for each in run.began if each.startswith("num_labels=1 without problem_type")]
    assert len(told) == (problem is None)
    (answer,) = load(tmp_path / "run").predict(["the cat sat on a mat ."])
    words = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, architecture).from_pretrained(folder)
    logits = model(**words("the cat sat on a mat .", return_tensors="pt")).logits[0]
    if problem == "multi_label_classification":
        expected = logits.sigmoid().tolist()
        found = list(answer.fields["probabilities"].values())
        assert len(answer.fields["labels"]) == sum(each >= 0.5 for each in expected)
    else:
        expected = logits.tolist()
        values = answer.fields.get("values", {"LABEL_0": answer.fields["value"]})
        found = list(values.values())
    assert found == pytest.approx(expected, abs=1e-5)
    save_pretrained(run, tmp_path / "back")
    back = getattr(transformers, architecture).from_pretrained(tmp_path / "back")
    assert back.config.problem_type == (problem or "regression")
    assert back.config.num_labels == labels


def test_one_class_is_no_choice(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path, "BertForSequenceClassification", num_labels=1)
    changed(folder, problem_type="single_label_classification")
    with pytest.raises(UserError, match="one label with problem_type=single_label_class"):
        from_pretrained(folder)
    changed(folder, problem_type="ranking")
    with pytest.raises(UserError, match='problem_type="ranking" is not known here'):
        from_pretrained(folder)


def test_folders_of_other_programs_are_known_by_name(tmp_path: Path) -> None:
    adapter = {"base_model_name_or_path": "bert-base-cased", "peft_type": "LORA"}
    cases: dict[str, tuple[dict[str, object], str]] = {
        "peft": ({"adapter_config.json": adapter}, "a PEFT adapter for bert-base-cased, .* merge"),
        "images": ({"model_index.json": {}}, "a diffusers pipeline"),
        "llama": ({"model.gguf": {}}, "GGUF, the weights of llama.cpp"),
        "sentences": (
            {"modules.json": [], "0_Transformer/config.json": {}, "1_Pooling/config.json": {}},
            r"a sentence-transformers folder .* import \S+/0_Transformer$",
        ),
    }
    for name, (files, match) in cases.items():
        for file, held in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(held))
        with pytest.raises(UserError, match=match):
            from_pretrained(tmp_path / name)
    with pytest.raises(UserError, match="GGUF"):
        from_pretrained(tmp_path / "llama" / "model.gguf")


def test_what_else_a_folder_holds_is_told(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path, "BertModel")
    modules = [{"type": f"sentence_transformers.models.{n}"} for n in ("Transformer", "Pooling")]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    for mode, told in (("mean_tokens", False), ("cls_token", True)):
        pooling = {f"pooling_mode_{mode}": True, "word_embedding_dimension": 8}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        notes = from_pretrained(folder).began
        assert [f"pooling_mode_{mode} is not applied" in each for each in notes] == [True] * told
    (folder / "adapter_config.json").write_text("{}")
    assert from_pretrained(folder).began[-1].startswith("adapter_config.json is not applied")
