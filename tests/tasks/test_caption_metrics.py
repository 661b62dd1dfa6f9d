"""Scores of captions: hand-worked examples, and those of the COCO server's code."""

import random

import pytest

from regard.tasks.caption_metrics import bleu_scores, caption_scores, cider_d, rouge_l


def made(seed: int) -> tuple[list[list[str]], list[list[list[str]]]]:
    draw = random.Random(seed)
    words = ["a", "the", "dog", "cat", "runs", "on", "grass", "in", "red", "ball", "boy", "is"]
    references = [[draw.choices(words, k=draw.randint(4, 12)) for _ in range(5)] for _ in range(40)]
    captions = [
        [*draw.choice(each)[: draw.randint(2, 12)], draw.choice(words)] for each in references
    ]
    return captions, references


def test_a_caption_that_is_a_reference_is_perfect() -> None:
    captions = [["a", "dog", "runs", "on", "grass"], ["two", "cats", "sleep", "in", "bed"]]
    references = [[each, ["something", "else"]] for each in captions]
    found = caption_scores(captions, references)
    assert [found[f"bleu{n}"] for n in range(1, 5)] == pytest.approx([100.0] * 4)
    assert found["rouge_l"] == pytest.approx(100.0)


def test_bleu_by_hand() -> None:
    # "the the the cat": "the" counts twice at most, so 3 of 4 words, 1 of 3 pairs, no triple.
    bleu = bleu_scores([["the", "the", "the", "cat"]], [[["the", "cat", "and", "the", "dog"]]])
    brevity = 2.718281828459045 ** (1 - 5 / 4)
    assert bleu[0] == pytest.approx(100 * brevity * 0.75)
    assert bleu[1] == pytest.approx(100 * brevity * (0.75 / 3) ** 0.5)
    assert bleu[2:] == (0.0, 0.0)


def test_nothing_in_common_and_empty_captions_are_zero() -> None:
    for captions in ([["x", "y"]], [[]]):
        found = caption_scores(captions, [[["a", "b", "c"]]])
        assert set(found.values()) == {0.0}


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_the_coco_server(seed: int) -> None:
    bleu = pytest.importorskip("pycocoevalcap.bleu.bleu", reason="an oracle, not a dependency")
    rouge = pytest.importorskip("pycocoevalcap.rouge.rouge", reason="an oracle, not a dependency")
    cider = pytest.importorskip("pycocoevalcap.cider.cider", reason="an oracle, not a dependency")
    captions, references = made(seed)
    known = {n: [" ".join(each) for each in some] for n, some in enumerate(references)}
    ours = {n: [" ".join(each)] for n, each in enumerate(captions)}
    expected = bleu.Bleu(4).compute_score(known, ours, verbose=0)[0]
    assert bleu_scores(captions, references) == pytest.approx([100 * each for each in expected])
    assert rouge_l(captions, references) == pytest.approx(
        100 * rouge.Rouge().compute_score(known, ours)[0]
    )
    assert cider_d(captions, references) == pytest.approx(
        100 * cider.Cider().compute_score(known, ours)[0]
    )
