"""How alike translations and references are: BLEU, chrF and exact matches.

Each score says by its signature what exactly was computed, without which a figure of BLEU means
little (Post 2018). Figures of one signature must not be compared with those of another. All go from
0 to 100.

>>> round(score("bleu", ["the cat sat on the mat"], ["the cat sat on the mat"]).value, 3)
100.0
>>> score("exact", ["1998-05-03", "x"], ["1998-05-03", "1998-05-04"])
MetricValue(value=50.0, signature='whole lines|case:mixed|blanks:one')
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.core.errors import UserError, choose
from regard.tasks.abilities import LengthBand


@dataclass(frozen=True)
class MetricValue:
    """A figure, and what it is a figure of."""

    value: float
    signature: str


_Metric = Callable[[Sequence[str], Sequence[str], bool], MetricValue]
"""Outputs, their references, and whether case is ignored, to a score."""


def _bleu(outputs: Sequence[str], references: Sequence[str], lowercase: bool) -> MetricValue:
    """BLEU of sacreBLEU (Papineni et al. 2002; Post 2018), for text as people write it.

    It splits off punctuation itself, as mteval-v13a does.
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(lowercase=lowercase, tokenize="13a", force=True)
    found = metric.corpus_score(outputs, [references])
    return MetricValue(found.score, str(metric.get_signature()))


def multi_bleu(outputs: Sequence[str], references: Sequence[str], lowercase: bool) -> MetricValue:
    """BLEU of Moses' multi-bleu.perl -lc, for text that is tokenised already.

    Tokens are what stands between blanks, case is ignored whatever is asked for, and nothing is
    smoothed: without a single match of four words it is zero. The script itself lowers only the
    letters A to Z, which makes no difference to text that is lower-cased already.
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(lowercase=True, tokenize="none", smooth_method="none", force=True)
    found = metric.corpus_score(outputs, [references])
    return MetricValue(found.score, str(metric.get_signature()))


def _chrf(outputs: Sequence[str], references: Sequence[str], lowercase: bool) -> MetricValue:
    """chrF2: matches of up to six characters (Popović 2015), as sacreBLEU has it."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(lowercase=lowercase)
    found = metric.corpus_score(outputs, [references])
    return MetricValue(found.score, str(metric.get_signature()))


def exact(outputs: Sequence[str], references: Sequence[str], lowercase: bool) -> MetricValue:
    """Per cent of the outputs that are the reference; any number of blanks is as good as one."""

    def plain(text: str) -> str:
        return " ".join((text.lower() if lowercase else text).split())

    pairs = zip(outputs, references, strict=True)
    right = sum(plain(output) == plain(reference) for output, reference in pairs)
    case = "lc" if lowercase else "mixed"
    return MetricValue(100 * right / len(outputs), f"whole lines|case:{case}|blanks:one")


METRICS: dict[str, _Metric] = {
    "bleu": _bleu,
    "multi_bleu": multi_bleu,
    "chrf": _chrf,
    "exact": exact,
}
"""Every score of whole outputs by its name."""


def score(
    name: str, outputs: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> MetricValue:
    """How alike these outputs and references are, by the metric of that name."""
    metric = choose("metric", name, METRICS)
    if len(outputs) != len(references):
        raise UserError(f"{len(outputs)} outputs cannot be compared with {len(references)}")
    if not outputs:
        raise UserError("there are no outputs to compare")
    return metric(outputs, references, lowercase)


def signature(name: str, *, lowercase: bool = False) -> str:
    """What a metric computes, in its own words.

    >>> signature("multi_bleu").rpartition("|")[0]
    'nrefs:1|case:lc|eff:no|tok:none|smooth:none'
    """
    return score(name, ["a"], ["a"], lowercase=lowercase).signature


BANDS = (10, 20, 30, 40, 50, 60)
"""The longest sources of each band but the last, in words, as in Bahdanau et al. 2015, figure 2."""


def by_length(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    *,
    name: str = "bleu",
    lowercase: bool = False,
    bands: Sequence[int] = BANDS,
) -> list[LengthBand]:
    """The score of each band of source lengths that has any sentences, the shortest first.

    >>> by_length(["a b", "a b c"], ["x", "y"], ["x", "z"], name="exact", bands=[2])
    [LengthBand(first=0, last=2, sentences=1, value=100.0),
     LengthBand(first=3, last=None, sentences=1, value=0.0)]
    """
    if list(bands) != sorted(set(bands)) or not bands or bands[0] < 0:
        raise UserError(f"bands={list(bands)} must be lengths that grow")
    if not len(sources) == len(outputs) == len(references):
        raise UserError(
            f"{len(sources)} sources, {len(outputs)} outputs and {len(references)} references "
            "are not the same sentences"
        )
    lengths = [len(source.split()) for source in sources]
    found: list[LengthBand] = []
    for before, last in pairwise((-1, *bands, None)):
        assert before is not None
        within = [
            place
            for place, length in enumerate(lengths)
            if before < length and (last is None or length <= last)
        ]
        if within:
            some = [[texts[place] for place in within] for texts in (outputs, references)]
            value = score(name, *some, lowercase=lowercase).value
            found.append(LengthBand(before + 1, last, len(within), value))
    return found
