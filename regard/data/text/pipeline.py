"""The `tokenizers` pipeline of each kind of tokeniser, and fast encoders for whole corpora.

A tokenizer.json contains its complete pipeline, so that other programs encode as we do. Where no
token depends on its neighbours, a table look-up returns the same ids ten to a hundred times faster;
a test compares the two.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
"""The special tokens, which have the first ids in every vocabulary trained here."""

CLS, SEP, MASK = "[CLS]", "[SEP]", "[MASK]"
BERT_SPECIALS = ("[PAD]", "[UNK]", CLS, SEP, MASK)
"""BERT's special tokens, which have the first ids in a WordPiece vocabulary."""

CONTINUATION_PREFIX = "##"
"""The prefix of a piece that continues a word."""

FastEncoder = Callable[[str], Int[Tensor, "T"]]
"""A function from a text to its ids, faster than the library's."""


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    """A vocabulary: the special tokens, then these."""
    return {token: number for number, token in enumerate((*SPECIALS, *tokens))}


def word_pipeline(tokens: Iterable[str] = ()) -> Tokenizer:
    """Words separated by whitespace; a newline is the word `<eos>`."""
    pipeline = Tokenizer(models.WordLevel(_numbered(tokens), unk_token=UNK))
    pipeline.normalizer = normalizers.Replace("\n", f" {EOS} ")
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # Put a space before every word but the first and none around newlines. No word begins with a
    # tab, so no word is taken for the continuation of the previous one.
    ends = decoders.Replace(Regex(f"^{EOS}$"), "\n")
    spaced = decoders.WordPiece(prefix="\t", cleanup=False)
    tight = decoders.Replace(Regex(" ?\n ?"), "\n")
    pipeline.decoder = decoders.Sequence([ends, spaced, decoders.Fuse(), tight])
    pipeline.add_special_tokens([PAD, BOS])
    return pipeline


def character_pipeline(tokens: Iterable[str] = ()) -> Tokenizer:
    """Single characters."""
    pipeline = Tokenizer(models.WordLevel(_numbered(tokens), unk_token=UNK))
    pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    pipeline.decoder = decoders.Fuse()
    pipeline.add_special_tokens([PAD, BOS, EOS])
    return pipeline


def byte_pipeline() -> Tokenizer:
    """Single bytes of UTF-8, in GPT-2's notation of bytes."""
    pipeline = Tokenizer(models.WordLevel(_numbered(BYTE_CHARACTERS), unk_token=UNK))
    written = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alone = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([written, alone])
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens(list(SPECIALS))
    return pipeline


def bpe_pipeline() -> Tokenizer:
    """Byte pairs, before training."""
    pipeline = Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens(list(SPECIALS))
    return pipeline


def unigram_pipeline(pieces: Sequence[tuple[str, float]] = ()) -> Tokenizer:
    """Pieces over bytes with their log-probabilities (Kudo 2018); the likeliest split is taken."""
    vocabulary = [(token, 0.0) for token in SPECIALS] + list(pieces)
    pipeline = Tokenizer(models.Unigram(vocabulary, SPECIALS.index(UNK), False))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens(list(SPECIALS))
    return pipeline


def wordpiece_pipeline(tokens: Iterable[str] = (), *, lowercase: bool = True) -> Tokenizer:
    """Words and punctuation in the longest known pieces, with BERT's special tokens.

    In lower case, accents are removed as well, as in BERT's uncased models.
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
    """The same without lower-casing."""
    return wordpiece_pipeline(tokens, lowercase=False)


def _written(byte: int) -> str:
    """GPT-2's printable character for a byte: itself, or the next from U+0100 on.

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
    "unigram": unigram_pipeline,
    "wordpiece": wordpiece_pipeline,
    "wordpiece_cased": cased_wordpiece_pipeline,
}
"""The untrained pipeline of each kind."""

_WORD = re.compile(r"[\S\x1c-\x1f]+")


def split_words(text: str) -> list[str]:
    """Split at whitespace, as defined by Unicode and the library: the separators U+001C to U+001F,
    at which Python would split, are parts of words.
    """
    return _WORD.findall(text)


_LONGEST_RUN = 512
"""The maximum number of characters without whitespace, or of whitespace only, in training."""

_RUN = re.compile(rf"\S{{{_LONGEST_RUN}}}(?=\S)|\s{{{_LONGEST_RUN}}}(?=\s)")


def split_long_runs(line: str) -> Iterator[str]:
    """Split a line within long runs only: the time of training is quadratic in their length.

    >>> [len(piece) for piece in split_long_runs("a" * 1000 + " short")]
    [512, 494]
    """
    first = 0
    for run in _RUN.finditer(line) if len(line) > _LONGEST_RUN else ():
        yield line[first : run.end()]
        first = run.end()
    yield line[first:]


def id_tensor(numbers: list[int]) -> Int[Tensor, "T"]:
    """Ids as an int64 tensor, even if there are none."""
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
"""The kinds in which no token depends on its neighbours, so that a look-up is enough."""
