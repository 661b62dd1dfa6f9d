"""Word alignments: which source word each target word looked at, and how good that is.

Weights are those between tokens, `[T,S]`: the row of target token t holds the weights of the model
when it wrote t. Tokens are merged to words as Koehn and Knowles (2017) do: the weights of the
tokens of a source word are added up, those of a target word are averaged. A word is what stands
between white space; links are (source word, target word), from 0, in Pharaoh format `i-j`.

>>> weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.8, 0.1, 0.1, 0.0]])
>>> links = hard(merged(weights, source=[0, 1, 1, None], target=[0, 1]))
>>> pharaoh(links)
'0-1 1-0'
>>> round(error_rate([links], [gold("0-1 1?1")]), 3)          # (1 + 1) / (2 + 1) of it is right
0.333
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.errors import UserError
from regard.data import Tokeniser
from regard.data.text.pipeline import split_words

Links = frozenset[tuple[int, int]]
"""Pairs of words that belong together: (source, target), counted from 0."""

_LINK = re.compile(r"(\d+)([-?p])(\d+)")


def words_of(tokeniser: Tokeniser, text: str) -> list[int | None]:
    """For each token of a text the number of its word; None for what is between words.

    >>> from regard.data import train_tokeniser
    >>> words_of(train_tokeniser("char", ["ab c"]), "ab c")
    [0, 0, None, 1]
    """
    holder: list[int | None] = [None] * len(text)
    end = 0
    for number, word in enumerate(split_words(text)):
        begin = text.index(word, end)
        end = begin + len(word)
        holder[begin:end] = [number] * len(word)
    # A token of byte pairs may begin with the blank before its word, and none ends with one.
    return [holder[last - 1] if last else None for _, last in tokeniser.offsets(text)]


def merged(
    weights: Float[Tensor, "T S"],
    source: Sequence[int | None],
    target: Sequence[int | None],
) -> Float[Tensor, "Q K"]:
    """Weights between words, given the word of each token; tokens of no word are left out.

    There may be further rows and columns than words were given for: those of <eos>.
    """
    rows, columns = _membership(target, weights.shape[0]), _membership(source, weights.shape[1])
    sizes = rows.sum(1, keepdim=True).clamp_min(1)  # [Q,1]
    return (rows / sizes).to(weights) @ weights @ columns.to(weights).t()  # [Q,K]


def _membership(numbers: Sequence[int | None], tokens: int) -> Float[Tensor, "K S"]:
    """Which tokens make up each word: ones and zeros."""
    if len(numbers) > tokens:
        raise UserError(f"{len(numbers)} tokens have words, but the weights are of {tokens}")
    table = torch.zeros(1 + max((n for n in numbers if n is not None), default=-1), tokens)
    for place, number in enumerate(numbers):
        if number is not None:
            table[number, place] = 1.0
    return table


def hard(weights: Float[Tensor, "Q K"]) -> Links:
    """For each target word the source word it looked at most; of equals the first.

    A target word that looked at no word of the source is linked with none.
    """
    if not weights.numel():
        return frozenset()
    most, places = weights.max(1)
    links = enumerate(zip(most.tolist(), places.tolist(), strict=True))
    return frozenset((source, target) for target, (weight, source) in links if weight > 0)


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links as a line, in the order of the source.

    >>> pharaoh({(10, 1), (2, 0)})
    '2-0 10-1'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


@dataclass(frozen=True)
class Gold:
    """What people say: links that are sure, and those that are possible, the sure among them."""

    sure: Links
    possible: Links

    def __post_init__(self) -> None:
        lacking = sorted(self.sure - self.possible)
        if lacking:
            raise UserError(f"sure links must be possible too; {pharaoh(lacking)} are not")


def gold(line: str, *, where: str = "alignment", first: int = 0) -> Gold:
    """The links of a line: `i-j` is sure, `i?j` or `ipj` only possible; `first` is 0 or 1.

    >>> gold("1-1 2p1", first=1) == Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 0)}))
    True
    """
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    for part in line.split():
        found = _LINK.fullmatch(part)
        if found is None:
            raise UserError(f"{where}: {part!r} is no link; write 0-1, or 0?1 for a possible one")
        link = (int(found[1]) - first, int(found[3]) - first)
        if min(link) < 0:
            raise UserError(f"{where}: {part!r} counts from 0, but the first word should be 1")
        possible.add(link)
        if found[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def error_rate(found: Sequence[Links], golds: Sequence[Gold]) -> float:
    """The alignment error rate over all sentences (Och and Ney 2003): 0 is best.

    1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), for links A that were found, sure S and possible P.
    """
    if len(found) != len(golds):
        raise UserError(f"{len(found)} alignments cannot be compared with {len(golds)}")
    right = total = 0
    for links, each in zip(found, golds, strict=True):
        right += len(links & each.sure) + len(links & each.possible)
        total += len(links) + len(each.sure)
    if not total:
        raise UserError("there are no links to compare")
    return 1.0 - right / total
