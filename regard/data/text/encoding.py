"""Encoded texts, packed into flat tensors, and the batches of classifiers and taggers.

A text is a list of pieces, each a list of words: the sentences of a document, the two parts of a
pair, or one piece. `<eos>` separates the parts of a pair. Batches have `tokens` [B,T], `lengths`
[B] and `parts` [B,T], the index of the piece of each token, -1 at padding; optionally also
`characters` [B,T,C] and `source_tokens` [B,T], the same words in the vocabulary of another run.
With a template (special_tokens.py) there are special tokens around a text: `[CLS] a [SEP] b [SEP]`.
Where words are tagged at their first pieces, batches have `firsts` [B,W], the positions of these
pieces, and `words` [B], the number of words.

>>> from regard.data.text.tokeniser import train_tokeniser
>>> encoding = TextEncoding(train_tokeniser("word", ["a b"]))
>>> texts = encode_texts([[["a", "b"], ["a"]], [[]]], encoding)
>>> {name: rows.tolist() for name, rows in texts.gather(torch.tensor([0, 1])).items()}
{'tokens': [[4, 5, 4], [0, 0, 0]], 'lengths': [3, 0], 'parts': [[0, 0, 1], [-1, -1, -1]]}
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.data.bucket import EMPTY_ROW
from regard.data.text.characters import WordCharacters
from regard.data.text.parallel import PackedSequences
from regard.data.text.pipeline import EOS
from regard.data.text.special_tokens import InputTemplate
from regard.data.text.tokeniser import Tokeniser

ENCODE_BLOCK = 1 << 12
"""The number of texts that are encoded at a time."""

PADDING_PART = -1
"""The part of a padding token."""

_NOWHERE = -1
"""The position of the first piece of a word that was truncated, or of padding."""

_Pieces = Sequence[Sequence[str]]
"""A text: the words of each sentence, or of each part of a pair."""


@dataclass(frozen=True)
class TextEncoding:
    """How texts are encoded."""

    tokeniser: Tokeniser
    pairs: bool = False
    """Are pieces the two parts of a pair? Then <eos> separates them."""
    characters: bool = False
    """Are spellings wanted too?"""
    longest: int | None = None
    """The maximum number of tokens of a text."""
    source: Tokeniser | None = None
    """The tokeniser of the run that a model is initialised from, if it has its own vocabulary."""
    source_lowercase: bool = False
    """Is the vocabulary of that run in lower case?"""
    template: InputTemplate | None = None
    """Special tokens around a text; then a text is one piece, or the two of a pair."""
    both_orders: bool = False
    """Encode a pair in the other order too, as `swapped_tokens` and so on?"""

    def __post_init__(self) -> None:
        if self.source is not None and self.source.kind != "word":
            raise UserError(
                "the run that this model is initialised from has the tokeniser "
                f"{self.source.kind or 'of its own folder'}; use one whose recipe has "
                'tokeniser = "word"'
            )


@dataclass(frozen=True, kw_only=True)
class EncodedTexts:
    """Many texts as token ids."""

    tokens: PackedSequences
    parts: PackedSequences
    pad: int
    spelled: PackedSequences | None = None
    spellings: WordCharacters | None = None
    source: PackedSequences | None = None
    firsts: PackedSequences | None = None
    swapped: "EncodedTexts | None" = None
    full_lengths: Int[Tensor, "N"]
    """The number of tokens of each text before it was truncated."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each text in a batch; 1 for an empty text, which is padded."""
        lengths: list[int] = self.tokens.lengths.clamp_min(1).tolist()
        return lengths

    def gather(self, numbers: Int[Tensor, "B"]) -> Batch:
        """These texts as a batch; EMPTY_ROW is a row of padding."""
        there = numbers != EMPTY_ROW
        batch = {
            "tokens": self.tokens.rows(numbers, self.pad),
            "lengths": torch.where(there, self.tokens.lengths[numbers].long(), 0),
            "parts": self.parts.rows(numbers, PADDING_PART),
        }
        if self.spelled is not None and self.spellings is not None:
            batch["characters"] = self.spellings.rows(self.spelled.rows(numbers, 0))
        if self.source is not None:
            batch["source_tokens"] = self.source.rows(numbers, 0)
        if self.firsts is not None:
            batch["firsts"] = self.firsts.rows(numbers, _NOWHERE)
            batch["words"] = torch.where(there, self.firsts.lengths[numbers].long(), 0)
        if self.swapped is not None:
            other = self.swapped.gather(numbers)
            batch |= {f"swapped_{name}": each for name, each in other.items()}
        return batch


def encode_texts(texts: Iterable[_Pieces], reading: TextEncoding) -> EncodedTexts:
    """Encode texts."""
    if reading.both_orders:
        once, held = replace(reading, both_orders=False), [list(each) for each in texts]
        return replace(
            encode_texts(held, once), swapped=encode_texts([each[::-1] for each in held], once)
        )
    names = ["tokens", "parts", *(["spelled"] if reading.characters else [])]
    names += ["source"] if reading.source is not None else []
    sides: dict[str, list[Tensor]] = {name: [] for name in names}
    lengths: list[Tensor] = [torch.zeros(0, dtype=torch.int32)]
    full: list[Tensor] = [torch.zeros(0, dtype=torch.int64)]
    spellings = WordCharacters()
    left = iter(texts)
    while block := list(islice(left, ENCODE_BLOCK)):
        rows = _block(block, reading, spellings)
        count = rows.pop("lengths")
        full.append(rows.pop("full", count))
        text = torch.arange(len(count)).repeat_interleave(count)  # [N]
        if reading.longest is not None and reading.template is None:
            place = torch.arange(len(text)) - (count.cumsum(0) - count)[text]
            rows = {name: each[place < reading.longest] for name, each in rows.items()}
            count = count.clamp_max(reading.longest)
        for name, each in rows.items():
            sides[name].append(each.int())
        lengths.append(count.int())
    sizes = torch.cat(lengths)
    # One more id keeps the start of the last text in bounds, even if it is empty.
    flat = {
        name: PackedSequences(torch.cat([*each, torch.zeros(1, dtype=torch.int32)]), sizes)
        for name, each in sides.items()
    }
    return EncodedTexts(
        tokens=flat["tokens"],
        parts=flat["parts"],
        pad=reading.tokeniser.pad,
        spelled=flat.get("spelled"),
        spellings=spellings if reading.characters else None,
        source=flat.get("source"),
        full_lengths=torch.cat(full),
    )


def _block(
    block: Sequence[_Pieces], reading: TextEncoding, spellings: WordCharacters
) -> dict[str, Int[Tensor, "N"]]:
    """All ids of some texts in one tensor, and the length of each text."""
    if reading.template is not None:
        return _framed(block, reading, reading.template)
    pieces = [
        (number, part, [*words, EOS] if reading.pairs and part == 0 else words)
        for number, text in enumerate(block)
        for part, words in enumerate(text)
    ]
    tokeniser = reading.tokeniser
    every = [word for _, _, words in pieces for word in words]
    if tokeniser.kind == "word":
        tokens, sizes = tokeniser.encode_all([" ".join(every)]), [len(each[2]) for each in pieces]
    else:
        rows = [_encoded(tokeniser, words) for _, _, words in pieces]
        tokens, sizes = torch.tensor([each for row in rows for each in row]), [*map(len, rows)]
    counts = torch.tensor(sizes, dtype=torch.int64)
    owner = torch.tensor([number for number, _, _ in pieces], dtype=torch.int64)
    part = torch.tensor([part for _, part, _ in pieces], dtype=torch.int64)
    found = {
        "tokens": tokens.long(),
        "parts": part.repeat_interleave(counts),
        "lengths": torch.zeros(len(block), dtype=torch.int64).index_add(0, owner, counts),
    }
    if reading.characters:
        found["spelled"] = torch.tensor(spellings.numbers(every), dtype=torch.int64)
    if reading.source is not None:
        text = " ".join(every)
        text = text.lower() if reading.source_lowercase else text
        found["source"] = reading.source.encode_all([text])
    return found


def _framed(
    block: Sequence[_Pieces], reading: TextEncoding, template: InputTemplate
) -> dict[str, Int[Tensor, "N"]]:
    """The same with special tokens around each text."""
    texts = [
        [" ".join(words) for words in text]
        if reading.pairs
        else [" ".join(word for words in text for word in words)]
        for text in block
    ]
    rows = iter(reading.tokeniser.encode_each([part for text in texts for part in text]))
    numbers = [[next(rows) for _ in text] for text in texts]
    held = [template.apply(each, reading.longest) for each in numbers]
    full = [sum(map(len, each)) + template.size(len(each)) for each in numbers]
    return {
        "full": torch.tensor(full),
        "tokens": torch.tensor([number for tokens, _ in held for number in tokens]),
        "parts": torch.tensor([part for _, parts in held for part in parts]),
        "lengths": torch.tensor([len(tokens) for tokens, _ in held]),
    }


def encode_word_pieces(
    texts: Sequence[Sequence[str]], reading: TextEncoding, template: InputTemplate
) -> EncodedTexts:
    """Encode sentences word by word, with the position of the first piece of each word.

    >>> from regard.data.text.tokeniser import train_tokeniser
    >>> pieces = train_tokeniser("wordpiece", ["so so some"], vocabulary=14)
    >>> assert pieces.template is not None
    >>> texts = encode_word_pieces([["so", "some"]], TextEncoding(pieces), pieces.template)
    >>> batch = texts.gather(torch.tensor([0]))
    >>> inner = [pieces.token(number) for number in batch["tokens"][0, 1:-1].tolist()]
    >>> inner, batch["firsts"].tolist()                          # after CLS
    (['so', 'so', '##m', '##e'], [[1, 2]])
    """
    tokeniser, template = reading.tokeniser, template.single
    rows = iter(tokeniser.encode_each([word for text in texts for word in text]))
    tokens: list[list[int]] = []
    firsts: list[list[int]] = []
    full: list[int] = []
    for text in texts:
        cut = [next(rows) or [tokeniser.unk] for _ in text]
        begin = list(accumulate(map(len, cut), initial=len(template.before)))
        numbers, _ = template.apply([[number for row in cut for number in row]], reading.longest)
        end = len(numbers) - len(template.after)
        tokens.append(numbers)
        full.append(begin[-1] + len(template.after))
        firsts.append([each if each < end else _NOWHERE for each in begin[:-1]])
    return EncodedTexts(
        tokens=pack_rows(tokens),
        parts=pack_rows([[template.parts[0]] * len(each) for each in tokens]),
        pad=tokeniser.pad,
        firsts=pack_rows(firsts),
        full_lengths=torch.tensor(full, dtype=torch.int64),
    )


def pack_rows(rows: Sequence[Sequence[int]]) -> PackedSequences:
    """Rows as one tensor, with one more id that keeps the last row in bounds if it is empty."""
    numbers = [number for row in rows for number in row]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int32)
    return PackedSequences(torch.tensor([*numbers, 0], dtype=torch.int32), lengths)


def _encoded(tokeniser: Tokeniser, words: Sequence[str]) -> list[int]:
    """The ids of a piece, for a tokeniser that does not encode the word <eos> as its token."""
    if words and words[-1] == EOS:
        return [*tokeniser.encode(" ".join(words[:-1])), tokeniser.eos]
    return tokeniser.encode(" ".join(words))
