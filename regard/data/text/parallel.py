"""Pairs of sentences: from two files with a sentence a line, or from one TSV or JSONL with both.

Encoded pairs are kept flat: all sentences of one side in one tensor of int32, with a table of where
each begins, so that ten million pairs are a few gigabytes and not a hundred. Each sentence ends
with <eos> there. `gather` makes the batches of sequence-to-sequence models out of them.

Words that a vocabulary does not have can still be copied (Gu et al. 2016; See et al. 2017): an
unknown word of the source gets a number beyond the vocabulary, counted anew in every row.

>>> from regard.data.text.tokeniser import train_tokeniser
>>> words = train_tokeniser("word", ["ein haus", "a house"])
>>> pairs, kept = encode_pairs([("ein haus", "a house"), ("", "a")], PairTokenisers(words, words))
>>> kept.empty, str(kept)
(1, '1 pairs kept, 0 too long, 1 with an empty side')
>>> {name: rows.tolist() for name, rows in pairs.gather(torch.tensor([0])).items()}
{'source': [[5, 6, 3]], 'source_lengths': [3], 'tokens': [[2, 4, 7]], 'targets': [[4, 7, 3]]}
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Int32
from torch import Tensor

from regard.core.errors import UserError, positive
from regard.core.protocols import Batch
from regard.data.batch import IGNORE
from regard.data.bucket import EMPTY_ROW
from regard.data.text.files import (
    STDIN,
    Field,
    Record,
    display_name,
    read_jsonl,
    read_lines,
    read_tsv,
)
from regard.data.text.pipeline import split_words
from regard.data.text.source import form_of
from regard.data.text.tokeniser import Tokeniser

PAIR_BLOCK = 1 << 14
"""How many pairs are encoded at once."""

_END = -1
"""Marks the end of a sentence while it is being encoded; no token has this number."""


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    number: int
    """The line, from 1."""
    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class ParallelText:
    """Where pairs come from: two files with a sentence a line, or one that holds both sides."""

    paths: tuple[str, ...]
    """Source and target, or the one file, TSV or JSONL; gzip if a name ends in .gz."""
    fields: tuple[Field, Field] | None = None
    """Of one file: the columns by number from 1 or by name, or the JSON fields by name."""

    def __post_init__(self) -> None:
        names = ", ".join(map(display_name, self.paths)) or "nothing"
        if len(self.paths) not in (1, 2):
            raise UserError(f"pairs come from one file or two, not {len(self.paths)}: {names}")
        if self.paths.count(STDIN) > 1:
            raise UserError("stdin was given for both sides, but it can be read only once")
        if len(self.paths) == 2 and self.fields is not None:
            raise UserError(
                f"{names}: two files have a sentence a line and take no fields, "
                f"got fields={list(self.fields)}"
            )
        if len(self.paths) == 1:
            self._one_file()

    def _one_file(self) -> None:
        """Refuse one file that cannot hold both sides."""
        name = display_name(self.paths[0])
        if form_of(self.paths[0]) == "plain":
            raise UserError(
                f"{name}: one file holds both sides only as .tsv or .jsonl; else give two files"
            )
        if self.fields is None:
            raise UserError(f"{name}: needs fields=, the names or numbers of the two sides")
        if form_of(self.paths[0]) == "jsonl" and not all(isinstance(f, str) for f in self.fields):
            raise UserError(f"{name}: fields={list(self.fields)}: JSON fields have names")

    def pairs(self) -> Iterator[SentencePair]:
        """Every pair in order, empty ones too."""
        if len(self.paths) == 2:
            yield from _side_by_side(*self.paths)
            return
        assert self.fields is not None
        if form_of(self.paths[0]) == "tsv":
            records = read_tsv(self.paths[0], self.fields)
        else:
            records = read_jsonl(self.paths[0], [str(field) for field in self.fields])
        for number, (source, target) in records:
            yield SentencePair(number, without_line_ends(source), without_line_ends(target))


def without_line_ends(text: str) -> str:
    r"""A text without line ends, which JSON may hold and no line can.

    >>> without_line_ends("a\r\nb")
    'a b'
    """
    return text.replace("\r\n", " ").replace("\n", " ")


def _side_by_side(source: str, target: str) -> Iterator[SentencePair]:
    """Line by line of two files, which must have equally many."""
    left, right = read_lines(source), read_lines(target)
    for one, other in zip_longest(left, right):
        if other is None:
            raise _alone(source, target, one.number, left)
        if one is None:
            raise _alone(target, source, other.number, right)
        yield SentencePair(one.number, one.text, other.text)


def _alone(longer: str, shorter: str, number: int, rest: Iterator[Record]) -> UserError:
    """The error for the first line without a partner; the lines after it are counted."""
    count = number + sum(1 for _ in rest)
    return UserError(
        f"{display_name(longer)}:{number}: the first line without a partner: {display_name(longer)} has "
        f"{count:,} lines and {display_name(shorter)} has {number - 1:,}; line n of one must be the "
        f"translation of line n of the other"
    )


@dataclass(frozen=True)
class PairCounts:
    """How many pairs were kept, and why others were not."""

    kept: int
    too_long: int = 0
    empty: int = 0

    def __add__(self, other: "PairCounts") -> "PairCounts":
        return PairCounts(
            self.kept + other.kept, self.too_long + other.too_long, self.empty + other.empty
        )

    def __str__(self) -> str:
        return (
            f"{self.kept:,} pairs kept, {self.too_long:,} too long, "
            f"{self.empty:,} with an empty side"
        )


class PackedSequences:
    """Many sentences as one run of numbers; each ends with <eos>, so that none is empty."""

    def __init__(self, ids: Int32[Tensor, "N"], lengths: Int32[Tensor, "B"]) -> None:
        self._ids = ids
        self.lengths = lengths
        """How many numbers each sentence has, <eos> included."""
        self._starts = lengths.long().cumsum(0) - lengths  # [B]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> Int32[Tensor, "T"]:
        """The numbers of one sentence."""
        start = int(self._starts[number])
        return self._ids[start : start + int(self.lengths[number])]

    def rows(self, numbers: Int[Tensor, "B"], fill: int) -> Int[Tensor, "B T"]:
        """These sentences as rows of equal length; NOBODY is all fill."""
        there = numbers != EMPTY_ROW
        lengths = torch.where(there, self.lengths[numbers], 0)  # [B]
        places = torch.arange(max(1, int(lengths.max())))  # [T]
        taken = (self._starts[numbers, None] + places).clamp_max(len(self._ids) - 1)  # [B,T]
        return torch.where(places < lengths[:, None], self._ids[taken].long(), fill)


@dataclass(frozen=True)
class PairTokenisers:
    """How both sides become numbers."""

    source: Tokeniser
    target: Tokeniser
    copies: bool = False
    """Do unknown words of the source get numbers of their own, beyond the target's vocabulary?"""

    def __post_init__(self) -> None:
        kinds = [side.kind for side in (self.source, self.target)]
        if self.copies and kinds != ["word", "word"]:
            raise UserError(f"copying is for tokenisers of words, not {kinds[0]} and {kinds[1]}")

    def unknown(self, source: str) -> dict[str, int]:
        """The words of a source that the target's vocabulary lacks, with their numbers."""
        found: dict[str, int] = {}
        numbers = self.target.encode(source)
        for word, number in zip(split_words(source), numbers, strict=True):
            if number == self.target.unk:
                found.setdefault(word, self.target.vocabulary + len(found))
        return found

    def extended(self, text: str, unknown: dict[str, int]) -> list[int]:
        """The numbers of a text in the target's vocabulary and beyond."""
        numbers = zip(split_words(text), self.target.encode(text), strict=True)
        return [unknown.get(word, number) for word, number in numbers]


@dataclass(frozen=True, kw_only=True)
class EncodedPairs:
    """Pairs as numbers."""

    numbering: PairTokenisers
    source: PackedSequences
    target: PackedSequences
    """With copying, some of its numbers are beyond the vocabulary."""
    extended: PackedSequences | None = None
    """With copying, the source in the vocabulary of the target and beyond."""

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> list[int]:
        """Of each pair the length of its longer side, <eos> included."""
        lengths: list[int] = torch.maximum(self.source.lengths, self.target.lengths).tolist()
        return lengths

    def gather(self, numbers: Int[Tensor, "B"]) -> Batch:
        """These pairs as a batch: source and <eos>, <bos> and target, target and <eos>.

        A pair that is not there (NOBODY) is a source of just <eos>, and has no targets.
        """
        theirs, ours = self.numbering.source, self.numbering.target
        there = numbers != EMPTY_ROW
        targets = self.target.rows(numbers, IGNORE)  # [B,T]
        read = targets[:, :-1]
        read = torch.where(read >= ours.vocabulary, ours.unk, read)
        # The last token of a target is <eos>, which is said and never read.
        read = torch.where(targets[:, 1:] == IGNORE, ours.pad, read)
        batch = {
            "source": _closed(self.source.rows(numbers, theirs.pad), there, theirs.eos),
            "source_lengths": torch.where(there, self.source.lengths[numbers].long(), 1),
            "tokens": torch.cat([torch.full((len(numbers), 1), ours.bos), read], dim=1),
            "targets": targets,
        }
        if self.extended is not None:
            copied = self.extended.rows(numbers, ours.pad)
            batch["source_extended"] = _closed(copied, there, ours.eos)
        return batch


def _closed(rows: Int[Tensor, "B S"], there: Bool[Tensor, "B"], eos: int) -> Int[Tensor, "B S"]:
    """Rows in which a sentence that is not there is just <eos>."""
    rows[:, 0] = torch.where(there, rows[:, 0], eos)
    return rows


def encode_pairs(
    pairs: Iterable[tuple[str, str]],
    numbering: PairTokenisers,
    *,
    longest: int | None = None,
    whole: bool = False,
) -> tuple[EncodedPairs, PairCounts]:
    """Pairs as numbers, and how many were kept.

    Pairs with an empty side, and those with a side of more than `longest` tokens, are left out;
    with `whole`, for translating and measuring, none is.
    """
    if longest is not None:
        positive("longest", longest)
    sides = (_Growing(), _Growing(), _Growing())
    kept = PairCounts(0)
    left = iter(pairs)
    while block := list(islice(left, PAIR_BLOCK)):
        numbers = _Block(numbering, block)
        chosen, count = numbers.chosen(None if whole else longest, drop=not whole)
        for side, (ids, lengths) in zip(sides, numbers.sides, strict=False):
            side.add(ids, lengths, chosen)
        kept += count
    source, target, extended = sides
    found = EncodedPairs(
        numbering=numbering,
        source=source.sentences(),
        target=target.sentences(),
        extended=extended.sentences() if numbering.copies else None,
    )
    return found, kept


_Side = tuple[Int[Tensor, "N"], Int[Tensor, "B"]]
"""The numbers of some sentences in a row, and how many each has."""


class _Block:
    """A block of pairs on its way into tensors."""

    def __init__(self, numbering: PairTokenisers, block: Sequence[tuple[str, str]]) -> None:
        sources, targets = [pair[0] for pair in block], [pair[1] for pair in block]
        self.sides = [_encode(numbering.source, sources)]
        if not numbering.copies:
            self.sides.append(_encode(numbering.target, targets))
            return
        unknown = [numbering.unknown(source) for source in sources]
        for texts in (targets, sources):
            rows = [numbering.extended(*each) for each in zip(texts, unknown, strict=True)]
            self.sides.append(_joined(rows, numbering.target.eos))

    def chosen(self, longest: int | None, *, drop: bool) -> tuple[Bool[Tensor, "B"], PairCounts]:
        """Which pairs are kept, and how many of the others there are of each kind."""
        lengths = torch.stack([lengths for _, lengths in self.sides[:2]])  # [2,B]
        empty = (lengths == 1).any(0) & drop
        long = ~empty & (lengths > (lengths.max() if longest is None else longest + 1)).any(0)
        chosen = ~(empty | long)
        return chosen, PairCounts(int(chosen.sum()), int(long.sum()), int(empty.sum()))


def _encode(tokeniser: Tokeniser, texts: Sequence[str]) -> _Side:
    """All texts at once, each closed with <eos>."""
    ids = tokeniser.encode_all(texts, _END)
    ends = (ids == _END).nonzero().squeeze(1)  # [B]
    ids[ends] = tokeniser.eos
    return ids, ends.diff(prepend=torch.tensor([-1]))


def _joined(rows: Sequence[Sequence[int]], eos: int) -> _Side:
    """Rows of numbers one after the other, each closed with <eos>."""
    ids = [number for row in rows for number in (*row, eos)]
    return torch.tensor(ids), torch.tensor([len(row) + 1 for row in rows])


class _Growing:
    """One side of the pairs, while more are being added."""

    def __init__(self) -> None:
        self._ids = [torch.zeros(0, dtype=torch.int32)]
        self._lengths = [torch.zeros(0, dtype=torch.int32)]

    def add(
        self, ids: Int[Tensor, "N"], lengths: Int[Tensor, "B"], chosen: Bool[Tensor, "B"]
    ) -> None:
        """Add the chosen ones of some sentences."""
        self._ids.append(ids[chosen.repeat_interleave(lengths)].int())
        self._lengths.append(lengths[chosen].int())

    def sentences(self) -> PackedSequences:
        """All that were added; afterwards nothing is held twice."""
        ids, lengths = torch.cat(self._ids), torch.cat(self._lengths)
        self._ids, self._lengths = [], []
        return PackedSequences(ids, lengths)
