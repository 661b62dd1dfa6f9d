"""Unigram tokenisers: every text survives, and the likeliest split is taken."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.data import load_tokeniser, train_tokeniser
from regard.data.text.pipeline import BYTE_CHARACTERS, SPECIALS

LINES = ["the cat sat on the mat", "the dog sat by the cat", "a cat and a dog"] * 20
WORDS = train_tokeniser("unigram", LINES, 300)


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_survives(text: str) -> None:
    numbers = WORDS.encode(text)
    assert WORDS.decode(numbers) == text
    assert WORDS.unk not in numbers


def test_the_split_is_the_likeliest() -> None:
    scores = dict(json.loads(WORDS.json)["model"]["vocab"])
    word = "cats"
    splits = [
        [word[a:b] for a, b in pairwise([0, *cuts, len(word)])]
        for mask in range(8)
        for cuts in [[place + 1 for place in range(3) if mask >> place & 1]]
    ]
    likely = [sum(scores.get(piece, -math.inf) for piece in split) for split in splits]
    found = [WORDS.token(number) for number in WORDS.encode(word)]
    assert sum(scores[piece] for piece in found) == pytest.approx(max(likely))


def test_files_hold_it(tmp_path: Path) -> None:
    WORDS.save(tmp_path / "tokenizer.json")
    again = load_tokeniser(tmp_path / "tokenizer.json")
    assert (again.kind, again.digest) == ("unigram", WORDS.digest)
    assert again.encode("the cat") == WORDS.encode("the cat")
    tokens = {WORDS.token(number) for number in range(WORDS.vocabulary)}
    assert {*BYTE_CHARACTERS, *SPECIALS} <= tokens
    assert WORDS.vocabulary <= 300


def test_what_cannot_be_trained() -> None:
    with pytest.raises(UserError, match="no text"):
        train_tokeniser("unigram", [])
    with pytest.raises(UserError, match="the 256 bytes"):
        train_tokeniser("unigram", LINES, 100)
