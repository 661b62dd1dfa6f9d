"""Laws of beam search: what it finds, and that nothing but the sentence decides on it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.decode import LENGTH_PENALTIES, Beam, search
from tests.decode.translators import (
    BOS,
    EOS,
    NUMBERS,
    Plain,
    Reading,
    Translator,
    all_targets,
    beam,
    log_probability,
    sources,
    tokens_of,
)

# --- the best there is


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.5])
@pytest.mark.parametrize("penalty", LENGTH_PENALTIES)
def test_a_beam_that_is_wide_enough_finds_the_best_of_all(penalty: str, alpha: float) -> None:
    model, most = Translator(vocabulary=3, spread=1.0), 4
    wide = beam(width=48, n_best=5, max_length=most, length_penalty=penalty, alpha=alpha)
    for number, found in zip(NUMBERS, search(model, sources(NUMBERS), wide), strict=True):
        scores = {
            tokens: log_probability(model, number, tokens) / wide.penalty(len(tokens) + 1)
            for tokens in all_targets(3, most)
        }
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:5]
        assert [tuple(each.tokens) for each in found] == best
        assert [each.score for each in found] == pytest.approx([scores[each] for each in best])


@pytest.mark.parametrize("beta", [0.1, 1.0, 20.0])
def test_with_coverage_it_finds_the_best_of_all_too(beta: float) -> None:
    model, most, lengths = Translator(vocabulary=3, spread=1.0), 4, [3, 2, 1, 3, 3, 2, 1]
    wide = beam(width=48, n_best=5, max_length=most, coverage=beta)
    given = sources(NUMBERS, lengths)
    best_without = tokens_of(search(model, given, beam(width=48, n_best=5, max_length=most)))
    results = search(model, given, wide, weights=model.weights)
    for number, length, found in zip(NUMBERS, lengths, results, strict=True):

        def score(tokens: tuple[int, ...], number: int = number, length: int = length) -> float:
            seen = model.looks(number, tokens)[:length]
            covered = float(seen.clamp(max=1.0).log().sum())
            likely = log_probability(model, number, tokens)
            return likely / wide.penalty(len(tokens) + 1) + beta * covered

        best = sorted(all_targets(3, most), key=score, reverse=True)[:5]
        assert [tuple(each.tokens) for each in found] == best
        assert [each.score for each in found] == pytest.approx([score(each) for each in best])
        logs = [log_probability(model, number, each) for each in best]
        assert [each.log_probability for each in found] == pytest.approx(logs)
    assert beta < 1 or tokens_of(results) != best_without, "a test that could fail"


@pytest.mark.parametrize("groups", [1, 2])
def test_with_coverage_unequal_sources_find_what_each_finds_alone(groups: int) -> None:
    """The shortest leave first, and the lengths of the others go on with them."""
    lengths = [1, 3, 2, 3, 1, 2, 3]
    chosen = beam(
        width=4,
        n_best=3,
        max_length=1,
        max_per_source=2,
        coverage=2.0,
        groups=groups,
        diversity=0.5 * (groups - 1),
    )
    model = Translator(vocabulary=6, spread=1.0)

    def weights(state: Reading) -> Tensor:
        return 0.1 * model.weights(state)  # so little that no sum reaches one, where costs end

    together = search(model, sources(NUMBERS, lengths), chosen, weights=weights)
    assert len({len(logits) for _, logits in model.calls}) > 3, "sentences leave one after another"
    for number, length, found in zip(NUMBERS, lengths, together, strict=True):
        (alone,) = search(model, sources([number], [length]), chosen, weights=weights)
        assert [each.tokens for each in found] == [each.tokens for each in alone]
        for here, there in zip(found, alone, strict=True):
            assert here.score == pytest.approx(there.score, abs=1e-5)


# What is drawn are settings and no beam: beartype asks `random` which token of a tuple to look at,
# and what draws may not.
SETTINGS = st.fixed_dictionaries(
    {
        "groups": st.just(1),
        "size": st.integers(2, 5),
        "n": st.integers(1, 5),
        "length_penalty": st.sampled_from(sorted(LENGTH_PENALTIES)),
        "alpha": st.sampled_from([0.0, 0.5, 1.0, 1.7]),
        "min_length": st.integers(0, 3),
        "max_length": st.integers(3, 9),
        "no_repeat": st.integers(0, 3),
        "early": st.booleans(),
    }
)
DIVERSE = st.fixed_dictionaries(
    {
        "groups": st.integers(2, 3),
        "size": st.integers(1, 3),
        "n": st.integers(1, 9),
        "diversity": st.sampled_from([0.3, 1.1, 4.0]),
        "alpha": st.sampled_from([0.0, 0.6]),
        "max_length": st.integers(1, 7),
        "no_repeat": st.sampled_from([0, 2]),
        "early": st.booleans(),
    }
)


def grouped(groups: int, size: int, n: int, **others: int | float | str | bool) -> Beam:
    """A beam of so many groups of one size."""
    return beam(width=groups * size, n_best=min(n, groups * size), groups=groups, **others)


PREFIXES = st.lists(st.lists(st.sampled_from([0, 2, 3]), max_size=3), min_size=4, max_size=4)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    drawn=SETTINGS | DIVERSE,
    numbers=st.lists(st.integers(0, 99), min_size=4, max_size=4, unique=True),
    prefixes=PREFIXES,
    vocabulary=st.integers(5, 9),
    spread=st.sampled_from([1.0, 4.0]),
)
def test_it_finds_what_a_plain_search_of_one_sentence_finds(
    drawn: dict[str, int | float | str | bool],
    numbers: list[int],
    prefixes: list[list[int]],
    vocabulary: int,
    spread: float,
) -> None:
    model, chosen = Translator(vocabulary, spread), grouped(**drawn)
    prefixes = [prefix[: chosen.max_length] for prefix in prefixes]
    found = search(model, sources(numbers), chosen, prefixes=prefixes)
    for number, prefix, hypotheses in zip(numbers, prefixes, found, strict=True):
        plain = Plain(
            lambda tokens, number=number: model.logs(number, tokens),
            chosen,
            chosen.max_length,
            tuple(prefix),
        )
        expected = plain.search()
        assert [tuple(each.tokens) for each in hypotheses] == [tokens for tokens, _ in expected]
        scores = [score for _, score in expected]
        assert [each.score for each in hypotheses] == pytest.approx(scores, abs=1e-5)


def test_a_vocabulary_smaller_than_the_beam_gives_all_that_can_be_written() -> None:
    everything = list(all_targets(3, 2))
    (found,) = search(
        Translator(vocabulary=3), sources([4]), beam(width=30, n_best=30, max_length=2)
    )
    assert sorted(tuple(each.tokens) for each in found) == sorted(everything)


def test_only_the_end_can_be_written() -> None:
    class Done(Translator):
        def after(self, source: Tensor, read: Tensor) -> Tensor:
            return torch.full((len(read), 4), -math.inf).index_fill(1, torch.tensor([EOS]), 0.0)

    (found,) = search(Done(), sources([4]), beam(width=3, n_best=3))
    assert [(each.tokens, each.log_probability) for each in found] == [([], 0.0)]


# --- what a hypothesis says of itself


class Rows(Translator):
    """Logits that depend on the step and the row alone: nothing else tells where one was."""

    def after(self, source: Tensor, read: Tensor) -> Tensor:
        torch.manual_seed(read.shape[1])
        return 2 * torch.randn(len(read), self.vocabulary)


@pytest.mark.parametrize("kind", [Translator, Rows])
@pytest.mark.parametrize(
    "chosen",
    [
        beam(width=1, max_length=9),
        beam(width=4, n_best=4, max_length=9),
        beam(width=6, n_best=6, max_length=9, groups=3, diversity=0.5),
    ],
    ids=["greedy", "beam", "diverse"],
)
def test_rows_lead_to_where_each_token_was_written(kind: type[Translator], chosen: Beam) -> None:
    model = kind(vocabulary=7)
    found = search(model, sources(NUMBERS), chosen)
    assert len({len(logits) for _, logits in model.calls}) > 2, "sentences leave"
    for hypothesis in (each for hypotheses in found for each in hypotheses):
        written, total = [*hypothesis.tokens, EOS], 0.0
        assert len(hypothesis.rows) == len(written)
        steps = zip(model.calls, hypothesis.rows, [BOS, *written[:-1]], written, strict=False)
        for (read, logits), row, before, token in steps:
            assert read[row] == before
            total += float(logits[row].log_softmax(-1)[token])
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-5)


def test_the_best_come_sorted_and_none_comes_twice() -> None:
    for chosen in (
        beam(width=6, n_best=6, max_length=8),
        beam(width=6, n_best=6, max_length=8, groups=3, diversity=0.1),
    ):
        for found in search(Translator(), sources(NUMBERS), chosen):
            scores = [each.score for each in found]
            assert scores == sorted(scores, reverse=True)
            assert len({tuple(each.tokens) for each in found}) == len(found) > 1


# --- nothing else matters


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.permutations(NUMBERS), st.integers(1, len(NUMBERS)), st.sampled_from([1, 3]))
def test_batch_mates_and_their_order_do_not_matter(
    numbers: list[int], size: int, width: int
) -> None:
    chosen = beam(width=width, n_best=width, max_length=9, max_per_source=1, no_repeat=3)
    lengths = {number: number % 4 + 1 for number in NUMBERS}
    together = dict(
        zip(
            NUMBERS,
            search(Translator(), sources(NUMBERS, list(lengths.values())), chosen),
            strict=True,
        )
    )
    some = numbers[:size]
    found = search(Translator(), sources(some, [lengths[each] for each in some]), chosen)
    for number, hypotheses in zip(some, found, strict=True):
        for here, there in zip(hypotheses, together[number], strict=True):
            assert (here.tokens, here.score) == (there.tokens, pytest.approx(there.score))
