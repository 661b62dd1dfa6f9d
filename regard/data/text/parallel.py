"""Sentence pairs, from two files with one sentence per line, or from one TSV or JSONL file.

All encoded sentences of one side are in one int32 tensor, with the lengths in another, so that ten
million pairs take a few gigabytes and not a hundred. Each sentence ends with <eos>. `gather` builds
the batches of sequence-to-sequence models.

Words outside the vocabulary can still be copied (Gu et al. 2016; See et al. 2017): an unknown word
of the source gets an id beyond the vocabulary, counted separately in every row.

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
"""The number of pairs that are encoded at a time."""

_END = -1
"""The end of a sentence during encoding; no token has this id."""


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    number: int
    """The line, from 1."""
    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class ParallelText:
    """A source of pairs: two files with one sentence per line, or one file with both sides."""

    paths: tuple[str, ...]
    """Source and target, or the one file, TSV or JSONL; gzip if a name ends in .gz."""
    fields: tuple[Field, Field] | None = None
    """Of one file: the columns by number from 1 or by name, or the JSON fields by name."""

    def __post_init__(self) -> None:
        names = ", ".join(map(display_name, self.paths)) or "nothing"
        if len(self.paths) not in (1, 2):
            raise UserError(f"pairs come from one file or two, not {len(self.paths)}: {names}")
        if self.paths.count(STDIN) > 1:
            raise UserError("stdin cannot be both sides: it can be read only once")
        if len(self.paths) == 2 and self.fields is not None:
            raise UserError(
                f"{names}: two files have one sentence per line and take no fields, "
                f"got fields={list(self.fields)}"
            )
        if len(self.paths) == 1:
            self._one_file()

    def _one_file(self) -> None:
        """Raise a UserError if the file cannot contain both sides."""
        name = display_name(self.paths[0])
        if form_of(self.paths[0]) == "plain":
            raise UserError(
                f"{name}: a file with both sides must be .tsv or .jsonl; otherwise use two files"
            )
        if self.fields is None:
            raise UserError(f"{name}: needs fields=, the names or numbers of the two sides")
        if form_of(self.paths[0]) == "jsonl" and not all(isinstance(f, str) for f in self.fields):
            raise UserError(f"{name}: fields={list(self.fields)}: JSON fields have names")

    def pairs(self) -> Iterator[SentencePair]:
        """All pairs in order, including empty ones."""
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
    r"""A text with spaces instead of newlines, which JSON strings may contain.

    >>> without_line_ends("a\r\nb")
    'a b'
    """
    return text.replace("\r\n", " ").replace("\n", " ")


def _side_by_side(source: str, target: str) -> Iterator[SentencePair]:
    """Pair the lines of two files, which must have the same number of lines."""
    left, right = read_lines(source), read_lines(target)
    for one, other in zip_longest(left, right):
        if other is None:
            raise _alone(source, target, one.number, left)
        if one is None:
            raise _alone(target, source, other.number, right)
        yield SentencePair(one.number, one.text, other.text)


def _alone(longer: str, shorter: str, number: int, rest: Iterator[Record]) -> UserError:
    """The error for two files of different lengths."""
    count, name = number + sum(1 for _ in rest), display_name(longer)
    return UserError(
        f"{name}:{number}: the first line without a partner: {name} has {count:,} lines and "
        f"{display_name(shorter)} has {number - 1:,}; line n of one must be the translation of "
        "line n of the other"
    )


@dataclass(frozen=True)
class PairCounts:
    """The number of pairs that were kept, and of those dropped for each reason."""

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
    """Many sequences of ids in one flat tensor."""

    def __init__(self, ids: Int32[Tensor, "N"], lengths: Int32[Tensor, "B"]) -> None:
        self._ids = ids
        self.lengths = lengths
        """The length of each sequence."""
        self._starts = lengths.long().cumsum(0) - lengths  # [B]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> Int32[Tensor, "T"]:
        """The ids of one sequence."""
        start = int(self._starts[number])
        return self._ids[start : start + int(self.lengths[number])]

    def rows(self, numbers: Int[Tensor, "B"], fill: int) -> Int[Tensor, "B T"]:
        """These sequences as rows, padded with `fill`; EMPTY_ROW is a row of padding."""
        there = numbers != EMPTY_ROW
        lengths = torch.where(there, self.lengths[numbers], 0)  # [B]
        places = torch.arange(max(1, int(lengths.max())))  # [T]
        taken = (self._starts[numbers, None] + places).clamp_max(len(self._ids) - 1)  # [B,T]
        return torch.where(places < lengths[:, None], self._ids[taken].long(), fill)


@dataclass(frozen=True)
class PairTokenisers:
    """The tokenisers of both sides."""

    source: Tokeniser
    target: Tokeniser
    copies: bool = False
    """Do unknown words of the source get their own ids, beyond the target's vocabulary?"""

    def __post_init__(self) -> None:
        kinds = [side.kind for side in (self.source, self.target)]
        if self.copies and kinds != ["word", "word"]:
            raise UserError(f"copying needs word tokenisers, not {kinds[0]} and {kinds[1]}")

    def unknown(self, source: str) -> dict[str, int]:
        """The words of a source outside the target's vocabulary, with their ids."""
        found: dict[str, int] = {}
        numbers = self.target.encode(source)
        for word, number in zip(split_words(source), numbers, strict=True):
            if number == self.target.unk:
                found.setdefault(word, self.target.vocabulary + len(found))
        return found

    def extended(self, text: str, unknown: dict[str, int]) -> list[int]:
        """The ids of a text in the target's vocabulary, extended by unknown words."""
        numbers = zip(split_words(text), self.target.encode(text), strict=True)
        return [unknown.get(word, number) for word, number in numbers]


@dataclass(frozen=True, kw_only=True)
class EncodedPairs:
    """Pairs as token ids."""

    numbering: PairTokenisers
    source: PackedSequences
    target: PackedSequences
    """With copying, some of its ids are beyond the vocabulary."""
    extended: PackedSequences | None = None
    """With copying, the source in the extended vocabulary of the target."""

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> list[int]:
        """The length of the longer side of each pair, with <eos>."""
        lengths: list[int] = torch.maximum(self.source.lengths, self.target.lengths).tolist()
        return lengths

    def gather(self, numbers: Int[Tensor, "B"]) -> Batch:
        """These pairs as a batch: source and <eos>, <bos> and target, target and <eos>.

        EMPTY_ROW has <eos> as its source, and no targets.
        """
        theirs, ours = self.numbering.source, self.numbering.target
        there = numbers != EMPTY_ROW
        targets = self.target.rows(numbers, IGNORE)  # [B,T]
        read = targets[:, :-1]
        read = torch.where(read >= ours.vocabulary, ours.unk, read)
        # The last token of a target is <eos>, which is predicted but is never an input.
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
    """Rows in which an empty row is <eos>."""
    rows[:, 0] = torch.where(there, rows[:, 0], eos)
    return rows


def encode_pairs(
    pairs: Iterable[tuple[str, str]],
    numbering: PairTokenisers,
    *,
    longest: int | None = None,
    whole: bool = False,
) -> tuple[EncodedPairs, PairCounts]:
    """Encode pairs; return them and the counts of kept and dropped pairs.

    Pairs with an empty side, or with a side of more than `longest` tokens, are dropped; with
    `whole`, for translation and evaluation, none is.
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
"""The ids of some sentences in one tensor, and the length of each."""


class _Block:
    """A block of encoded pairs."""

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
        """Which pairs are kept, and the counts."""
        lengths = torch.stack([lengths for _, lengths in self.sides[:2]])  # [2,B]
        empty = (lengths == 1).any(0) & drop
        long = ~empty & (lengths > (lengths.max() if longest is None else longest + 1)).any(0)
        chosen = ~(empty | long)
        return chosen, PairCounts(int(chosen.sum()), int(long.sum()), int(empty.sum()))


def _encode(tokeniser: Tokeniser, texts: Sequence[str]) -> _Side:
    """Encode texts, each followed by <eos>."""
    ids = tokeniser.encode_all(texts, _END)
    ends = (ids == _END).nonzero().squeeze(1)  # [B]
    ids[ends] = tokeniser.eos
    return ids, ends.diff(prepend=torch.tensor([-1]))


def _joined(rows: Sequence[Sequence[int]], eos: int) -> _Side:
    """Concatenate rows of ids, each followed by <eos>."""
    ids = [number for row in rows for number in (*row, eos)]
    return torch.tensor(ids), torch.tensor([len(row) + 1 for row in rows])


class _Growing:
    """One side of the pairs, in growing lists."""

    def __init__(self) -> None:
        self._ids = [torch.zeros(0, dtype=torch.int32)]
        self._lengths = [torch.zeros(0, dtype=torch.int32)]

    def add(
        self, ids: Int[Tensor, "N"], lengths: Int[Tensor, "B"], chosen: Bool[Tensor, "B"]
    ) -> None:
        """Add the chosen sentences."""
        self._ids.append(ids[chosen.repeat_interleave(lengths)].int())
        self._lengths.append(lengths[chosen].int())

    def sentences(self) -> PackedSequences:
        """All sentences; the lists are emptied to free their memory."""
        ids, lengths = torch.cat(self._ids), torch.cat(self._lengths)
        self._ids, self._lengths = [], []
        return PackedSequences(ids, lengths)
