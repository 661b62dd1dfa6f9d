"""Texts as numbers: words, sentences, spellings and words of another vocabulary, side by side."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.data import EMPTY_ROW, train_tokeniser
from regard.data.text.characters import END_WORD, WordCharacters, character_ids
from regard.data.text.encoding import TextEncoding, encode_texts
from regard.data.text.segment import plain_words, split_sentences

WORDS = train_tokeniser("word", ["a b c d"])
TEXTS = st.lists(
    st.lists(st.lists(st.sampled_from("abcde"), max_size=4), min_size=1, max_size=3), max_size=5
)


@given(TEXTS, st.sampled_from([None, 1, 3]))
def test_every_text_comes_back_from_its_batch(texts: list[list[list[str]]], most: int) -> None:
    held = encode_texts(
        texts,
        TextEncoding(WORDS, characters=True, longest=most, source=train_tokeniser("word", ["b"])),
    )
    assert len(held) == len(texts)
    for number, text in enumerate(texts):
        words = [word for piece in text for word in piece][:most]
        batch = held.gather(torch.tensor([number, EMPTY_ROW]))
        assert batch["lengths"].tolist() == [len(words), 0]
        assert batch["tokens"][0, : len(words)].tolist() == WORDS.encode(" ".join(words))
        parts = [place for place, piece in enumerate(text) for _ in piece][:most]
        assert batch["parts"][0, : len(words)].tolist() == parts
        assert not batch["tokens"][1].any()
        assert not batch["characters"][1].any()
        assert (batch["parts"][1] == -1).all()
        assert batch["source_tokens"][0, : len(words)].tolist() == [
            4 if word == "b" else 1 for word in words
        ]
        for row, word in zip(batch["characters"][0].tolist(), words, strict=False):
            assert [each for each in row if each] == character_ids(word)


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
def test_the_parts_of_a_pair_are_apart_by_eos(kind: str) -> None:
    tokeniser = train_tokeniser(kind, ["a b", "c"])
    batch = encode_texts([[["a", "b"], ["c"]]], TextEncoding(tokeniser, pairs=True)).gather(
        torch.tensor([0])
    )
    first, second = tokeniser.encode("a b"), tokeniser.encode("c")
    assert batch["tokens"][0].tolist() == [*first, tokeniser.eos, *second]
    assert batch["parts"][0].tolist() == [0] * (len(first) + 1) + [1] * len(second)


def test_long_words_are_cut_and_any_character_is_known() -> None:
    assert len(character_ids("x" * 90)) == 50
    assert character_ids("x" * 90)[-1] == END_WORD
    assert max(character_ids("☃\U0010ffff")) <= 260
    assert WordCharacters().rows(torch.zeros(2, 3).long()).shape == (2, 3, 1)


def test_a_source_that_reads_no_words_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="has the tokeniser char; use one whose recipe has tok"):
        TextEncoding(WORDS, source=train_tokeniser("char", ["ab"]))


def test_sentences_end_at_marks_lines_and_mark_up_but_not_behind_titles() -> None:
    text = 'Dr. No is "good." I said:<br />so what?!\nJ. Doe (he...) left'
    sentences = [" ".join(each) for each in split_sentences(plain_words(text))]
    assert sentences == [
        'dr . no is " good . "',
        "i said :",
        "so what ? !",
        "j . doe ( he . . . )",
        "left",
    ]
    assert plain_words("A <b>B</b> x<y", lowercase=False) == ["A", "\n", "B", "\n", "x", "<", "y"]
    assert split_sentences([]) == []
