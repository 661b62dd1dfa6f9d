"""A trigram model with modified Kneser-Ney smoothing: what Bengio et al. 2003 compare with.

`python -m bench.kneser_ney ptb.train.txt.gz ptb.test.txt.gz` prints its perplexity. Lines end with
<eos>, and contexts run on from line to line, as they do for the language models here. Interpolated,
with the three discounts of Chen and Goodman (1999), section 3, for each order; the unigrams are
interpolated with the uniform distribution over the vocabulary.
"""

import gzip
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

_Gram = tuple[str, ...]


@dataclass(frozen=True)
class _Order:
    """The n-grams of one length, with the sums that their contexts need."""

    counts: Counter[_Gram]
    totals: Counter[_Gram]
    """Of each context."""
    kept: dict[_Gram, list[int]]
    """How many continuations of each context were counted once, twice, and more often."""
    discounts: tuple[float, float, float]

    @staticmethod
    def of(counts: Counter[_Gram]) -> "_Order":
        """From the counts of the n-grams."""
        totals: Counter[_Gram] = Counter()
        kept: dict[_Gram, list[int]] = defaultdict(lambda: [0, 0, 0])
        for gram, count in counts.items():
            totals[gram[:-1]] += count
            kept[gram[:-1]][min(count, 3) - 1] += 1
        return _Order(counts, totals, dict(kept), discounts(counts))

    def probability(self, gram: _Gram, lower: float) -> float:
        """Of the last word after the others, given its probability by the shorter context."""
        context = gram[:-1]
        total = self.totals[context]
        if not total:
            return lower
        count = self.counts[gram]
        taken = self.discounts[min(count, 3) - 1] if count else 0.0
        left = sum(d * n for d, n in zip(self.discounts, self.kept[context], strict=True))
        return max(count - taken, 0.0) / total + left / total * lower


def discounts(counts: Counter[_Gram]) -> tuple[float, float, float]:
    """D1, D2 and D3+ by Chen and Goodman's equation 26.

    >>> few = Counter({("a",): 1, ("b",): 1, ("c",): 2, ("d",): 3, ("e",): 4})
    >>> [round(each, 3) for each in discounts(few)]
    [0.5, 0.5, 1.0]
    """
    n = [sum(count == k for count in counts.values()) for k in (1, 2, 3, 4)]
    if not all(n):
        return (0.5, 0.5, 0.5)
    y = n[0] / (n[0] + 2 * n[1])
    return tuple(max(0.0, k - (k + 1) * y * n[k] / n[k - 1]) for k in (1, 2, 3))  # type: ignore[return-value]


class KneserNey:
    """p(word | the words before it), for contexts of up to `order` - 1 words."""

    def __init__(self, words: Sequence[str], order: int = 3) -> None:
        self.order = order
        self.vocabulary = len(set(words))
        grams = [
            Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))
            for n in range(1, order + 1)
        ]
        continued = [Counter(gram[1:] for gram in grams[n]) for n in range(1, order)]
        self.orders = [_Order.of(each) for each in (*continued, grams[-1])]

    def probability(self, gram: _Gram) -> float:
        """Of the last word of an n-gram after the others."""
        p = 1 / self.vocabulary
        for n, held in enumerate(self.orders, start=1):
            p = held.probability(gram[len(gram) - n :], p) if n <= len(gram) else p
        return p

    def perplexity(self, words: Sequence[str]) -> float:
        """Of a text whose words are all in the vocabulary."""
        total = 0.0
        for at in range(len(words)):
            total -= log(self.probability(tuple(words[max(0, at - self.order + 1) : at + 1])))
        return exp(total / len(words))


def words_of(lines: Iterable[str]) -> list[str]:
    """The words of a text, with <eos> after each line."""
    return [word for line in lines for word in (*line.split(), "<eos>")]


def _read(path: str) -> list[str]:
    opened = gzip.open if path.endswith(".gz") else open
    with opened(Path(path), "rt", encoding="utf-8") as file:
        return words_of(file)


if __name__ == "__main__":
    model = KneserNey(_read(sys.argv[1]))
    for path in sys.argv[2:]:
        print(f"{path}: {model.perplexity(_read(path)):.2f}")
