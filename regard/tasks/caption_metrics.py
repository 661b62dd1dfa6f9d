"""How alike captions are to what people wrote: BLEU-1 to 4, ROUGE-L and CIDEr-D.

Captions and references are lists of words, without punctuation and in lower case, as the captioning
literature compares them. Each image has several references. All go from 0 to 100, but CIDEr-D has
no upper bound: 100 is the 1.0 of its authors.

>>> references = [[["a", "dog", "runs"], ["the", "dog", "is", "running"]]]
>>> round(caption_scores([["a", "dog", "runs"]], references)["rouge_l"], 1)
100.0
"""

from collections import Counter
from collections.abc import Sequence
from math import exp, log

_ORDERS = 4
_BETA = 1.2
"""The weight of recall in ROUGE-L, as the COCO server has it."""
_SIGMA = 6.0
"""The width of CIDEr-D's penalty for another length."""

_Words = Sequence[str]
_Grams = Counter[tuple[str, ...]]


def caption_scores(
    captions: Sequence[_Words], references: Sequence[Sequence[_Words]]
) -> dict[str, float]:
    """Every score of some captions against the references of their images."""
    bleu = bleu_scores(captions, references)
    return {
        **{f"bleu{order}": bleu[order - 1] for order in range(1, _ORDERS + 1)},
        "rouge_l": rouge_l(captions, references),
        "cider": cider_d(captions, references),
    }


def grams(words: _Words, order: int) -> _Grams:
    """How often each sequence of so many words occurs.

    >>> grams(["a", "b", "a", "b"], 2)
    Counter({('a', 'b'): 2, ('b', 'a'): 1})
    """
    return Counter(tuple(words[at : at + order]) for at in range(len(words) - order + 1))


def bleu_scores(
    captions: Sequence[_Words], references: Sequence[Sequence[_Words]]
) -> tuple[float, ...]:
    """BLEU-1 to 4 of a corpus, with the brevity penalty of the nearest reference length.

    BLEU-n is the geometric mean of the clipped precisions of 1 to n words (Papineni et al. 2002),
    not smoothed.
    """
    matched, total = [0] * _ORDERS, [0] * _ORDERS
    length = nearest = 0
    for caption, known in zip(captions, references, strict=True):
        length += len(caption)
        nearest += min((abs(len(each) - len(caption)), len(each)) for each in known)[1]
        for order in range(1, _ORDERS + 1):
            most: _Grams = Counter()
            for each in known:
                most |= grams(each, order)
            found = grams(caption, order)
            matched[order - 1] += (found & most).total()
            total[order - 1] += found.total()
    brevity = 1.0 if length > nearest else exp(1 - nearest / max(length, 1))
    scores: list[float] = []
    logs = 0.0
    for order in range(_ORDERS):
        if not matched[order]:
            return (*scores, *([0.0] * (_ORDERS - order)))
        logs += log(matched[order] / total[order])
        scores.append(100 * brevity * exp(logs / (order + 1)))
    return tuple(scores)


def rouge_l(captions: Sequence[_Words], references: Sequence[Sequence[_Words]]) -> float:
    """The mean F of the longest common subsequence (Lin 2004), the best reference counting."""
    values = []
    for caption, known in zip(captions, references, strict=True):
        shared = [longest_common(caption, each) for each in known]
        pairs = list(zip(shared, known, strict=True))
        precision = max((each / len(caption) for each in shared), default=0.0) if caption else 0.0
        recall = max((each / len(words) for each, words in pairs if words), default=0.0)
        both = recall + _BETA**2 * precision
        values.append((1 + _BETA**2) * precision * recall / both if both else 0.0)
    return 100 * sum(values) / max(len(values), 1)


def longest_common(one: _Words, other: _Words) -> int:
    """The length of the longest common subsequence.

    >>> longest_common("abcd", "xbyd")
    2
    """
    row = [0] * (len(other) + 1)
    for word in one:
        corner = 0
        for at, against in enumerate(other, start=1):
            corner, row[at] = (
                row[at],
                (corner + 1 if word == against else max(row[at], row[at - 1])),
            )
    return row[-1]


def cider_d(captions: Sequence[_Words], references: Sequence[Sequence[_Words]]) -> float:
    """CIDEr-D (Vedantam et al. 2015): cosines of tf-idf vectors of 1 to 4 words, clipped.

    How rare a sequence is follows from in how many images its references have it.
    """
    documents: _Grams = Counter()
    for known in references:
        documents.update({gram for each in known for gram in _all_grams(each)})
    whole = log(max(len(references), 1))
    values = [
        sum(_cider(caption, each, documents, whole) for each in known) / len(known)
        for caption, known in zip(captions, references, strict=True)
    ]
    return 1000 * sum(values) / max(len(values), 1)


def _cider(caption: _Words, reference: _Words, documents: _Grams, whole: float) -> float:
    """The mean over 1 to 4 words of one pair's clipped cosine, with the penalty for length."""
    penalty = exp(-((len(caption) - len(reference)) ** 2) / (2 * _SIGMA**2))
    total = 0.0
    for order in range(1, _ORDERS + 1):
        ours, theirs = (_weighted(each, order, documents, whole) for each in (caption, reference))
        product = sum(min(weight, theirs.get(gram, 0.0)) * theirs.get(gram, 0.0)
                      for gram, weight in ours.items())  # fmt: skip
        length = _norm(ours) * _norm(theirs)
        total += product / length * penalty if length else 0.0
    return total / _ORDERS


def _all_grams(words: _Words) -> _Grams:
    return sum((grams(words, order) for order in range(1, _ORDERS + 1)), Counter())


def _weighted(
    words: _Words, order: int, documents: _Grams, whole: float
) -> dict[tuple[str, ...], float]:
    """tf-idf of each sequence; the frequency is a count, as in the authors' code."""
    return {
        gram: count * (whole - log(max(1.0, documents[gram])))
        for gram, count in grams(words, order).items()
    }


def _norm(weights: dict[tuple[str, ...], float]) -> float:
    return float(sum(each**2 for each in weights.values()) ** 0.5)
