"""Word alignments: from weights between tokens to links, and the error rate of links."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.data.text.alignment import Gold, error_rate, gold, hard, merged, pharaoh, words_of
from regard.data.text.pipeline import split_words
from regard.data.text.tokeniser import TOKENISERS, train_tokeniser

LINES = ["the cat  sat", " on a mat", "語 🙂 cat", "", "  "]
LINKS = st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


@pytest.mark.parametrize("kind", TOKENISERS)
@pytest.mark.parametrize("line", LINES)
def test_every_word_has_tokens_and_they_are_in_order(kind: str, line: str) -> None:
    tokeniser = train_tokeniser(kind, LINES, None if kind != "bpe" else 264)
    found = words_of(tokeniser, line)
    assert len(found) == len(tokeniser.encode(line))
    numbers = [number for number in found if number is not None]
    assert numbers == sorted(numbers)
    assert sorted(set(numbers)) == list(range(len(split_words(line))))


def test_byte_pairs_belong_to_the_word_they_end_in() -> None:
    tokeniser = train_tokeniser("bpe", ["low lower lowest"] * 9, 270)
    text = "low lowest"
    pieces = [tokeniser.decode([number]) for number in tokeniser.encode(text)]
    assert "".join(pieces) == text
    found = words_of(tokeniser, text)
    spelled = ["", ""]
    for piece, number in zip(pieces, found, strict=True):
        assert number is not None
        spelled[number] += piece.strip()
    assert spelled == ["low", "lowest"]


def test_merging_adds_up_source_tokens_and_averages_target_tokens() -> None:
    weights = torch.rand(5, 6)
    source: list[int | None] = [0, 0, None, 1, 2, None]
    target: list[int | None] = [0, 1, 1, None]  # the fifth row is that of <eos>
    found = merged(weights, source, target)
    assert found.shape == (2, 3)
    for row in range(2):
        for column in range(3):
            mine = [t for t, word in enumerate(target) if word == row]
            held = [s for s, word in enumerate(source) if word == column]
            due = sum(float(weights[t, s]) for t in mine for s in held) / len(mine)
            assert float(found[row, column]) == pytest.approx(due, abs=1e-6)


def test_words_that_are_tokens_are_left_as_they_are() -> None:
    weights = torch.rand(3, 4)
    assert torch.equal(merged(weights, range(4), range(3)), weights)


def test_a_target_word_is_linked_with_the_source_word_it_looked_at_most() -> None:
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.0, 0.0, 0.0]])
    assert hard(weights) == {(1, 0), (0, 1)}, (
        "of equals the first; nothing for one that looked away"
    )
    assert hard(torch.zeros(0, 3)) == hard(torch.zeros(3, 0)) == frozenset()


@given(links=LINKS)
def test_a_line_of_links_can_be_read_again(links: frozenset[tuple[int, int]]) -> None:
    assert gold(pharaoh(links)) == Gold(links, links)


@given(found=LINKS, sure=LINKS, more=LINKS)
def test_the_error_rate_is_that_of_och_and_ney(
    found: frozenset[tuple[int, int]],
    sure: frozenset[tuple[int, int]],
    more: frozenset[tuple[int, int]],
) -> None:
    people = Gold(sure, sure | more)
    if not found and not sure:
        return
    right = sum(link in sure for link in found) + sum(link in people.possible for link in found)
    due = 1 - right / (len(found) + len(sure))
    assert error_rate([found], [people]) == pytest.approx(due)
    assert error_rate([found, found], [people, people]) == pytest.approx(due)
    if sure:
        assert error_rate([sure], [people]) == 0.0


def test_the_error_rate_is_over_all_links_and_no_mean_of_sentences() -> None:
    one, other = frozenset({(0, 0)}), frozenset({(0, 0), (1, 1), (2, 2)})
    wrong = frozenset({(5, 5)})
    assert error_rate([wrong, other], [Gold(one, one), Gold(other, other)]) == pytest.approx(2 / 8)


@pytest.mark.parametrize(
    ("line", "first", "message"),
    [
        ("0-0 1:2", 0, r"talk:7: '1:2' is no link; write 0-1"),
        ("0-0 -1-2", 0, "'-1-2' is no link"),
        ("0-1", 1, "'0-1' counts from 0"),
    ],
)
def test_what_is_no_link_is_told_with_its_place(line: str, first: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        gold(line, where="talk:7", first=first)


def test_alignments_that_do_not_fit_are_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="3 tokens have words, but the weights are of 2"):
        merged(torch.rand(1, 2), [0, 1, 2], [0])
    with pytest.raises(UserError, match="1 alignments cannot be compared with 0"):
        error_rate([frozenset()], [])
    with pytest.raises(UserError, match="no links to compare"):
        error_rate([frozenset()], [Gold(frozenset(), frozenset())])
    with pytest.raises(UserError, match="sure links must be possible too; 1-2 are not"):
        Gold(frozenset({(1, 2)}), frozenset())
