"""What is written for a token."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.look.figure import family_with, font_for, letters_of, printable
from regard.look.label import LONGEST, SIGNS, escape_letter, shorten_label, visible
from tests.look.hostile import TOKENS

LONGEST_SIGN = len(escape_letter("\U0010ffff"))


def seen(text: str) -> bool:
    """Nothing in it that has no ink, but plain spaces between other letters."""
    inner = text.replace(" ", "")
    return bool(inner) and not any(unicodedata.category(letter)[0] in "ZC" for letter in inner)


@pytest.mark.parametrize("name", TOKENS)
def test_every_hostile_token_is_short_and_seen(name: str) -> None:
    (text,) = printable([TOKENS[name]])
    assert seen(text)
    assert len(text) <= LONGEST + LONGEST_SIGN
    assert all(family_with(letter) for letter in text)


@given(st.text(st.characters()))
def test_every_token_is_short_and_seen(token: str) -> None:
    text = visible(token)
    assert seen(text)
    assert text == text.strip()
    assert len(text) <= LONGEST + LONGEST_SIGN


@given(st.text("abc <>&$_{}é", min_size=1, max_size=LONGEST).filter(lambda text: text.strip(" ")))
def test_a_short_token_with_ink_stays_as_it_is_but_for_spaces_around(token: str) -> None:
    assert visible(token).replace("␣", " ") == token
    assert visible(token).strip("␣") == token.strip(" ")


def test_white_space_alone_has_a_sign() -> None:
    assert [visible(space) for space in SIGNS] == list(SIGNS.values())
    assert visible("   ") == "␣␣␣"
    assert visible("\u00a0") == r"\u{a0}"


def test_both_ends_of_a_long_token_are_kept_and_no_sign_is_cut_in_two() -> None:
    assert visible("a" * 15 + "-" * 9_000 + "z" * 15) == "a" * 13 + "…" + "z" * 6
    assert shorten_label([r"\u{4e2d}"] * 4) == r"\u{4e2d}…"
    assert visible("x" * LONGEST) == "x" * LONGEST


def test_a_letter_that_no_font_has_is_written_as_its_number() -> None:
    assert visible("a中b", lambda letter: letter != "中") == r"a\u{4e2d}b"
    assert printable(["\U0010fffd"]) == [r"\u{10fffd}"]
    assert family_with("\uffff") is None


def test_the_house_font_has_our_own_signs_in_bold_too() -> None:
    ours = "".join(SIGNS.values()) + "∅…◌\\{}–"
    assert all(ord(letter) in letters_of("DejaVu Sans") for letter in ours)
    assert font_for([ours], 9.0).get_family() == ["DejaVu Sans"]
