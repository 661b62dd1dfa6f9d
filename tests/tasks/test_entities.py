"""Entity F1 is conlleval's: against its rules written out, and against the package seqeval."""

import random
from collections.abc import Sequence

import pytest

from regard.core.errors import UserError
from regard.data.text.conll import WRITERS
from regard.tasks.confusion import Confusion, Rates
from regard.tasks.conll_metrics import Counted


def ends(previous: str, tag: str, kind_before: str, kind: str) -> bool:
    """Conlleval's rules for where a chunk has ended, of the tag before and the tag here."""
    pairs = {("B", "B"), ("B", "S"), ("B", "O"), ("I", "B"), ("I", "S"), ("I", "O")}
    pairs |= {("E", each) for each in "EIOBS"} | {("S", each) for each in "EIOBS"}
    return (previous, tag) in pairs or (previous != "O" and kind_before != kind)


def starts(previous: str, tag: str, kind_before: str, kind: str) -> bool:
    """Conlleval's rules for where a chunk starts."""
    if tag in "BS":
        return True
    if previous in "ESO" and tag in "EI":
        return True
    return tag != "O" and kind_before != kind


def conlleval(true: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> Rates:
    """One pass over all words, as the script goes: chunks right, found and there.

    A blank line, which is O, stands between sentences.
    """
    rows: list[tuple[str, str]] = []
    for one, two in zip(true, said, strict=True):
        rows += [*zip(one, two, strict=True), ("O", "O")]
    right = found = there = 0
    correct = False
    last, guess_last = ("O", ""), ("O", "")
    for tags in rows:
        tag, guess = ((each[0], each[2:]) for each in tags)
        ended = ends(last[0], tag[0], last[1], tag[1])
        guess_ended = ends(guess_last[0], guess[0], guess_last[1], guess[1])
        if correct:
            if ended and guess_ended and last[1] == guess_last[1]:
                correct = False
                right += 1
            elif ended != guess_ended or tag[1] != guess[1]:
                correct = False
        started = starts(last[0], tag[0], last[1], tag[1])
        guess_started = starts(guess_last[0], guess[0], guess_last[1], guess[1])
        correct = correct or (started and guess_started and tag[1] == guess[1])
        there += started
        found += guess_started
        last, guess_last = tag, guess
    return Rates(right, found, there)


def drawn(seed: int, letters: str, rows: int = 30) -> list[list[str]]:
    """Random tags, most of which break every scheme."""
    draw = random.Random(seed)
    tags = ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("X", "Y"))]
    lengths = random.Random(0)
    return [draw.choices(tags, k=lengths.randint(1, 9)) for _ in range(rows)]


LETTERS = {"iob1": "IB", "iob2": "IB", "bioes": "IBES"}


@pytest.mark.parametrize("scheme", WRITERS)
@pytest.mark.parametrize("seed", range(5))
def test_any_tags_are_counted_as_conlleval_counts_them(scheme: str, seed: int) -> None:
    true, said = drawn(seed, LETTERS[scheme]), drawn(seed + 100, LETTERS[scheme])
    # Half of the words are right, so that some chunks are.
    coin = random.Random(seed)
    said = [
        [t if coin.random() < 0.6 else s for t, s in zip(one, two, strict=True)]
        for one, two in zip(true, said, strict=True)
    ]
    counted = Counted.of(true, said, scheme)
    assert counted.total == conlleval(true, said)
    assert counted.total.right > 0


@pytest.mark.parametrize("seed", range(3))
def test_iob2_is_counted_as_seqeval_counts_it(seed: int) -> None:
    theirs_are = pytest.importorskip("seqeval.metrics", reason="an oracle, not a dependency")
    true, said = drawn(seed, "IB"), drawn(seed + 100, "IB")
    pairs = zip(true, said, strict=True)
    said = [one if place % 2 else two for place, (one, two) in enumerate(pairs)]
    counted = Counted.of(true, said, "iob2")
    assert counted.total.f1 == pytest.approx(theirs_are.f1_score(true, said))
    report = theirs_are.classification_report(true, said, output_dict=True)
    for kind, rates in counted.kinds.items():
        theirs = report[kind]
        assert rates.row() == pytest.approx(
            [theirs[n] for n in ("precision", "recall", "f1-score")]
        )
        assert rates.there == theirs["support"]


def test_whole_bioes_is_counted_as_seqeval_counts_it() -> None:
    seqeval = pytest.importorskip("seqeval.metrics", reason="an oracle, not a dependency")
    schemes = pytest.importorskip("seqeval.scheme", reason="an oracle, not a dependency")
    true = [["B-X", "E-X", "O", "S-Y"], ["S-X", "S-X"]]
    said = [["B-X", "E-X", "S-Y", "O"], ["S-X", "S-Y"]]
    theirs = seqeval.f1_score(true, said, mode="strict", scheme=schemes.IOBES)
    assert Counted.of(true, said, "bioes").total.f1 == pytest.approx(theirs)


def test_nothing_found_is_zero_and_not_an_error() -> None:
    counted = Counted.of([["B-X"]], [["O"]], "iob2")
    assert (counted.total.precision, counted.total.recall, counted.total.f1) == (0.0, 0.0, 0.0)
    assert "overall" in counted.table()
    assert Counted.of([["O"]], [["O"]], "iob2").total.f1 == 0.0


def test_other_numbers_of_tags_are_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="2 tags were given for 1 words"):
        Counted.of([["O"]], [["O", "O"]], "iob2")


def test_figures_of_classes_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="an oracle, not a dependency")
    draw = random.Random(1)
    true = [draw.randrange(4) for _ in range(200)]
    said = [each if draw.random() < 0.5 else draw.randrange(4) for each in true]
    counted = Confusion.of("abcd", true, said)
    assert counted.accuracy == pytest.approx(metrics.accuracy_score(true, said))
    for average, ours in (("macro", counted.macro_f1), ("micro", counted.micro_f1)):
        assert ours == pytest.approx(metrics.f1_score(true, said, average=average))
    assert [list(row) for row in counted.counts] == metrics.confusion_matrix(true, said).tolist()
