"""Laws of beam search: what it finds, and that nothing but the sentence decides on it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.core.protocols import Batch
from regard.decode import (
    LENGTH_PENALTIES,
    Beam,
    Greedy,
    Hypothesis,
    Likeliest,
    Request,
    Row,
    Search,
    Stream,
    Written,
    collected,
    search,
)
from regard.models.gpt import GPT
from regard.models.rnn_lm import RNNLM
from tests.decode.fakes import Narrow
from tests.decode.translators import (
    BOS,
    EOS,
    Plain,
    Reading,
    Translator,
    all_targets,
    log_probability,
    sources,
)

NUMBERS = [3, 14, 15, 9, 2, 6, 5]


def beam(**given: int | float | str | bool) -> Beam:
    """Settings for translators; lengths that do not depend on the source unless they are given."""
    return Beam(**{"bos": BOS, "eos": EOS, "max_per_source": 0, **given})  # type: ignore[arg-type]


def tokens_of(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[each.tokens for each in hypotheses] for hypotheses in found]


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


SETTINGS = st.builds(
    lambda groups, size, n, **others: beam(
        width=groups * size, n_best=min(n, groups * size), groups=groups, **others
    ),
    groups=st.just(1),
    size=st.integers(2, 5),
    n=st.integers(1, 5),
    length_penalty=st.sampled_from(sorted(LENGTH_PENALTIES)),
    alpha=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
    min_length=st.integers(0, 3),
    max_length=st.integers(3, 9),
    no_repeat=st.integers(0, 3),
    early=st.booleans(),
)
DIVERSE = st.builds(
    lambda groups, size, n, **others: beam(
        width=groups * size, n_best=min(n, groups * size), groups=groups, **others
    ),
    groups=st.integers(2, 3),
    size=st.integers(1, 3),
    n=st.integers(1, 9),
    diversity=st.sampled_from([0.3, 1.1, 4.0]),
    alpha=st.sampled_from([0.0, 0.6]),
    max_length=st.integers(1, 7),
    no_repeat=st.sampled_from([0, 2]),
    early=st.booleans(),
)
PREFIXES = st.lists(st.lists(st.sampled_from([0, 2, 3]), max_size=3), min_size=4, max_size=4)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    chosen=SETTINGS | DIVERSE,
    numbers=st.lists(st.integers(0, 99), min_size=4, max_size=4, unique=True),
    prefixes=PREFIXES,
    vocabulary=st.integers(5, 9),
    spread=st.sampled_from([1.0, 4.0]),
)
def test_it_finds_what_a_plain_search_of_one_sentence_finds(
    chosen: Beam, numbers: list[int], prefixes: list[list[int]], vocabulary: int, spread: float
) -> None:
    model = Translator(vocabulary, spread)
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


# --- greedy


def models() -> dict[str, Callable[[], GPT | RNNLM]]:
    wide = RNNLM.Config(cell="lstm", width=12, layers=2, dropout=0.0, spread=2.0)
    loose = GPT.Config(width=16, heads=2, layers=2, context=40, tied=False)
    return {
        "lstm": lambda: RNNLM(wide, 30).eval(),
        "gpt": lambda: GPT(loose, 30).eval(),
    }


@pytest.fixture(params=models())
def model(request: pytest.FixtureRequest) -> GPT | RNNLM:
    torch.manual_seed(3)
    built = models()[request.param]()
    with torch.no_grad():  # or every text would be one token repeated
        for parameter in built.parameters():
            parameter.mul_(4.0)
    return built


def test_a_beam_of_one_is_greedy(model: GPT | RNNLM) -> None:
    prompts = torch.randint(2, 30, (12, 4))
    prompts[:, -1] = BOS

    def written(**stop: set[int]) -> list[Written]:
        request = Request(policy=Greedy(), max_tokens=15, alternatives=0, **stop)
        texts = collected(Stream(model, {"tokens": prompts}, prompts, request))
        return [texts[Row(number)] for number in range(len(prompts))]

    endless = [set(text.tokens) for text in written()]
    (eos, ending), *_ = Counter(token for text in endless for token in text).most_common()[1:]
    assert 2 < ending < 12, "a test that could fail"
    found = search(model, {"tokens": prompts}, beam(width=1, max_length=15, eos=eos))
    for text, (best,) in zip(written(stop={eos}), found, strict=True):
        if text.reason == "length":
            assert best.tokens == text.tokens
        else:
            assert [*best.tokens, eos] == text.tokens
            assert text.log_probabilities is not None
            assert best.log_probability == pytest.approx(sum(text.log_probabilities), abs=1e-4)


def test_the_log_probability_is_that_of_a_whole_pass(model: GPT | RNNLM) -> None:
    prompts = torch.randint(2, 30, (3, 4))
    prompts[:, -1] = BOS
    found = search(model, {"tokens": prompts}, beam(width=5, n_best=5, max_length=9))
    for prompt, hypotheses in zip(prompts.tolist(), found, strict=True):
        for each in hypotheses:
            written = torch.tensor([*each.tokens, EOS])
            with torch.no_grad():
                prediction, _ = model(torch.tensor([[*prompt, *each.tokens]]))
                logs = prediction.logits()[0, 3:].log_softmax(-1)
            total = float(logs.gather(1, written[:, None]).sum())
            assert each.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("others", [{}, {"no_repeat": 2, "min_length": 3}])
def test_greedy_is_what_a_search_of_width_one_finds(others: dict[str, int]) -> None:
    chosen = beam(width=1, max_length=9, early=True, **others)
    prefixes = [[2, 3] if number % 2 else [] for number in NUMBERS]
    given = sources(NUMBERS)
    short = search(Translator(), given, chosen, prefixes=prefixes)
    steps = list(Search(Translator(), given, chosen, prefixes=prefixes))
    long = dict(found for step in steps for found in step)
    for number, (best,) in enumerate(short):
        (other,) = long[number]
        assert best.tokens == other.tokens
        assert best.score == pytest.approx(other.score, abs=1e-5)


def test_greedy_without_scores_writes_the_same() -> None:
    given = sources(NUMBERS)
    full = search(Translator(), given, beam(width=1, max_length=9))
    bare = search(Translator(), given, beam(width=1, max_length=9, scores=False))
    assert tokens_of(bare) == tokens_of(full)
    assert all(math.isnan(best.score) and math.isnan(best.log_probability) for (best,) in bare)


# --- what is allowed


def test_lengths_follow_the_source() -> None:
    class Endless(Translator):
        def after(self, source: Tensor, read: Tensor) -> Tensor:
            return super().after(source, read).index_fill(1, torch.tensor([EOS]), -50.0)

    class Hasty(Translator):
        def after(self, source: Tensor, read: Tensor) -> Tensor:
            return super().after(source, read).index_fill(1, torch.tensor([EOS]), 50.0)

    lengths = [1, 2, 5]
    for width in (1, 3):
        limits = beam(
            width=width, min_length=1, min_per_source=0.5, max_length=2, max_per_source=1.5
        )
        long, short = (
            [len(best.tokens) for best, *_ in search(kind(), sources([7, 8, 9], lengths), limits)]
            for kind in (Endless, Hasty)
        )
        assert long == [3, 5, 9]
        assert short == [2, 2, 4]


def test_a_text_is_never_longer_than_the_context() -> None:
    model, start = Narrow(()), torch.tensor([[5]])
    for width in (1, 2):
        chosen = Beam(width=width, bos=5, eos=99, max_per_source=0)
        ((best, *_),) = search(model, {"tokens": start}, chosen)
        assert len(best.tokens) == 9, "ten are read, and the first is no part of the text"


def test_a_repeated_sequence_never_comes() -> None:
    for size in (1, 2, 3):
        for width in (1, 4):
            chosen = beam(width=width, n_best=width, max_length=12, no_repeat=size, alpha=2)
            for found in search(Translator(vocabulary=16), sources(NUMBERS), chosen):
                for each in found:
                    pieces = zip(*(each.tokens[at:] for at in range(size)), strict=False)
                    counted = list(pieces)
                    assert len(counted) == len(set(counted))


def test_given_first_tokens_come_first_whatever_the_model_and_the_other_limits_say() -> None:
    prefixes: list[list[int]] = [[2, 2, 2, 2], [], [4], [0, 3]]
    for width, extra in ((1, {}), (4, {}), (4, {"groups": 2, "diversity": 3.0})):
        chosen = beam(width=width, n_best=width, max_length=6, no_repeat=2, **extra)
        found = search(Translator(), sources(NUMBERS[:4]), chosen, prefixes=prefixes)
        for prefix, hypotheses in zip(prefixes, found, strict=True):
            assert all(each.tokens[: len(prefix)] == prefix for each in hypotheses)


def test_groups_write_something_else() -> None:
    class Sure(Translator):
        """Says the same in every row, so that only the groups can make a difference."""

        def after(self, source: Tensor, read: Tensor) -> Tensor:
            return torch.tensor([[-9.0, -9.0, 3.0, 2.5, 2.0, 1.5]] * len(read))

    def firsts(**extra: int | float) -> set[int]:
        chosen = beam(width=4, n_best=4, max_length=3, length_penalty="none", **extra)
        ((*found,),) = search(Sure(), sources([1]), chosen)
        return {each.tokens[0] for each in found}

    assert firsts() == {2, 3}
    assert firsts(groups=4, diversity=9.0) == {2, 3, 4, 5}
    assert firsts(groups=4, diversity=0.1) == {2}


# --- the work that is done


@dataclass(frozen=True)
class Watched(Reading):
    """Notes which rows were chosen."""

    chosen: list[list[int]] = field(default_factory=list)

    def select(self, rows: Tensor) -> "Watched":
        self.chosen.append(rows.tolist())
        return Watched(self.source[rows], self.tokens[rows], self.chosen)


@dataclass
class Scripted(Translator):
    """Says what each sentence is told to say, and the second best is far behind."""

    lengths: Sequence[int] = ()
    chosen: list[list[int]] = field(default_factory=list)

    def start(self, source: Batch) -> Watched:
        reading = super().start(source)
        return Watched(reading.source, reading.tokens, self.chosen)

    def step(self, tokens: Tensor, state: Reading) -> tuple[Tensor, Reading]:
        logits, after = super().step(tokens, state)
        return logits, Watched(after.source, after.tokens, self.chosen)

    def after(self, source: Tensor, read: Tensor) -> Tensor:
        logits = torch.tensor([0.0, -30.0, 9.0, -20.0]).repeat(len(read), 1)
        wanted = torch.tensor(self.lengths)[source.long()]
        logits[read.shape[1] > wanted, EOS] = 40.0
        return logits


def test_rows_are_only_chosen_when_their_order_changes() -> None:
    model = Scripted(lengths=[6])
    search(model, sources([0]), beam(width=2, n_best=1, length_penalty="none"))
    assert model.chosen[0] == [0, 0], "one row becomes two"
    assert all(rows != [0, 1] for rows in model.chosen)
    assert len(model.chosen) < len(model.calls) - 1


def test_sentences_that_are_done_leave_with_the_rows_in_the_order_of_sentences() -> None:
    model = Scripted(lengths=[1, 3, 2])
    found = search(model, sources([0, 1, 2]), beam(width=2, length_penalty="none"))
    assert [best.tokens for (best,) in found] == [[2], [2, 2, 2], [2, 2]]
    assert [len(logits) for _, logits in model.calls] == [3, 6, 4, 2]


def test_greedy_chooses_rows_only_when_a_quarter_has_ended() -> None:
    model = Scripted(lengths=[1, 2, 3, 4, 5, 6, 7, 8])
    steps = [
        [number for number, _ in step]
        for step in Likeliest(model, sources(range(8)), beam(width=1, max_length=20))
    ]
    assert [len(logits) for _, logits in model.calls] == [8, 8, 8, 6, 6, 4, 3, 2, 1]
    assert steps == [[], [], [0, 1], [], [2, 3], [4], [5], [6], [7]]
    assert model.chosen == [[2, 3, 4, 5, 6, 7], [2, 3, 4, 5], [1, 2, 3], [1, 2], [1]]


class Rising(Translator):
    """Ends at once with some chance, or goes on with certainty once it has gone on."""

    def after(self, source: Tensor, read: Tensor) -> Tensor:
        if read.shape[1] == 1:
            return torch.tensor([[0.0, 0.6, 0.4, 0.0]] * len(read)).log()
        if read.shape[1] <= 4:
            return torch.tensor([[0.0, 0.0, 1.0, 0.0]] * len(read)).log()
        return torch.tensor([[0.0, 1.0, 0.0, 0.0]] * len(read)).log()


def test_the_search_goes_on_exactly_as_long_as_something_better_may_come() -> None:
    """Of four tokens and chance 0.4, or none and 0.6: the first is better per token."""
    average = {"length_penalty": "average", "alpha": 1}
    ((late,),) = search(model := Rising(), sources([1]), beam(width=2, **average))
    assert late.tokens == [2, 2, 2, 2]
    assert len(model.calls) == 5
    ((soon,),) = search(model := Rising(), sources([1]), beam(width=2, length_penalty="none"))
    assert soon.tokens == []
    assert len(model.calls) == 1, "what costs more now never costs less"
    # log 0.4 / 2 > log 0.6, but only if a text of one token and its end is allowed to be so long
    ((near,),) = search(model := Rising(), sources([1]), beam(width=2, max_length=0, **average))
    assert near.tokens == []
    assert len(model.calls) == 1


def test_early_ends_when_as_many_as_there_are_beams_have_ended() -> None:
    for number in NUMBERS:
        exact, early = Translator(), Translator()
        best = search(exact, sources([number]), beam(width=3, early=False, alpha=1.5))
        first = search(early, sources([number]), beam(width=3, early=True, alpha=1.5))
        assert len(early.calls) <= len(exact.calls)
        assert first[0][0].score <= best[0][0].score
