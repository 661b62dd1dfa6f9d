"""WordPiece vocabularies (Wu et al. 2016): deterministic training, and fast encoding by a cache.

The pieces of a word do not depend on other words, so they are computed only once per word.

>>> from regard.data.text.pipeline import wordpiece_pipeline
>>> train_wordpieces(["low lower lowest", "low low"], wordpiece_pipeline(), 21, 1)[-2:]
['lo', 'low']
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import torch
from jaxtyping import Bool
from tokenizers import Tokenizer, normalizers, pre_tokenizers, trainers
from torch import Tensor

from regard.core.errors import UserError
from regard.data.text.pipeline import (
    BERT_SPECIALS,
    BYTE_CHARACTERS,
    CONTINUATION_PREFIX,
    split_long_runs,
    split_words,
)

_LETTERS = 1000
"""The maximum number of characters, as in BERT's vocabulary; the most frequent are kept."""


def train_wordpieces(
    lines: Iterable[str], pipeline: Tokenizer, vocabulary: int, min_frequency: int
) -> list[str]:
    """Characters, then the most frequent pairs of tokens; without special tokens.

    The `pipeline` normalises and splits the text; it is modified by the training.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(word for piece in split_long_runs(line) for word in split_words(piece))
    if not counts:
        raise UserError("there is no text to train a tokeniser on")
    seen: Counter[str] = Counter()
    for word, count in counts.items():
        for letter in pipeline.normalizer.normalize_str(word):
            seen[letter] += count
    frequent = sorted(seen, key=lambda letter: (-seen[letter], letter))[:_LETTERS]
    # The library breaks ties by the ids of characters, which are random; to get the same pieces
    # every time, all characters get their ids before the training.
    known = [
        form for each in frequent if each.strip() for form in (each, CONTINUATION_PREFIX + each)
    ]
    if len(BERT_SPECIALS) + len(known) > vocabulary:
        raise UserError(
            f"vocabulary={vocabulary} is too small for the characters of this text: at least "
            f"{len(BERT_SPECIALS) + len(known)}"
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        min_frequency=min_frequency,
        special_tokens=[*BERT_SPECIALS, *known],
        limit_alphabet=_LETTERS,
        show_progress=False,
    )
    parts: Counter[str] = Counter()
    for word, count in counts.items():
        written = pipeline.normalizer.normalize_str(word)
        for part, _ in pipeline.pre_tokenizer.pre_tokenize_str(written):
            parts[part] += count
    # The words are already normalised and split; this is not repeated for every occurrence.
    pipeline.normalizer = normalizers.Sequence([])
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    repeated = (" ".join([part] * count) for part, count in parts.items())
    pipeline.train_from_iterator(repeated, trainer)
    found: dict[str, int] = pipeline.get_vocab(with_added_tokens=True)
    return sorted(found.keys() - set(BERT_SPECIALS), key=lambda piece: found[piece])


def continuation_tokens(
    text: str, numbers: Mapping[str, int], vocabulary: int
) -> Bool[Tensor, "V"]:
    """Which tokens continue a word after an ordinary token, from a tokenizer.json."""
    found = torch.zeros(vocabulary, dtype=torch.bool)
    model = json.loads(text)["model"]
    for token, number in numbers.items():
        if number < vocabulary and model["type"] == "WordPiece":
            found[number] = token.startswith(str(model["continuing_subword_prefix"]))
        elif number < vocabulary and model["type"] == "BPE":
            found[number] = not token.startswith(BYTE_CHARACTERS[ord(" ")])
    return found


_KNOWN = 1 << 18
"""The number of words whose pieces are cached."""

_BETWEEN_BLANKS = re.compile(r"[\S\x0b\x0c\x1c-\x1f\x85]+")
"""BERT removes control characters, including some whitespace, before it splits at whitespace."""


def cached_word_encoder(pipeline: Tokenizer, text: str) -> Callable[[str], list[int]] | None:
    """A cached encoder of the pipeline if it splits words as BERT does; else None.

    >>> from regard.data.text.pipeline import wordpiece_pipeline
    >>> pipeline = wordpiece_pipeline(["so", "##me"])
    >>> encode = cached_word_encoder(pipeline, pipeline.to_str())
    >>> encode("Some so")
    [5, 6, 5]
    """
    held = json.loads(text)
    kinds = [(held[part] or {}).get("type") for part in ("model", "normalizer", "pre_tokenizer")]
    if kinds != ["WordPiece", "BertNormalizer", "BertPreTokenizer"]:
        return None
    if not all(token["special"] for token in held["added_tokens"]):
        return None

    @lru_cache(_KNOWN)
    def pieces(word: str) -> list[int]:
        ids: list[int] = pipeline.encode(word, add_special_tokens=False).ids
        return ids

    return lambda line: [n for word in _BETWEEN_BLANKS.findall(line) for n in pieces(word)]
