"""Any number of sentences, in batches that nobody notices, in the order in which they came."""

from collections.abc import Iterator, Sequence

import pytest
import torch

from regard.core.protocols import Batch
from regard.decode import Beam, decode, decode_in_chunks, decode_unordered, search
from tests.decode.translators import BOS, EOS, Translator, sources

NUMBERS = [31, 4, 15, 92, 65, 35, 8, 97, 93, 2, 38]
LENGTHS = [number % 5 + 1 for number in NUMBERS]
BEAMS = {
    "greedy": Beam(width=1, bos=BOS, eos=EOS, max_length=4),
    "beam": Beam(width=3, n_best=2, bos=BOS, eos=EOS, max_length=4),
}


@pytest.fixture(params=BEAMS)
def beam(request: pytest.FixtureRequest) -> Beam:
    return BEAMS[request.param]


def read(places: Sequence[int]) -> Batch:
    return sources([NUMBERS[each] for each in places], [LENGTHS[each] for each in places])


def tokens_alone(beam: Beam) -> list[list[list[int]]]:
    """Each sentence without the others."""
    found = [search(Translator(), read([place]), beam)[0] for place in range(len(NUMBERS))]
    return [[each.tokens for each in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("max_rows", [1, 4, 7, 100])
def test_every_sentence_gets_its_own_in_the_order_of_the_input(beam: Beam, max_rows: int) -> None:
    model = Translator()
    found = decode(model, read, LENGTHS, beam, max_rows=max_rows)
    assert [[each.tokens for each in hypotheses] for hypotheses in found] == tokens_alone(beam)
    assert max(len(logits) for _, logits in model.calls) <= max(max_rows, beam.width)


def test_sentences_of_like_length_are_searched_together_the_longest_first(beam: Beam) -> None:
    asked: list[list[int]] = []

    def noted(places: Sequence[int]) -> Batch:
        asked.append([LENGTHS[each] for each in places])
        return read(places)

    numbers = [
        n for n, _ in decode_unordered(Translator(), noted, LENGTHS, beam, max_rows=4 * beam.width)
    ]
    assert sorted(numbers) == list(range(len(NUMBERS)))
    assert [len(each) for each in asked] == [4, 4, 3]
    assert [length for each in asked for length in each] == sorted(LENGTHS, reverse=True)


def test_sentences_come_as_they_are_done() -> None:
    class Long(Translator):
        """As long as the limit lets it be."""

        def after(self, source: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
            return super().after(source, read).index_fill(1, torch.tensor([EOS]), -40.0)

    model = Long()
    limits = Beam(width=2, bos=BOS, eos=EOS, max_length=0, max_per_source=2)
    found = decode_unordered(model, read, LENGTHS, limits)
    number, (best, *_) = next(found)
    assert len(best.tokens) == 2 * LENGTHS[number] == 2 * min(LENGTHS)
    assert len(model.calls) == len(best.tokens) + 1, "the others are still being written"


def test_prefixes_go_with_their_sentences(beam: Beam) -> None:
    prefixes = [[2 + number % 3] * (number % 3) for number in NUMBERS]
    found = decode(Translator(), read, LENGTHS, beam, max_rows=6, prefixes=prefixes)
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        assert all(each.tokens[: len(prefix)] == prefix for each in hypotheses)


@pytest.mark.parametrize("chunk", [1, 4, 50])
def test_lines_that_come_one_by_one_are_answered_chunk_by_chunk(beam: Beam, chunk: int) -> None:
    taken: list[int] = []

    def lines() -> Iterator[int]:
        for place in range(len(NUMBERS)):
            taken.append(place)
            yield place

    answers = decode_in_chunks(Translator(), lines(), read, LENGTHS.__getitem__, beam, chunk=chunk)
    found = [next(answers)]
    assert len(taken) == min(chunk, len(NUMBERS)), "no further line was waited for"
    found += answers
    assert [[each.tokens for each in hypotheses] for hypotheses in found] == tokens_alone(beam)


def test_no_sentences_give_nothing(beam: Beam) -> None:
    assert decode(Translator(), read, [], beam) == []
    assert list(decode_in_chunks(Translator(), [], read, len, beam)) == []
