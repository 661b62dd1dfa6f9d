"""The trigram model that feed-forward language models are compared with."""

from itertools import product
from math import exp, log

import pytest

from bench.kneser_ney import KneserNey, words_of

TEXT = words_of(
    ["the cat sat on the mat", "the dog sat on the cat", "a cat saw the dog on a mat"] * 2
    + ["a dog saw a cat", "the mat", "on the mat sat a dog", "a cat"]
)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_words_after_any_context_share_all_probability(order: int) -> None:
    model, words = KneserNey(TEXT, order), sorted(set(TEXT))
    for context in product(words, repeat=order - 1):
        total = sum(model.probability((*context, word)) for word in words)
        assert total == pytest.approx(1, abs=1e-12), context


def test_a_bigram_by_hand() -> None:
    """p(b | a) = max(c(ab) - D, 0) / c(a) + D N1+(a ·) / c(a) · p(b), with D = 1/2 for few counts.

    Of "a b a b a a" the bigrams are ab 2, ba 2, aa 1. Two words precede a, one precedes b, of three
    kinds of bigrams; too few counts to estimate discounts, so that each is 1/2.
    """
    model = KneserNey(["a", "b", "a", "b", "a", "a"], 2)
    unigram = (1 - 0.5) / 3 + (0.5 + 0.5) / 3 * 0.5
    assert model.probability(("a", "b")) == pytest.approx((2 - 0.5) / 3 + 1 / 3 * unigram)
    assert model.probability(("b", "b")) == pytest.approx(0.5 / 2 * unigram)


def test_the_perplexity_is_that_of_the_probabilities() -> None:
    model, text = KneserNey(TEXT), words_of(["a cat sat on the mat"])
    grams = [tuple(text[max(0, at - 2) : at + 1]) for at in range(len(text))]
    mean = sum(log(model.probability(gram)) for gram in grams) / len(text)
    assert model.perplexity(text) == pytest.approx(exp(-mean))
    assert model.perplexity(text) < KneserNey(TEXT, 1).perplexity(text)
