"""Scores of outputs: what they compute, literally, and what they say they compute."""

from collections import Counter
from math import exp, log

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.tasks.translation_metrics import METRICS, LengthBand, by_length, score, signature

OUTPUTS = ["The cat sat on the mat .", "a dog barks", "", "it's 3.5 km, isn't it?"]
REFERENCES = ["the cat sat on a mat .", "a dog is barking", "nothing", "It's 3.5 km, is it not?"]

WORDS = st.lists(st.sampled_from(["a", "b", "c", "D", "d"]), max_size=12).map(" ".join)


def literal_multi_bleu(outputs: list[str], references: list[str]) -> float:
    """multi-bleu.perl -lc, line by line: clipped n-grams of up to four words, nothing smoothed."""
    correct, total = [0] * 4, [0] * 4
    written = due = 0
    for output, reference in zip(outputs, references, strict=True):
        said, meant = output.lower().split(), reference.lower().split()
        written, due = written + len(said), due + len(meant)
        for n in range(1, 5):
            grams = Counter(tuple(said[i : i + n]) for i in range(len(said) - n + 1))
            there = Counter(tuple(meant[i : i + n]) for i in range(len(meant) - n + 1))
            total[n - 1] += sum(grams.values())
            correct[n - 1] += sum(min(count, there[gram]) for gram, count in grams.items())
    if written == 0 or 0 in correct:
        return 0.0
    brevity = exp(1 - due / written) if written < due else 1.0
    return 100 * brevity * exp(sum(log(c / t) for c, t in zip(correct, total, strict=True)) / 4)


@given(pairs=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6))
def test_multi_bleu_is_that_of_moses(pairs: list[tuple[str, str]]) -> None:
    outputs, references = [one for one, _ in pairs], [other for _, other in pairs]
    due = literal_multi_bleu(outputs, references)
    assert score("multi_bleu", outputs, references).value == pytest.approx(due, abs=1e-9)


def test_multi_bleu_by_hand() -> None:
    """Of six words five are right, of five pairs three, of four triples two, of three fours one."""
    found = score("multi_bleu", ["A b c d e f"], ["a b c d X f"])
    assert found.value == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    short = score("multi_bleu", ["a b c d"], ["a b c d e f"])
    assert short.value == pytest.approx(100 * exp(1 - 6 / 4))
    assert score("multi_bleu", ["a b c"], ["a b c"]).value == 0.0, "no four words in a row"


def test_the_signature_is_that_of_sacrebleu() -> None:
    version = sacrebleu.__version__
    assert signature("bleu") == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert "|case:lc|" in signature("bleu", lowercase=True)
    assert signature("chrf") == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    for name in METRICS:
        assert score(name, OUTPUTS, REFERENCES).signature == signature(name)


def test_bleu_and_chrf_are_those_of_sacrebleu() -> None:
    references = [REFERENCES]
    assert (
        score("bleu", OUTPUTS, REFERENCES).value == sacrebleu.corpus_bleu(OUTPUTS, references).score
    )
    assert (
        score("bleu", OUTPUTS, REFERENCES, lowercase=True).value
        == sacrebleu.corpus_bleu(OUTPUTS, references, lowercase=True).score
    )
    assert (
        score("chrf", OUTPUTS, REFERENCES).value == sacrebleu.corpus_chrf(OUTPUTS, references).score
    )


@pytest.mark.parametrize("name", sorted(set(METRICS) - {"multi_bleu"}))
def test_case_counts_unless_it_is_ignored(name: str) -> None:
    outputs, references = ["THE CAT SAT ON THE MAT"], ["the cat sat on the mat"]
    best = score(name, references, references).value
    assert score(name, outputs, references).value < best
    assert score(name, outputs, references, lowercase=True).value == best


def test_an_exact_match_does_not_count_blanks() -> None:
    outputs, references = ["a  b ", "a b", "ab", ""], ["a b", "a c", "a b", ""]
    assert score("exact", outputs, references).value == 50.0


@pytest.mark.parametrize(
    ("name", "outputs", "references", "message"),
    [
        ("blue", ["a"], ["a"], "unknown metric 'blue': did you mean 'bleu'"),
        ("bleu", ["a"], ["a", "b"], "1 outputs cannot be compared with 2"),
        ("bleu", [], [], "no outputs to compare"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    as_users_run_it: None, name: str, outputs: list[str], references: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        score(name, outputs, references)


def test_bands_of_length_are_scores_of_their_own_sentences() -> None:
    sources = ["w " * length for length in (1, 10, 11, 20, 35, 70, 80)]
    outputs = ["a b c d e", "a b c d e", "a b c d x", "a b c d e", "x", "a b c d e", "a b x d e"]
    references = ["a b c d e"] * 7
    found = by_length(sources, outputs, references, name="multi_bleu")
    spans = [(0, 10, [0, 1]), (11, 20, [2, 3]), (31, 40, [4]), (61, None, [5, 6])]
    assert found == [
        LengthBand(
            first,
            last,
            len(places),
            score(
                "multi_bleu", [outputs[p] for p in places], [references[p] for p in places]
            ).value,
        )
        for first, last, places in spans
    ]


def test_bands_that_are_none_are_refused(as_users_run_it: None) -> None:
    for bands in ([], [10, 10], [20, 10], [-1, 5]):
        with pytest.raises(UserError, match="must be lengths that grow"):
            by_length(["a"], ["a"], ["a"], bands=bands)
    with pytest.raises(UserError, match="2 sources, 1 outputs and 1 references"):
        by_length(["a", "b"], ["a"], ["a"])
