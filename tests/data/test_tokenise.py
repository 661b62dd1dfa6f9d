"""Tokenisers: laws over the table of kinds, and files that are not what they should be."""

import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from regard.core.errors import UserError
from regard.data.text.pipeline import BOS, EOS, FAST_ENCODERS, PAD, SPECIALS, UNK, split_words
from regard.data.text.tokeniser import TOKENISERS, Tokeniser, load_tokeniser, train_tokeniser

LINES = [
    "the cat sat on the mat",
    "  the <unk> sat,  on\tthe mat ",
    "",
    "Ünïcödé 語 🙂 it's 42",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
# Text that is close to what was trained on, so that known words come up.
NEAR = st.lists(st.sampled_from([*"abc \n\t語🙂", "the", "cat", *SPECIALS, "\x1c", "\u2028"])).map(
    "".join
)
TRAINED = {kind: train_tokeniser(kind, LINES) for kind in TOKENISERS}
LOSSLESS = ["byte", "bpe"]


@pytest.fixture(params=TOKENISERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("kind", LOSSLESS)
@given(text=TEXT | NEAR)
@example(text="<eos><bos> <pad>\0\r\n")
def test_bytes_and_byte_pairs_give_back_any_text(kind: str, text: str) -> None:
    assert TRAINED[kind].decode(TRAINED[kind].encode(text)) == text


@given(text=TEXT)
def test_characters_come_back_where_they_are_known(text: str) -> None:
    tokeniser = train_tokeniser("char", [text])
    assert tokeniser.decode(tokeniser.encode(text)) == text


def test_unknown_characters_and_words_are_unk() -> None:
    assert TRAINED["char"].encode("zzz") == [TRAINED["char"].unk] * 3
    assert TRAINED["char"].decode(TRAINED["char"].encode("cZt")) == f"c{UNK}t"
    assert TRAINED["word"].encode("dog") == [TRAINED["word"].unk]


@given(text=TEXT | NEAR)
@example(text="a<eos>b <eos>c\n\n<eos> d\n")
def test_words_come_back_with_single_blanks(text: str) -> None:
    told = text.replace(PAD, "").replace(BOS, "")
    tokeniser = train_tokeniser("word", [told, "at least one"])
    lines = [
        [" ".join(split_words(line)) for line in re.split(rf"(?:^|(?<=\s)){EOS}(?=\s|$)", whole)]
        for whole in told.split("\n")
    ]
    expected = "\n".join("\n".join(line) for line in lines)
    if "\x1c" not in told:  # to Python it is white space, to the library it is not
        assert tokeniser.decode(tokeniser.encode(told)) == expected


def test_the_word_kind_writes_lines_as_ptb_needs_them() -> None:
    word = TRAINED["word"]
    tokens = ["the", "cat", EOS, UNK, EOS, EOS]
    assert word.encode(" the cat \n<unk>\n\n") == [word._numbers[token] for token in tokens]
    assert word.ends_lines
    assert not any(TRAINED[kind].ends_lines for kind in TOKENISERS if kind != "word")


@pytest.mark.parametrize("kind", FAST_ENCODERS)
@given(text=TEXT | NEAR)
def test_the_quick_way_is_that_of_the_library(kind: str, text: str) -> None:
    library = Tokenizer.from_str(TRAINED[kind].json)
    library.encode_special_tokens = True
    assert TRAINED[kind].encode(text) == library.encode(text).ids


def test_words_are_split_at_the_white_space_of_the_library() -> None:
    library = Tokenizer.from_str(TRAINED["word"].json)
    for point in [*range(0xD800), *range(0xE000, 0x11000)]:
        text = f"a{chr(point)}b"
        if chr(point).isspace() or point < 0x100:
            assert len(TRAINED["word"].encode(text)) == len(library.encode(text).ids), hex(point)


def test_a_saved_tokeniser_comes_back_exactly(kind: str, tmp_path: Path) -> None:
    tokeniser = TRAINED[kind]
    tokeniser.save(tmp_path / "tokenizer.json")
    again = load_tokeniser(tmp_path / "tokenizer.json")
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    assert (again.kind, again.digest, again.vocabulary) == (
        kind,
        tokeniser.digest,
        tokeniser.vocabulary,
    )
    text = "the cat <eos>\nlikes 語\n"
    assert again.encode(text) == tokeniser.encode(text)


def test_special_tokens_come_first(kind: str) -> None:
    tokeniser = TRAINED[kind]
    assert [tokeniser.pad, tokeniser.unk, tokeniser.bos, tokeniser.eos] == [0, 1, 2, 3]
    assert tokeniser.vocabulary == len(tokeniser._numbers)


def test_padding_and_marks_do_not_show_in_text(kind: str) -> None:
    tokeniser = TRAINED[kind]
    framed = [tokeniser.bos, *tokeniser.encode("the cat"), tokeniser.eos, tokeniser.pad]
    end = "\n" if kind == "word" else ""
    assert tokeniser.decode(framed) == "the cat" + end
    assert tokeniser.decode(torch.tensor(framed)) == "the cat" + end


@pytest.mark.parametrize("special", [PAD, BOS, EOS])
@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_a_special_token_cannot_be_written_into_a_text(kind: str, special: str) -> None:
    tokeniser = train_tokeniser(kind, [special])
    assert not set(tokeniser.encode(f"x{special}")) & {tokeniser.pad, tokeniser.bos, tokeniser.eos}


@given(text=NEAR)
def test_offsets_say_where_tokens_stand(text: str) -> None:
    for tokeniser in TRAINED.values():
        ids, spans = tokeniser.encode(text), tokeniser.offsets(text)
        assert len(ids) == len(spans)
        assert all(0 <= first < last <= len(text) for first, last in spans)
        assert spans == sorted(spans)
    covered = "".join(text[first:last] for first, last in TRAINED["char"].offsets(text))
    assert covered == text
    named = [text[first:last] for first, last in TRAINED["word"].offsets(text)]
    assert named == [word for word in re.split(r"(\n)|[^\S\n\x1c]+", text) if word]


def test_many_texts_are_their_numbers_in_a_row(kind: str) -> None:
    tokeniser = TRAINED[kind]
    one_by_one = [tokeniser.encode(f"{line}\n") for line in LINES]
    together = tokeniser.encode_all([f"{line}\n" for line in LINES])
    assert together.tolist() == [number for ids in one_by_one for number in ids]
    closed = tokeniser.encode_all([f"{line}\n" for line in LINES], end=7)
    assert closed.tolist() == [number for ids in one_by_one for number in [*ids, 7]]
    assert tokeniser.encode_all([]).tolist() == tokeniser.encode_all([], end=7).tolist() == []
    assert tokeniser.encode_all([]).dtype == torch.int64


def test_training_twice_gives_the_same_tokeniser(kind: str) -> None:
    lines = [f"word{n % 97} word{n % 31}" for n in range(2000)]
    assert train_tokeniser(kind, lines).digest == train_tokeniser(kind, lines).digest
    assert train_tokeniser(kind, lines).digest == train_tokeniser(kind, reversed(lines)).digest


@pytest.mark.parametrize("kind", ["word", "char"])
def test_the_most_frequent_are_kept(kind: str) -> None:
    lines = ["b b b", "a a a a", "c c", "d"]
    kept = set(train_tokeniser(kind, lines, vocabulary=7)._numbers) - set(SPECIALS)
    # Among characters the blank (6) and the line end (4) come before b (3), c (2) and d (1).
    assert kept == ({"a", "b", "c"} if kind == "word" else {"a", " ", "\n"})
    assert "d" not in train_tokeniser(kind, lines, min_frequency=2)._numbers
    assert "c" in train_tokeniser(kind, lines, min_frequency=2)._numbers


def test_byte_pairs_keep_to_their_limit() -> None:
    assert TRAINED["bpe"].vocabulary > 260
    assert train_tokeniser("bpe", LINES, vocabulary=262).vocabulary == 262
    assert train_tokeniser("bpe", LINES, vocabulary=260).encode("ab") == train_tokeniser(
        "bpe", ["x"], 260
    ).encode("ab")
    assert train_tokeniser("bpe", LINES, min_frequency=100).vocabulary == 260


def test_byte_pairs_are_learnt_from_lines_with_their_ends() -> None:
    # Blanks at the end of a line belong with its end, so " \n" is the one pair there is to learn.
    tokeniser = train_tokeniser("bpe", ["a "] * 3, vocabulary=261)
    assert tokeniser.encode("a \n") == [*tokeniser.encode("a"), 260]


@pytest.mark.parametrize(("kind", "least"), [("word", 5), ("char", 5), ("byte", 260), ("bpe", 260)])
def test_a_vocabulary_below_the_special_tokens_is_refused(kind: str, least: int) -> None:
    assert train_tokeniser(kind, LINES, vocabulary=least).vocabulary == least
    with pytest.raises(UserError, match=rf"vocabulary={least - 1} is too small .* least {least}"):
        train_tokeniser(kind, LINES, vocabulary=least - 1)
    with pytest.raises(UserError, match="vocabulary=0 must be"):
        train_tokeniser(kind, LINES, vocabulary=0)


@pytest.mark.parametrize("kind", ["word", "char", "bpe"])
def test_no_text_is_refused(kind: str) -> None:
    with pytest.raises(UserError, match="no text to train"):
        train_tokeniser(kind, [])


def test_a_misspelt_kind_names_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown tokeniser 'chars': did you mean 'char'"):
        train_tokeniser("chars", LINES)


def test_an_error_of_the_reader_comes_through_training() -> None:
    def torn() -> object:
        yield "a"
        raise UserError("a.txt:2: torn")

    for kind in ("word", "char", "bpe"):
        with pytest.raises(UserError, match=r"a\.txt:2: torn"):
            train_tokeniser(kind, torn())


def test_half_a_surrogate_pair_is_refused(kind: str) -> None:
    for use in (TRAINED[kind].encode, TRAINED[kind].offsets):
        with pytest.raises(UserError, match=r"character 3 .* half a surrogate pair"):
            use("ab\ud800")


@pytest.mark.parametrize("number", [-100, -1, 10**6])
def test_a_number_outside_the_vocabulary_is_refused(kind: str, number: int) -> None:
    with pytest.raises(UserError, match=f"{number} is not in this vocabulary"):
        TRAINED[kind].decode([4, number])


def altered(kind: str, path: Path, **parts: object) -> Path:
    """A tokenizer.json of which some parts have been replaced."""
    path.write_text(json.dumps(json.loads(TRAINED[kind].json) | parts))
    return path


BROKEN: dict[str, dict[str, object]] = {
    "panics when loaded": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "panics when used": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "knows no unknown": {"model": {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "?"}},
    "has no model": {"model": None},
    "has a model of no kind": {"model": {"type": "Oracle"}},
    "has no vocabulary": {
        "model": {"type": "BPE", "vocab": {}, "merges": []},
        "added_tokens": [],
    },
}


@pytest.mark.parametrize("flaw", BROKEN)
def test_a_tokenizer_file_that_breaks_the_library_is_refused(flaw: str, tmp_path: Path) -> None:
    path = altered("bpe", tmp_path / "tokenizer.json", **BROKEN[flaw])
    with pytest.raises(UserError, match=r"tokenizer\.json: "):
        load_tokeniser(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe"])
def test_a_file_that_is_no_tokenizer_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(UserError, match=r"tokenizer\.json: "):
        load_tokeniser(tmp_path / "tokenizer.json")


def test_a_missing_tokenizer_names_the_one_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").touch()
    with pytest.raises(UserError, match=r"did you mean .*tokenizer\.json"):
        load_tokeniser(tmp_path / "tokeniser.json")


def test_a_tokenizer_from_elsewhere_works_with_its_own_special_tokens(tmp_path: Path) -> None:
    foreign = Tokenizer.from_str(TRAINED["bpe"].json)
    foreign.enable_truncation(2)
    foreign.enable_padding(length=50)
    vocabulary = {"a": 0, "b": 1, "[UNK]": 2, "[SEP]": 3, "[PAD]": 9}
    held = json.loads(foreign.to_str()) | {
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
        "pre_tokenizer": {"type": "Whitespace"},
        "added_tokens": [],
        "decoder": None,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(held))
    tokeniser = load_tokeniser(tmp_path / "tokenizer.json")
    assert tokeniser.kind is None
    # It neither cuts to two nor fills up to fifty.
    assert tokeniser.encode("a b a b c") == [0, 1, 0, 1, 2]
    assert (tokeniser.pad, tokeniser.unk, tokeniser.eos) == (9, 2, 3)
    assert tokeniser.vocabulary == 10
    with pytest.raises(UserError, match=r"has no <bos> token, nor any of <bos>, <s>"):
        _ = tokeniser.bos


def test_saving_where_nothing_can_be_written_is_told_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        TRAINED["byte"].save(tmp_path / "file" / "tokenizer.json")


@pytest.mark.parametrize(("kind", "run"), [("bpe", "a"), ("bpe", " "), ("wordpiece", "a")])
def test_what_has_no_end_is_learnt_from_in_pieces(kind: str, run: str) -> None:
    """Learning takes time in the square of a run: a million characters would take hours."""
    learnt = train_tokeniser(kind, [run * 5000, "a short line"], 300)
    longest = max(len(learnt.token(each)) for each in range(learnt.vocabulary))
    assert 256 <= longest <= 512 + len("##")


def test_a_line_of_a_million_characters_is_tokenised(kind: str) -> None:
    tokeniser: Tokeniser = TRAINED[kind]
    ids = tokeniser.encode("ab" * 500_000)
    assert len(ids) == {"word": 1, "char": 1_000_000, "byte": 1_000_000}.get(kind, len(ids))
    if kind in LOSSLESS:
        assert tokeniser.decode(ids) == "ab" * 500_000


@pytest.mark.parametrize("kind", ["wordpiece", "wordpiece_cased"])
@given(text=TEXT | NEAR)
@example(text="a\x0bb the\x1ccat\u2028mat\x85 \u0301e 語the")
def test_pieces_word_by_word_are_those_of_the_library(kind: str, text: str) -> None:
    library = Tokenizer.from_str(TRAINED[kind].json)
    library.encode_special_tokens = True
    assert TRAINED[kind].encode_each([text]) == [library.encode(text, add_special_tokens=False).ids]


def test_word_pieces_hold_every_letter_and_keep_to_their_limit() -> None:
    assert train_tokeniser("wordpiece", LINES, vocabulary=60).vocabulary == 60
    assert train_tokeniser("wordpiece", ["Ä"]).encode("a") != [TRAINED["wordpiece"].unk]
    assert train_tokeniser("wordpiece_cased", ["Ä"]).encode("ä") == [TRAINED["wordpiece"].unk]
    with pytest.raises(UserError, match="vocabulary=7 is too small for the characters"):
        train_tokeniser("wordpiece", LINES, vocabulary=7)


def test_word_pieces_are_framed_as_bert_frames_them() -> None:
    template = TRAINED["wordpiece"].template
    assert template is not None
    assert (template.before, template.between, template.after, template.parts) == (
        (2,),
        (3,),
        (3,),
        (0, 1),
    )
    assert all(TRAINED[kind].template is None for kind in ("word", "char", "byte", "bpe"))
