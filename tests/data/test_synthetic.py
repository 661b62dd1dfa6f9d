"""Made-up pairs: each source has one answer, splits share no day, and nothing depends on chance."""

import re
from datetime import date
from itertools import product
from pathlib import Path

import pytest

from regard.core.errors import UserError
from regard.data.text.pipeline import split_words
from regard.data.text.synthetic import (
    DAY_COUNT,
    GENERATORS,
    LOCALES,
    SPLIT_BOUNDS,
    date_forms,
    days_of_split,
    is_unambiguous,
    synthetic_pairs,
)
from regard.data.text.tokeniser import train_tokeniser

SPLITS = list(SPLIT_BOUNDS)


@pytest.mark.parametrize("name", GENERATORS)
def test_more_pairs_begin_with_the_fewer(name: str) -> None:
    few, many = (synthetic_pairs(name, count, seed=4, split="train") for count in (7, 50))
    assert many[:7] == few
    assert len(many) == 50


@pytest.mark.parametrize("name", GENERATORS)
def test_seeds_and_splits_differ(name: str) -> None:
    made = [
        tuple(synthetic_pairs(name, 20, seed=seed, split=split))
        for seed in (0, 1)
        for split in SPLITS
    ]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_pair_is_two_lines_of_text(name: str) -> None:
    for pair in synthetic_pairs(name, 500, seed=0, split="train"):
        for text in pair:
            assert text == " ".join(text.split()), "no blank at an end, no tab, no line end"
            assert text.isprintable()


def test_a_source_says_one_date_in_whatever_language_and_case() -> None:
    """Small numbers in every place are where day, month and year could be mistaken."""
    said: dict[str, date] = {}
    for year, month, day in product((2001, 2005, 2011), range(1, 13), (1, 2, 5, 11)):
        meant = date(year, month, day)
        for form in date_forms():
            text = form(meant)
            for written in (text, text.lower(), text.upper()):
                assert said.setdefault(written, meant) == meant, written


@pytest.mark.parametrize("split", SPLITS)
def test_targets_are_days_of_their_split(split: str) -> None:
    mine = {day.isoformat() for day in days_of_split(split)}
    made = [target for _, target in synthetic_pairs("dates", 300, seed=2, split=split)]
    assert set(made) <= mine
    assert len(set(made)) == 300, "no day comes again before all have come"


def test_every_day_is_in_one_split() -> None:
    dealt = [day for split in SPLITS for day in days_of_split(split)]
    assert len(dealt) == len(set(dealt)) == DAY_COUNT
    assert (min(dealt), max(dealt)) == (date(1970, 1, 1), date(2069, 12, 31))


def test_days_come_again_when_there_are_no_more() -> None:
    count = len(days_of_split("test"))
    made = [target for _, target in synthetic_pairs("dates", count + 10, seed=0, split="test")]
    assert len(set(made[:count])) == count
    assert made[count:] == made[:10]


def test_dates_come_in_many_languages_forms_and_cases() -> None:
    texts = [source for source, _ in synthetic_pairs("dates", 5000, seed=0, split="train")]
    shown = " ".join(texts)
    for wanted in (
        *("Sunday the ", "dimanche", "Sonntag, den", "воскресенье", "Κυριακή", "日曜日", "일요일"),
        *("2nd of ", "FEBRERO", "febrero", ".XII.", "de març", "grudnia", "kwietnia"),
    ):
        assert wanted in shown, wanted
    for shape in (r"\d\d?/\d\d?/\d\d", r"\d\d\.\d\d\.\d\d", r"\d{8}", r"\d{4}-\d\d-\d\d"):
        assert any(re.fullmatch(shape, text) for text in texts), shape
    assert len(LOCALES) >= 12


def test_patterns_that_leave_day_and_month_in_doubt_are_not_used() -> None:
    from babel import Locale

    patterns = {
        name: Locale.parse(name).date_formats["short"].pattern for name in ("en_GB", "fr", "de")
    }
    assert {name: is_unambiguous(pattern) for name, pattern in patterns.items()} == {
        "en_GB": False,
        "fr": False,
        "de": True,
    }


def test_what_is_to_be_copied_is_in_the_source_and_in_no_vocabulary() -> None:
    training = synthetic_pairs("copy", 3000, seed=0, split="train")
    known = train_tokeniser("word", [text for pair in training for text in pair], min_frequency=20)
    assert known.vocabulary < 100
    unknown = copied = 0
    for source, target in synthetic_pairs("copy", 500, seed=0, split="test"):
        numbered = zip(split_words(target), known.encode(target), strict=True)
        lacking = [word for word, number in numbered if number == known.unk]
        assert set(lacking) <= set(split_words(source))
        unknown += len(lacking)
        copied += len(split_words(target))
    assert unknown / copied > 0.4


def test_names_of_the_test_are_new() -> None:
    seen = {
        word
        for pair in synthetic_pairs("copy", 3000, seed=0, split="train")
        for word in split_words(pair[0])
    }
    fresh = [
        w
        for pair in synthetic_pairs("copy", 500, seed=0, split="test")
        for w in split_words(pair[0])
    ]
    named = [word for word in fresh if word[0].isupper()]
    assert sum(word in seen for word in named) / len(named) < 0.05


def test_a_generator_that_is_not_there_is_named(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="unknown generator 'date': did you mean 'dates'"):
        synthetic_pairs("date", 1, seed=0, split="train")
    with pytest.raises(UserError, match="count=0 must be"):
        synthetic_pairs("dates", 0, seed=0, split="train")


def test_babel_is_imported_only_where_it_is_needed() -> None:
    source = Path(__file__).parents[2] / "regard" / "data" / "text" / "synthetic.py"
    assert not re.search(r"^(from|import) babel", source.read_text(), flags=re.MULTILINE)


def test_an_echo_is_letters_beside_themselves() -> None:
    pairs = synthetic_pairs("echo", 200, seed=1, split="train")
    assert all(source == target for source, target in pairs)
    assert {len(source) for source, _ in pairs} == set(range(4, 13))
