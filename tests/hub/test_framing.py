"""What stands around texts, and their white space: as transformers has it."""

import json
import random
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.hub.tokenisers import read_folder_tokeniser, read_tokeniser
from regard.runs.pretrained import from_pretrained, import_run, save_pretrained
from regard.runs.run import load
from tests.hub.decoder_folders import LINES, gpt2_folder
from tests.hub.folders import bert_folder, changed, roberta_folder

transformers.logging.set_verbosity_error()
CLASSIFY = "ForSequenceClassification"
MARKED = {"[CLS]": 2, "[SEP]": 3}


def template(single: str, pair: str) -> dict[str, object]:
    made = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=list(MARKED.items())
    )
    pipeline = Tokenizer(models.BPE())
    pipeline.post_processor = made
    held: dict[str, object] = json.loads(pipeline.to_str())["post_processor"]
    return held


POST_PROCESSORS: dict[str, object] = {
    "none": None,
    "only single": template("[CLS] $A [SEP]", "$A $B:1"),
    "only pair": template("$A", "$A [SEP] $B:1"),
    "parts of its own": template("[CLS]:1 $A:0 [SEP]:1", "[CLS]:1 $A:0 [SEP]:1 $B:1 [SEP]:0"),
    "two in front": template("[CLS] [CLS] $A", "[CLS] $A [SEP] [SEP] $B:0 [CLS]"),
}
NAMES = {"with parts": ["input_ids", "token_type_ids", "attention_mask"], "without": ["input_ids"]}


def both(folder: Path) -> list[tuple[list[int], list[int]]]:
    """Ids and parts of one text and of two, by transformers."""
    words = AutoTokenizer.from_pretrained(folder)
    found = [words("the cat"), words("the cat", "a dog sat")]
    return [
        (each["input_ids"], each.get("token_type_ids", [0] * len(each["input_ids"])))
        for each in found
    ]


@pytest.mark.parametrize("named", ["BertTokenizerFast", "PreTrainedTokenizerFast", None])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("post", POST_PROCESSORS)
def test_marks_and_parts_are_those_of_transformers(
    tmp_path: Path, post: str, names: str, named: str | None
) -> None:
    folder = bert_folder(tmp_path)
    path, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "post_processor": POST_PROCESSORS[post]})
    )
    said = {**json.loads(config.read_text()), "model_input_names": NAMES[names]}
    config.write_text(json.dumps({**said, "tokenizer_class": named}))
    ours = read_tokeniser(folder, "bert")
    one, two = ours.encode("the cat"), ours.encode("a dog sat")
    assert [ours.frames.apply([one]), ours.frames.apply([one, two])] == both(folder)


def test_a_template_that_turns_texts_around_is_refused(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path)
    path = folder / "tokenizer.json"
    held = json.loads(path.read_text())
    held["post_processor"] = template("[CLS] $A [SEP]", "[CLS] $B [SEP] $A:1")
    path.write_text(json.dumps(held))
    with pytest.raises(UserError, match="repeats, reorders or divides texts"):
        read_tokeniser(folder, "bert")


@pytest.mark.parametrize("form", ["files", "tokenizer.json"])
@pytest.mark.parametrize(
    "flags", [{"add_bos_token": True}, {"add_bos_token": 1, "add_eos_token": 1}]
)
@torch.no_grad()
def test_a_gpt_2_adds_the_marks_that_it_is_told_to(
    tmp_path: Path, form: str, flags: dict[str, object]
) -> None:
    folder = gpt2_folder(tmp_path / "gpt2")
    if form == "tokenizer.json":  # which transformers prefers to the flags
        AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({k: bool(v) for k, v in flags.items()})
    )
    words = AutoTokenizer.from_pretrained(folder)
    ids = words("the cat sat")["input_ids"]
    run = import_run(from_pretrained(folder), tmp_path / "run", tmp_path)
    kept = load(tmp_path / "run")
    assert kept.task.reads.encode_prompt("the cat sat") == ids
    model = transformers.GPT2LMHeadModel.from_pretrained(folder)
    there = model(torch.tensor([ids])).logits[0, -1].softmax(0).max().item()
    (answer,) = kept.predict(["the cat sat"])
    assert answer.fields["next"][0]["p"] == pytest.approx(there, abs=2e-6)
    assert len(run.look("the cat sat")[0].keys) == len(ids)


@pytest.mark.parametrize("pad", [0, 5, None])
@torch.no_grad()
def test_a_gpt_2_classifier_scores_the_last_token_that_is_not_padding(
    tmp_path: Path, pad: int | None
) -> None:
    folder = gpt2_folder(tmp_path / "gpt2", f"GPT2{CLASSIFY}", num_labels=3, pad_token_id=pad)
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_eos_token": True}))
    words = AutoTokenizer.from_pretrained(folder)
    model = transformers.GPT2ForSequenceClassification.from_pretrained(folder)
    there = model(**words("the cat sat", return_tensors="pt")).logits.softmax(1)[0]
    run = from_pretrained(folder)
    answer, _ = run.predict(["the cat sat", "a dog saw the cat and ran away !"])
    assert list(answer.fields["probabilities"].values()) == pytest.approx(there.tolist(), abs=1e-5)
    save_pretrained(run, tmp_path / "back")
    back = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "back")
    assert back.config.pad_token_id == (0 if pad is None else pad)


def odd_texts(count: int) -> list[str]:
    """Texts with newlines, tabs and several blanks."""
    drawn = random.Random(0)
    words = [word for line in LINES for word in line.split()]
    blanks = [" ", "  ", "\n", " \n\n", "\t", "   "]
    return [
        drawn.choice(["", *blanks])
        + "".join(drawn.choice(words) + drawn.choice(blanks) for _ in range(drawn.randint(1, 9)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("family", ["GPT2", "Roberta"])
@pytest.mark.parametrize("pair", [False, True])
@torch.no_grad()
def test_classifiers_read_white_space_as_it_is(tmp_path: Path, family: str, pair: bool) -> None:
    make = gpt2_folder if family == "GPT2" else roberta_folder
    folder = make(tmp_path / "there", f"{family}{CLASSIFY}")
    opened = from_pretrained(folder, changes=['data.text=["one", "two"]'] if pair else [])
    import_run(opened, tmp_path / "run", tmp_path)
    words = AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    texts = odd_texts(40)
    seconds = odd_texts(80)[40:] if pair else [None] * 40
    held = [
        text if two is None else f"{text.replace(chr(9), ' ')}\t{two.replace(chr(9), ' ')}"
        for text, two in zip(texts, seconds, strict=True)
    ]
    for text, answer in zip(held, load(tmp_path / "run").predict(held), strict=True):
        batch = (
            words(*text.split("\t"), return_tensors="pt")
            if pair
            else words(text, return_tensors="pt")
        )
        if batch["input_ids"].shape[1] > 30:
            continue  # longer than the context, where texts are cut
        there = model(**batch).logits.softmax(1)[0].tolist()
        found = list(answer.fields["probabilities"].values())
        assert found == pytest.approx(there, abs=1e-5), text


@pytest.mark.parametrize("flags", [{}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}])
@pytest.mark.parametrize("named", ["RobertaTokenizer", "PreTrainedTokenizerFast"])
def test_a_mask_takes_the_white_space_that_its_file_gives_it(
    tmp_path: Path, flags: dict[str, object], named: str
) -> None:
    folder = roberta_folder(tmp_path)
    path, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    held = json.loads(path.read_text())
    for each in held["added_tokens"]:
        if each["content"] == "<mask>":
            each |= {"lstrip": False, "rstrip": False, "single_word": False, **flags}
    path.write_text(json.dumps(held))
    said = {**json.loads(config.read_text()), "tokenizer_class": named}
    config.write_text(json.dumps(said))
    words, run = AutoTokenizer.from_pretrained(folder), from_pretrained(folder)
    for text in (
        "the cat <mask> on",
        "<mask> cat",
        "a <mask><mask>  on",
        "the   <mask>",
        "a<mask>b",
    ):
        batch = run.task.encode([Text(text)])
        assert batch["tokens"][0].tolist() == words(text)["input_ids"], text


def test_a_class_that_makes_its_own_pipeline_ignores_that_of_the_file(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path)
    path, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    pipeline = Tokenizer.from_str(path.read_text())
    pipeline.normalizer = normalizers.Replace("cat", "dog")
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pipeline.add_tokens(["caterpillar"])
    path.write_text(pipeline.to_str())
    for named in ("BertTokenizer", "ElectraTokenizerFast", None, "PreTrainedTokenizerFast", "Foo"):
        said = {**json.loads(config.read_text()), "tokenizer_class": named}
        config.write_text(json.dumps(said))
        ours, notes = read_folder_tokeniser(folder, "bert")
        theirs = AutoTokenizer.from_pretrained(folder)
        for text in ("the cat!", "the caterpillar sat.", "The MAT"):
            assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], named
        assert [each[:21] for each in notes] == ['tokenizer_class="Foo"'] * (named == "Foo")
    # A class may stand in config.json too, as the first folders had it.
    config.write_text("{}")
    changed(folder, tokenizer_class="PreTrainedTokenizerFast")
    theirs = AutoTokenizer.from_pretrained(folder)("the cat", add_special_tokens=False)
    assert read_tokeniser(folder, "bert").encode("the cat") == theirs["input_ids"]


def test_a_vocabulary_of_another_kind_than_its_class_is_refused(tmp_path: Path) -> None:
    folder = roberta_folder(tmp_path)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    with pytest.raises(UserError, match=r"holds a BPE, but tokenizer_class, .* means a WordPiece"):
        read_tokeniser(folder, "roberta")


def unigram_folder(folder: Path, family: str, architecture: str, charsmap: bool = False) -> Path:
    """An XLM-RoBERTa or a CamemBERT with a unigram vocabulary of its own."""
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = Tokenizer(models.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=[*marks, "<mask>"], unk_token="<unk>", show_progress=False
    )
    pieces.train_from_iterator(LINES, trainer)
    vocabulary = json.loads(pieces.to_str())["model"]["vocab"]
    name = {"xlm-roberta": "XLMRoberta", "camembert": "Camembert"}[family]
    words = getattr(transformers, f"{name}Tokenizer")(vocab=[tuple(each) for each in vocabulary])
    words.save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2}
    sizes |= {"intermediate_size": 12, "max_position_embeddings": 90, "type_vocab_size": 1}
    config = transformers.AutoConfig.for_model(family, **sizes, vocab_size=len(words))
    torch.manual_seed(3)
    model = getattr(transformers, f"{name}{architecture}")(config)
    for each in model.parameters():
        torch.nn.init.normal_(each, std=0.3)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", ["xlm-roberta", "camembert"])
@torch.no_grad()
def test_xlm_roberta_and_camembert_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    folder = unigram_folder(tmp_path / "words", family, "ForMaskedLM")
    words, run = AutoTokenizer.from_pretrained(folder), from_pretrained(folder)
    for line in [*LINES, *odd_texts(20), "Tokyo 東京 \u00bd"]:
        assert run.task.reads.encode_prompt(line) == words(line)["input_ids"], line
    text = "the cat <mask> on the mat ."
    batch = words(text, return_tensors="pt")
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    where = batch["input_ids"][0] == words.mask_token_id
    likely = model(**batch).logits[0, where].softmax(1)[0]
    likely[run.task.tokeniser.special] = 0.0
    (answer,) = run.predict([text])
    assert answer.fields["masks"][0][0]["p"] == pytest.approx(likely.max().item(), abs=2e-6)
    folder = unigram_folder(tmp_path / "classes", family, CLASSIFY)
    run = import_run(from_pretrained(folder), tmp_path / "run", tmp_path)
    words = AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    for line in LINES:
        there = model(**words(line, return_tensors="pt")).logits.softmax(1)[0].tolist()
        (answer,) = run.predict([line])
        found = list(answer.fields["probabilities"].values())
        assert found == pytest.approx(there, abs=1e-5)
    save_pretrained(run, tmp_path / "back", family=family)
    back = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "back")
    again = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert type(back) is type(model)
    assert again(LINES[0])["input_ids"] == words(LINES[0])["input_ids"]
