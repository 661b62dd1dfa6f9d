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
BERT_SPECIALS = ("[PAD]", "[UNK]", CLS, SEP, MASK)
"""BERT's special tokens, which have the first numbers in a vocabulary of word pieces."""

CONTINUATION_PREFIX = "##"
"""What stands before a piece that goes on within a word."""

FastEncoder = Callable[[str], Int[Tensor, "T"]]
"""The numbers of a text by a shorter way than the library's."""


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    """A vocabulary: the special tokens, then these."""
    return {token: number for number, token in enumerate((*SPECIALS, *tokens))}


def word_pipeline(tokens: Iterable[str] = ()) -> Tokenizer:
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


def character_pipeline(tokens: Iterable[str] = ()) -> Tokenizer:
    """Every character by itself."""
    pipeline = Tokenizer(models.WordLevel(_numbered(tokens), unk_token=UNK))
    pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    pipeline.decoder = decoders.Fuse()
    pipeline.add_special_tokens([PAD, BOS, EOS])
    return pipeline


def byte_pipeline() -> Tokenizer:
    """Every byte of the UTF-8 by itself, written as GPT-2 writes bytes."""
    pipeline = Tokenizer(models.WordLevel(_numbered(BYTE_CHARACTERS), unk_token=UNK))
    written = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alone = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([written, alone])
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens(list(SPECIALS))
    return pipeline


def bpe_pipeline() -> Tokenizer:
    """Bytes, with no pairs learnt yet."""
    pipeline = Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens(list(SPECIALS))
    return pipeline


def wordpiece_pipeline(tokens: Iterable[str] = (), *, lowercase: bool = True) -> Tokenizer:
    """Words and signs in the longest pieces there are, as BERT cuts and frames them.

    Without case there are no accents either, as in the models that are called uncased.
    """
    vocabulary = {token: number for number, token in enumerate((*BERT_SPECIALS, *tokens))}
    pipeline = Tokenizer(models.WordPiece(vocabulary, unk_token=BERT_SPECIALS[1]))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(CLS, BERT_SPECIALS.index(CLS)), (SEP, BERT_SPECIALS.index(SEP))],
    )
    pipeline.add_special_tokens(list(BERT_SPECIALS))
    return pipeline


def cased_wordpiece_pipeline(tokens: Iterable[str] = ()) -> Tokenizer:
    """The same with letters as they stand."""
    return wordpiece_pipeline(tokens, lowercase=False)


def _written(byte: int) -> str:
    """The printable character that GPT-2 writes for a byte: itself, or the next from U+0100 on.

    >>> _written(ord("a")), _written(ord(" "))
    ('a', 'Ġ')
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [each for each in range(256) if each not in plain]
    return chr(byte if byte in plain else 0x100 + hidden.index(byte))


BYTE_CHARACTERS = tuple(_written(byte) for byte in range(256))

PIPELINES: dict[str, Callable[[], Tokenizer]] = {
    "word": word_pipeline,
    "char": character_pipeline,
    "byte": byte_pipeline,
    "bpe": bpe_pipeline,
    "wordpiece": wordpiece_pipeline,
    "wordpiece_cased": cased_wordpiece_pipeline,
}
"""Each kind with nothing learnt yet."""

_WORD = re.compile(r"[\S\x1c-\x1f]+")


def split_words(text: str) -> list[str]:
    """What stands between white space, as Unicode and the library have it: the separators U+001C
    to U+001F, which Python would split at, are parts of words.
    """
    return _WORD.findall(text)


_LONGEST_RUN = 512
"""How many characters without a blank, or of blanks alone, pairs are learnt from at once."""

_RUN = re.compile(rf"\S{{{_LONGEST_RUN}}}(?=\S)|\s{{{_LONGEST_RUN}}}(?=\s)")


def split_long_runs(line: str) -> Iterator[str]:
    """A line, cut only within runs that are too long: learning takes time in their square.

    >>> [len(piece) for piece in split_long_runs("a" * 1000 + " short")]
    [512, 494]
    """
    first = 0
    for run in _RUN.finditer(line) if len(line) > _LONGEST_RUN else ():
        yield line[first : run.end()]
        first = run.end()
    yield line[first:]


def id_tensor(numbers: list[int]) -> Int[Tensor, "T"]:
    """Numbers as the tensor that batches are made of, also if there are none."""
    return torch.tensor(numbers, dtype=torch.int64)


def _quick_word(numbers: Mapping[str, int]) -> FastEncoder:
    """Look up every word in a dictionary."""
    unknown = numbers[UNK]
    return lambda text: id_tensor(
        [numbers.get(word, unknown) for word in split_words(text.replace("\n", f" {EOS} "))]
    )


def _quick_char(numbers: Mapping[str, int]) -> FastEncoder:
    """Look up all characters at once in a table by code point."""
    table = torch.full((sys.maxunicode + 1,), numbers[UNK])
    for token, number in numbers.items():
        if len(token) == 1:
            table[ord(token)] = number
    encoding = f"utf-32-{sys.byteorder[0]}e"

    def look_up(text: str) -> Tensor:
        if not text:
            return id_tensor([])
        points = torch.frombuffer(bytearray(text.encode(encoding)), dtype=torch.int32)
        return table[points.long()]

    return look_up


def _quick_byte(numbers: Mapping[str, int]) -> FastEncoder:
    """Look up all bytes at once."""
    table = id_tensor([numbers[each] for each in BYTE_CHARACTERS])

    def look_up(text: str) -> Tensor:
        if not text:
            return id_tensor([])
        return table[torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()]

    return look_up


FAST_ENCODERS: dict[str, Callable[[Mapping[str, int]], FastEncoder]] = {
    "word": _quick_word,
    "char": _quick_char,
    "byte": _quick_byte,
}
"""Kinds in which no token depends on its neighbours, so that looking up is all there is to do."""
