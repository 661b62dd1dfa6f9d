"""How each kind of tokeniser is put together, and how a whole corpus goes through it quickly.

A pipeline is all there is to a tokenizer.json, so that other programs read ours as we do. Where no
token depends on its neighbours, a table look-up gives the same numbers ten to a hundred times
faster; a test holds the two equal.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from jaxtyping import Int
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from torch import Tensor

PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<bos>", "<eos>"
SPECIALS = (PAD, UNK, BOS, EOS)
"""The special tokens, which have the first numbers in every vocabulary trained here."""

CLS, SEP, MASK = "[CLS]", "[SEP]", "[MASK]"
MARKS = ("[PAD]", "[UNK]", CLS, SEP, MASK)
"""BERT's special tokens, which have the first numbers in a vocabulary of word pieces."""

WITHIN = "##"
"""What stands before a piece that goes on within a word."""

Quick = Callable[[str], Int[Tensor, "T"]]
"""The numbers of a text by a shorter way than the library's."""


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    """A vocabulary: the special tokens, then these."""
    return {token: number for number, token in enumerate((*SPECIALS, *tokens))}


def by_word(tokens: Iterable[str] = ()) -> Tokenizer:
    """Words between white space; the end of a line is the word `<eos>`."""
    pipeline = Tokenizer(models.WordLevel(_numbered(tokens), unk_token=UNK))
    pipeline.normalizer = normalizers.Replace("\n", f" {EOS} ")
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # A blank before every word but the first and none around line ends. No word begins with a tab,
    # so none is taken for the rest of the word before it.
    ends = decoders.Replace(Regex(f"^{EOS}$"), "\n")
    spaced = decoders.WordPiece(prefix="\t", cleanup=False)
    tight = decoders.Replace(Regex(" ?\n ?"), "\n")
    pipeline.decoder = decoders.Sequence([ends, spaced, decoders.Fuse(), tight])
    pipeline.add_special_tokens([PAD, BOS])
    return pipeline


def by_char(tokens: Iterable[str] = ()) -> Tokenizer:
    """Every character by itself."""
    pipeline = Tokenizer(models.WordLevel(_numbered(tokens), unk_token=UNK))
    pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    pipeline.decoder = decoders.Fuse()
    pipeline.add_special_tokens([PAD, BOS, EOS])
    return pipeline


def by_byte() -> Tokenizer:
    """Every byte of the UTF-8 by itself, written as GPT-2 writes bytes."""
    pipeline = Tokenizer(models.WordLevel(_numbered(BYTES), unk_token=UNK))
    written = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alone = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([written, alone])
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens(list(SPECIALS))
    return pipeline


def by_pair() -> Tokenizer:
    """Bytes, with no pairs learnt yet."""
    pipeline = Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens(list(SPECIALS))
    return pipeline


def by_piece(tokens: Iterable[str] = (), *, lowercase: bool = True) -> Tokenizer:
    """Words and signs in the longest pieces there are, as BERT cuts and frames them.

    Without case there are no accents either, as in the models that are called uncased.
    """
    vocabulary = {token: number for number, token in enumerate((*MARKS, *tokens))}
    pipeline = Tokenizer(models.WordPiece(vocabulary, unk_token=MARKS[1]))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix=WITHIN)
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(CLS, MARKS.index(CLS)), (SEP, MARKS.index(SEP))],
    )
    pipeline.add_special_tokens(list(MARKS))
    return pipeline


def by_cased_piece(tokens: Iterable[str] = ()) -> Tokenizer:
    """The same with letters as they stand."""
    return by_piece(tokens, lowercase=False)


def _written(byte: int) -> str:
    """The printable character that GPT-2 writes for a byte: itself, or the next from U+0100 on.

    >>> _written(ord("a")), _written(ord(" "))
    ('a', 'Ġ')
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [each for each in range(256) if each not in plain]
    return chr(byte if byte in plain else 0x100 + hidden.index(byte))


BYTES = tuple(_written(byte) for byte in range(256))

PIPELINES: dict[str, Callable[[], Tokenizer]] = {
    "word": by_word,
    "char": by_char,
    "byte": by_byte,
    "bpe": by_pair,
    "wordpiece": by_piece,
    "wordpiece_cased": by_cased_piece,
}
"""Each kind with nothing learnt yet."""

_WORD = re.compile(r"[\S\x1c-\x1f]+")


def words(text: str) -> list[str]:
    """What stands between white space, as Unicode and the library have it: the separators U+001C
    to U+001F, which Python would split at, are parts of words.
    """
    return _WORD.findall(text)


_LONGEST_RUN = 512
"""How many characters without a blank, or of blanks alone, pairs are learnt from at once."""

_RUN = re.compile(rf"\S{{{_LONGEST_RUN}}}(?=\S)|\s{{{_LONGEST_RUN}}}(?=\s)")


def runs_cut(line: str) -> Iterator[str]:
    """A line, cut only within runs that are too long: learning takes time in their square.

    >>> [len(piece) for piece in runs_cut("a" * 1000 + " short")]
    [512, 494]
    """
    first = 0
    for run in _RUN.finditer(line) if len(line) > _LONGEST_RUN else ():
        yield line[first : run.end()]
        first = run.end()
    yield line[first:]


def tensor(numbers: list[int]) -> Int[Tensor, "T"]:
    """Numbers as the tensor that batches are made of, also if there are none."""
    return torch.tensor(numbers, dtype=torch.int64)


def _quick_word(numbers: Mapping[str, int]) -> Quick:
    """Look up every word in a dictionary."""
    unknown = numbers[UNK]
    return lambda text: tensor(
        [numbers.get(word, unknown) for word in words(text.replace("\n", f" {EOS} "))]
    )


def _quick_char(numbers: Mapping[str, int]) -> Quick:
    """Look up all characters at once in a table by code point."""
    table = torch.full((sys.maxunicode + 1,), numbers[UNK])
    for token, number in numbers.items():
        if len(token) == 1:
            table[ord(token)] = number
    encoding = f"utf-32-{sys.byteorder[0]}e"

    def look_up(text: str) -> Tensor:
        if not text:
            return tensor([])
        points = torch.frombuffer(bytearray(text.encode(encoding)), dtype=torch.int32)
        return table[points.long()]

    return look_up


def _quick_byte(numbers: Mapping[str, int]) -> Quick:
    """Look up all bytes at once."""
    table = tensor([numbers[each] for each in BYTES])

    def look_up(text: str) -> Tensor:
        if not text:
            return tensor([])
        return table[torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()]

    return look_up


QUICK: dict[str, Callable[[Mapping[str, int]], Quick]] = {
    "word": _quick_word,
    "char": _quick_char,
    "byte": _quick_byte,
}
"""Kinds in which no token depends on its neighbours, so that looking up is all there is to do."""
