"""Tokenisers that someone made to break things: each is refused in one line, and we live on."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from regard.core.errors import UserError
from regard.data.text.normalise import RESERVED
from regard.data.text.tokenizer_errors import first_use, hide_panics
from regard.hub.sentencepiece import read_sentencepiece as read_model
from regard.hub.spm_pair import read_pair
from regard.hub.tokenisers import read_tokeniser

pytestmark = pytest.mark.usefixtures("as_users_run_it")

VOCABULARY = {"<|endoftext|>": 0, "a": 1, "b": 2}


def pipeline(**changes: object) -> dict[str, object]:
    """A tokenizer.json that works, but for some changes."""
    model = {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "<|endoftext|>"}
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
    empty = dict.fromkeys(parts)
    return {"version": "1.0", "added_tokens": [], **empty, "model": model, **changes}


def template(*pieces: object) -> Mapping[str, object]:
    return {
        "type": "TemplateProcessing",
        "single": list(pieces),
        "pair": list(pieces),
        "special_tokens": {},
    }


CRAFTED: dict[str, object] = {
    "no object": [],
    "no model": {"version": "1.0"},
    "model of no kind": pipeline(model={"type": "Magic", "vocab": {}}),
    "empty vocabulary": pipeline(model={"type": "WordLevel", "vocab": {}, "unk_token": "x"}),
    "unknown token that is not there": pipeline(
        model={"type": "WordLevel", "vocab": {"zz": 0}, "unk_token": "?"}
    ),
    "unigram whose unknown is out of bounds": pipeline(
        model={"type": "Unigram", "vocab": [["x", -1.0]], "unk_id": 7}
    ),
    "unigram of an empty piece": pipeline(
        model={"type": "Unigram", "vocab": [["", 0.0], ["a", -1.0]], "unk_id": 0}
    ),
    "numbers below zero": pipeline(model={"type": "WordLevel", "vocab": {"a": -1}}),
    "numbers beyond 32 bits": pipeline(model={"type": "WordLevel", "vocab": {"a": 2**40}}),
    "merges of what is not there": pipeline(
        model={"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}
    ),
    "a torn expression": pipeline(
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": "(("},
            "behavior": "Isolated",
            "invert": False,
        }
    ),
    "rules of SentencePiece that are none": pipeline(
        normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    ),
    "our mark with other rules": pipeline(
        model={"type": "WordLevel", "vocab": {**VOCABULARY, RESERVED: 3}, "unk_token": "a"},
        normalizer={"type": "Sequence", "normalizers": []},
        decoder={"type": "Fuse", "x": 1},
        added_tokens=[{"id": 9}],
    ),
    "normalisers that double a text": pipeline(
        normalizer={
            "type": "Sequence",
            "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40,
        }
    ),
    "decoders that double a text": pipeline(
        decoder={
            "type": "Sequence",
            "decoders": [{"type": "Replace", "pattern": {"Regex": ""}, "content": "a"}] * 40,
        }
    ),
    "a number far beyond the vocabulary": pipeline(
        model={"type": "WordLevel", "vocab": {**VOCABULARY, "c": 2**30}, "unk_token": "a"}
    ),
    "marks around a text that are beyond the vocabulary": pipeline(
        post_processor={"type": "BertProcessing", "sep": ["a", 10**6], "cls": ["b", 2]}
    ),
    "a template of tokens that are not there": pipeline(
        post_processor=template({"SpecialToken": {"id": "[X]", "type_id": 0}})
    ),
}


def used(folder: Path) -> None:
    """All that a run does with a tokeniser."""
    tokeniser = read_tokeniser(folder, "gpt2", 3)
    _ = tokeniser.template, tokeniser.encode("a b"), tokeniser.unk


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_tokenizer_json_is_refused(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(CRAFTED[name]))
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        used(tmp_path)
    assert capfd.readouterr().err == "", "what a panic prints is kept back"


def test_what_others_say_while_a_file_is_tried_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    panic = "thread '<unnamed>' (7) panicked at src/lib.rs:1:2:\nnone\nstack backtrace:\n"
    with hide_panics():
        with hide_panics():
            os.write(2, b"one\n")
        os.write(2, b"two\n")
        os.write(2, panic.encode())
    os.write(2, b"three\n")
    assert capfd.readouterr().err == "one\ntwo\nthree\n"

    def panics() -> None:
        with first_use("x.json"):
            os.write(2, b"four\n\n" + panic.encode())
            raise BaseException("none")

    with pytest.raises(UserError, match=r"x\.json: is not a valid tokenizer: none"):
        panics()
    assert capfd.readouterr().err == "four\n"


@pytest.mark.parametrize("depth", [10_000])
def test_json_nested_without_end_is_refused(tmp_path: Path, depth: int) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).write_text("[" * depth + "]" * depth)
        with pytest.raises(UserError):
            read_tokeniser(tmp_path, "gpt2")
        (tmp_path / name).unlink()


def test_a_folder_without_a_tokeniser_is_told_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no tokenizer\.json, and vocab\.txt is missing too"):
        read_tokeniser(tmp_path, "bert")
    with pytest.raises(UserError, match=r"merges\.txt is missing too"):
        read_tokeniser(tmp_path, "gpt2")


@pytest.mark.parametrize(
    ("vocabulary", "merges", "match"),
    [
        ('{"a": "b"}', "", "should have a number"),
        ('{"a": -3}', "", "should have a number"),
        ('{"a": 99999999999}', "", "should have a number"),
        ('{"a": true}', "", "should have a number"),
        ("{}", "", "empty vocabulary"),
        ("[1]", "", "JSON object"),
        ("{", "", "not JSON"),
        ('{"a": 0}', "#version: 0.2\na\n", r"merges\.txt:2: a pair was expected"),
        ('{"a": 0}', "a b c\n", r"merges\.txt:1: a pair was expected"),
        ('{"a": 0}', "a b\n", "is not a valid tokenizer"),
    ],
)
def test_bad_vocabularies_are_refused(
    tmp_path: Path, vocabulary: str, merges: str, match: str
) -> None:
    (tmp_path / "vocab.json").write_text(vocabulary)
    (tmp_path / "merges.txt").write_text(merges)
    with pytest.raises(UserError, match=match):
        read_tokeniser(tmp_path, "gpt2")


TORN: dict[str, bytes] = {
    "nothing": b"",
    "text": b"this is no model at all",
    "a field that ends too soon": b"\x0a\x20abc",
    "a number that never ends": b"\x0a\x05\x08" + b"\xff" * 20,
    "a piece that is a number": b"\x08\x05",
    "a piece that is no text": b"\x0a\x04\x0a\x02\xff\xfe",
    "rules that are torn": b"\x0a\x03\x0a\x01a\x1a\x06\x12\x04\xff\x00\x00\x00",
    "a form that is not known": b"\x0b",
    "words whole": b"\x0a\x03\x0a\x01a\x12\x02\x18\x03",
    "no blank in front": b"\x0a\x03\x0a\x01a\x1a\x02\x18\x00",
}


@pytest.mark.parametrize("name", TORN)
def test_a_torn_model_of_sentencepiece_is_refused(tmp_path: Path, name: str) -> None:
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(TORN[name])
    (tmp_path / "vocab.json").write_text('{"</s>": 0, "<unk>": 1, "a": 2, "<pad>": 3}')
    with pytest.raises(UserError):
        read_pair(tmp_path)


def test_a_model_that_is_cut_within_a_piece_is_refused(tmp_path: Path) -> None:
    one = b"\x0a\x08\x0a\x01a\x15\x00\x00\x80\xbf"
    for size in range(1, 3 * len(one)):
        (tmp_path / "m.spm").write_bytes((one * 3)[:size])
        if size % len(one):
            with pytest.raises(UserError, match=r"m\.spm"):
                read_model(tmp_path / "m.spm")
        else:
            assert len(read_model(tmp_path / "m.spm").pieces) == size // len(one)


def test_an_embedding_with_millions_of_rows_for_a_few_tokens_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(pipeline()))
    general = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(general))
    assert read_tokeniser(tmp_path, "gpt2", 1000).vocabulary == 1000
    with pytest.raises(UserError, match=r"3 tokens, and the embedding 3,000,000 rows"):
        read_tokeniser(tmp_path, "gpt2", 3_000_000)
