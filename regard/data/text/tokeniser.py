"""Tokenisers of words, characters, bytes, byte pairs, unigrams and word pieces.

Every tokeniser is a Hugging Face `tokenizers` pipeline, complete in its tokenizer.json. The first
ids are four special tokens, or BERT's five in a WordPiece vocabulary. They are never matched in a
text: `<eos>` in a text of bytes is five bytes. Only the word tokeniser matches special tokens,
because PTB contains the word `<unk>`, and it turns newlines into `<eos>`.

Byte pairs are those of Sennrich et al. 2016 over bytes, split as in GPT-2 (Radford et al. 2019).
Word pieces (Wu et al. 2016) are split as in BERT (Devlin et al. 2019).

>>> tokeniser = train_tokeniser("word", ["the cat", "the mat"])
>>> tokeniser.encode("the dog\\n"), tokeniser.decode([4, 1, 3])
([4, 1, 3], 'the <unk>\\n')
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from tokenizers import Tokenizer, trainers
from torch import Tensor

from regard.core.atomic import replace_atomically
from regard.core.errors import UserError, choose, positive
from regard.core.folder import VOCABULARY_BYTES, read_text
from regard.data.text.files import missing_file_error
from regard.data.text.normalise import RESERVED, Charsmap, NormalisedText
from regard.data.text.pipeline import (
    BOS,
    BYTE_CHARACTERS,
    EOS,
    FAST_ENCODERS,
    MASK,
    PAD,
    PIPELINES,
    SPECIALS,
    UNK,
    FastEncoder,
    bpe_pipeline,
    byte_pipeline,
    cased_wordpiece_pipeline,
    character_pipeline,
    id_tensor,
    split_long_runs,
    split_words,
    unigram_pipeline,
    word_pipeline,
    wordpiece_pipeline,
)
from regard.data.text.special_tokens import (
    SPECIAL_ROLES,
    SPECIAL_SPELLINGS,
    InputTemplate,
    read_special_tokens,
    special_tokens_file,
    template_of,
)
from regard.data.text.tokenizer_errors import first_use, library_errors
from regard.data.text.tokenizer_limits import check_tokenizer_file
from regard.data.text.wordpiece import cached_word_encoder, continuation_tokens, train_wordpieces

_BPE_VOCABULARY = 8192
"""The default size of a vocabulary of byte pairs or word pieces."""


def _writable(text: str) -> None:
    """Raise a UserError for half a surrogate pair, which the library cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise UserError(
            f"character {problem.start + 1} of the text is half a surrogate pair, which is not text"
        ) from None


class Tokeniser:
    """A vocabulary, and the methods to encode and decode text."""

    def __init__(
        self, pipeline: Tokenizer, name: str = "tokenizer", spelled: Mapping[str, str] | None = None
    ) -> None:
        with first_use(name):
            # The file of another project may truncate or pad, which would damage a corpus.
            pipeline.no_truncation()
            pipeline.no_padding()
            pipeline.encode_special_tokens = True
            self._numbers: dict[str, int] = pipeline.get_vocab(with_added_tokens=True)
            self.json: str = pipeline.to_str()
            """The contents of tokenizer.json."""
            # Some broken files load and then panic at the first text; better now than later.
            pipeline.decode(pipeline.encode("a b\n", add_special_tokens=False).ids)
        if not self._numbers:
            raise UserError(f"{name}: has an empty vocabulary")
        self._pipeline = pipeline
        self._name = name
        self.vocabulary: int = self._numbers.get(RESERVED, max(self._numbers.values()) + 1)
        """The number of ids: the size of an embedding."""
        self.spelled: dict[str, str] = dict(spelled or {})
        """Special tokens by their names in `transformers`, such as `pad_token`."""
        self.rules: Charsmap | None = None
        """The normalisation rules of a SentencePiece model; None for other tokenisers."""
        if RESERVED in self._numbers:
            with first_use(name):
                self.rules = Charsmap.of(self.json)
                pipeline.normalizer = None  # `rules` do the same, exactly

    def special_token(self, role: str) -> str | None:
        """The special token of a role, if there is one."""
        named = (self.spelled[name] for name in SPECIAL_ROLES[role] if name in self.spelled)
        return next(
            (each for each in (*named, *SPECIAL_SPELLINGS[role]) if each in self._numbers), None
        )

    def _special(self, role: str) -> int:
        spelling = self.special_token(role)
        if spelling is None:
            usual = ", ".join(SPECIAL_SPELLINGS[role])
            raise UserError(f"{self._name}: has no {role} token, nor any of {usual}")
        return self._numbers[spelling]

    @property
    def pad(self) -> int:
        """The id of padding."""
        return self._special(PAD)

    @property
    def unk(self) -> int:
        """The id of unknown tokens."""
        return self._special(UNK)

    @property
    def bos(self) -> int:
        """The id of the token that begins a sequence."""
        return self._special(BOS)

    @property
    def eos(self) -> int:
        """The id of the token that ends a sequence."""
        return self._special(EOS)

    @property
    def mask(self) -> int:
        """The id of the mask token."""
        return self._special(MASK)

    @cached_property
    def special(self) -> Bool[Tensor, "V"]:
        """Which ids are not text: special tokens, and ids without a token."""
        special = torch.ones(self.vocabulary, dtype=torch.bool)
        special[[number for number in self._numbers.values() if number < self.vocabulary]] = False
        added = self._pipeline.get_added_tokens_decoder()
        special[[number for number, token in added.items() if token.special]] = True
        return special

    @cached_property
    def continues(self) -> Bool[Tensor, "V"]:
        """Which tokens continue a word after an ordinary token."""
        return continuation_tokens(self.json, self._numbers, self.vocabulary)

    @cached_property
    def frames(self) -> InputTemplate:
        """The template of its pipeline, which may be empty."""
        with first_use(self._name):
            found = template_of(self._pipeline)
        for each in (found, found.single):
            ids = (*each.before, *each.between, *each.after)
            if max(ids, default=0) >= self.vocabulary:
                raise UserError(
                    f"{self._name}: the special tokens around a text have ids up to {max(ids)}, "
                    f"and the vocabulary ends at {self.vocabulary - 1}"
                )
            parts = (*each.parts, *(part for some in each.marks or () for part in some))
            if max(parts) > 1:
                raise UserError(f"{self._name}: the parts of a pair are 0 and 1, not {max(parts)}")
        return found

    @property
    def template(self) -> InputTemplate | None:
        """The template of its pipeline; None if it adds no special tokens."""
        return None if self.frames.is_empty else self.frames

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of tokenizer.json."""
        return hashlib.sha256(self.json.encode()).hexdigest()

    @cached_property
    def kind(self) -> str | None:
        """The name in TOKENISERS; None for a tokeniser of another project."""
        bare = _bare(self.json)
        same = (kind for kind, pipeline in PIPELINES.items() if _bare(pipeline().to_str()) == bare)
        return next(same, None)

    @property
    def ends_lines(self) -> bool:
        """Does a newline become `<eos>`?"""
        return self.kind == "word"

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it."""
        numbers: list[int] = self.encode_all([text]).tolist()
        return numbers

    def encode_prompt(self, text: str) -> list[int]:
        """The ids of a text with the special tokens that its pipeline puts around it."""
        return self.frames.apply([self.encode(text)])[0]

    def encode_masked(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, in which the mask token is found; other special tokens are text."""
        if self.special_token(MASK) is None:
            return self.encode_each(texts)
        _writable("".join(texts))
        with library_errors(self._name):
            encoded = self._with_mask.encode_batch(list(texts), add_special_tokens=False)
        return [each.ids for each in encoded]

    @cached_property
    def _with_mask(self) -> Tokenizer:
        """The pipeline with a mask token that is found in texts, with its own white space."""
        whole = json.loads(self.json)
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        held = {each["id"]: each for each in whole["added_tokens"]}
        mask = held.get(self.mask, {"content": self.special_token(MASK), **plain})
        held[self.mask] = {**mask, "id": self.mask, "special": False}
        whole["added_tokens"] = [held[number] for number in sorted(held)]
        pipeline: Tokenizer = Tokenizer.from_str(json.dumps(whole))
        pipeline.encode_special_tokens = True
        return pipeline

    def encode_with_specials(self, text: str) -> list[int]:
        """`encode_prompt` of a text in which special tokens may be spelled, as `<|endoftext|>`."""
        _writable(text)
        with library_errors(self._name):
            ids = self._with_specials.encode(text, add_special_tokens=False).ids
        return self.frames.apply([ids])[0]

    @cached_property
    def _with_specials(self) -> Tokenizer:
        pipeline = Tokenizer.from_str(self.json)
        pipeline.encode_special_tokens = False
        return pipeline

    def encode_all(self, texts: Sequence[str], end: int | None = None) -> Int[Tensor, "T"]:
        """The ids of many texts in one tensor, each followed by `end` if it is not None."""
        _writable("".join(texts))
        with library_errors(self._name):
            if self._quick is None:
                closing = [] if end is None else [end]
                return id_tensor([n for row in self._rows(texts) for n in (*row, *closing)])
            if end is None:
                return self._quick("".join(texts))
            rows = [part for text in texts for part in (self._quick(text), id_tensor([end]))]
            return torch.cat([id_tensor([]), *rows])

    @cached_property
    def _quick(self) -> FastEncoder | None:
        make = FAST_ENCODERS.get(self.kind or "")
        return None if make is None else make(self._numbers)

    @cached_property
    def _by_word(self) -> Callable[[str], list[int]] | None:
        return cached_word_encoder(self._pipeline, self.json)

    def decode(self, ids: Sequence[int] | Int[Tensor, "T"]) -> str:
        """The text of some ids, without special tokens except for unknown words and characters."""
        numbers = [int(number) for number in ids]
        for number in numbers:
            if not 0 <= number < self.vocabulary:
                raise UserError(
                    f"{number} is not in this vocabulary, which goes from 0 to "
                    f"{self.vocabulary - 1}"
                )
        with library_errors(self._name):
            text: str = self._pipeline.decode(numbers, skip_special_tokens=True)
        return text

    def token(self, number: int) -> str:
        """The token of an id, as spelled in the vocabulary."""
        return self._pipeline.id_to_token(number) or ""

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The first and last character (exclusive) of each token of a text."""
        _writable(text)
        with library_errors(self._name):
            clean = None if self.rules is None else self._clean(self.rules, text)
            spans: list[tuple[int, int]] = self._pipeline.encode(
                text if clean is None else clean.text, add_special_tokens=False
            ).offsets
        return spans if clean is None else [clean.span(*each) for each in spans]

    def encode_each(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each of many texts."""
        _writable("".join(texts))
        with library_errors(self._name):
            return self._rows(texts)

    def _rows(self, texts: Sequence[str]) -> list[list[int]]:
        if self._by_word is not None:
            return [self._by_word(text) for text in texts]
        if self.rules is None:
            encoded = self._pipeline.encode_batch_fast(list(texts), add_special_tokens=False)
            return [each.ids for each in encoded]
        clean = [self._clean(self.rules, text).text for text in texts]
        encoded = self._pipeline.encode_batch(clean, add_special_tokens=False)
        unknown, last = self.unk, self.vocabulary
        return [
            [
                n if n < last and n != unknown else self._other(text[slice(*span)], unknown)
                for n, span in zip(each.ids, each.offsets, strict=True)
            ]
            for text, each in zip(clean, encoded, strict=True)
        ]

    def _other(self, piece: str, unknown: int) -> int:
        """The id of a piece that is unknown in one language but a token of the other."""
        found = self._numbers.get(RESERVED + piece, unknown)
        return unknown if found >= self.vocabulary or self.special[found] else found

    def _clean(self, rules: Charsmap, text: str) -> NormalisedText:
        return rules.normalise(text.replace(RESERVED, "\ufffd"))

    def save(self, path: Path) -> None:
        """Write tokenizer.json, and special_tokens_map.json beside it if the roles are known."""
        with replace_atomically(path) as file:
            file.write(self.json.encode())
        if self.spelled:
            with replace_atomically(special_tokens_file(path)) as file:
                file.write(json.dumps(self.spelled, ensure_ascii=False, indent=2).encode())


def load_tokeniser(path: Path, spelled: Mapping[str, str] | None = None) -> Tokeniser:
    """Read any tokenizer.json; special tokens are `spelled`, or those in the file beside it."""
    if not path.exists():
        raise missing_file_error(path)
    text = read_text(path, VOCABULARY_BYTES)
    check_tokenizer_file(text, str(path))
    with first_use(str(path)):
        pipeline = Tokenizer.from_str(text)
    return Tokeniser(pipeline, str(path), read_special_tokens(path) if spelled is None else spelled)


def train_tokeniser(
    kind: str, lines: Iterable[str], vocabulary: int | None = None, min_frequency: int = 1
) -> Tokeniser:
    """Train a tokeniser on lines of text without line ends.

    `vocabulary` is the maximum number of tokens, with special ones; None is no limit for words and
    characters, and 8192 for byte pairs and word pieces. Tokens rarer than `min_frequency` are left
    out.
    """
    trainer = choose("tokeniser", kind, TOKENISERS)
    floor = len(SPECIALS) + (256 if kind in ("byte", "bpe", "unigram") else 1)
    if vocabulary is not None and positive("vocabulary", vocabulary) < floor:
        held = f"the special tokens {' '.join(SPECIALS)} and " + (
            "one more" if floor == len(SPECIALS) + 1 else "the 256 bytes"
        )
        raise UserError(f"vocabulary={vocabulary} is too small for {held}: at least {floor}")
    return trainer(lines, vocabulary, positive("min_frequency", min_frequency))


def _bare(text: str) -> dict[str, object]:
    """A tokenizer.json without its trained vocabulary."""
    whole: dict[str, object] = json.loads(text)
    model = whole["model"]
    if isinstance(model, dict):
        whole["model"] = {name: model[name] for name in model.keys() - {"vocab", "merges"}}
    return whole


def _ranked(counts: Counter[str], vocabulary: int | None, min_frequency: int) -> list[str]:
    """The tokens of the vocabulary, the most frequent first, equal ones in alphabetical order."""
    if not counts:
        raise UserError("there is no text to train a tokeniser on")
    kept = [token for token in counts if counts[token] >= min_frequency and token not in SPECIALS]
    kept.sort(key=lambda token: (-counts[token], token))
    return kept[: None if vocabulary is None else vocabulary - len(SPECIALS)]


def _train_word(lines: Iterable[str], vocabulary: int | None, min_frequency: int) -> Tokeniser:
    """The most frequent words."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(split_words(line))
    return Tokeniser(word_pipeline(_ranked(counts, vocabulary, min_frequency)))


def _train_char(lines: Iterable[str], vocabulary: int | None, min_frequency: int) -> Tokeniser:
    """The most frequent characters, including the newline."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
        counts["\n"] += 1
    return Tokeniser(character_pipeline(_ranked(counts, vocabulary, min_frequency)))


def _train_byte(lines: Iterable[str], vocabulary: int | None, min_frequency: int) -> Tokeniser:
    """All 256 bytes, independent of the text."""
    return Tokeniser(byte_pipeline())


def _train_bpe(lines: Iterable[str], vocabulary: int | None, min_frequency: int) -> Tokeniser:
    """All 256 bytes and the most frequent pairs of tokens."""
    pipeline = bpe_pipeline()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary or _BPE_VOCABULARY,
        min_frequency=min_frequency,
        special_tokens=list(SPECIALS),
        initial_alphabet=list(BYTE_CHARACTERS),
        show_progress=False,
    )
    seen = Counter[str]()

    def ended() -> Iterator[str]:
        for line in lines:
            seen["lines"] += 1
            yield from split_long_runs(line + "\n")

    pipeline.train_from_iterator(ended(), trainer)
    if not seen:
        raise UserError("there is no text to train a tokeniser on")
    return Tokeniser(pipeline)


def _train_unigram(lines: Iterable[str], vocabulary: int | None, min_frequency: int) -> Tokeniser:
    """All 256 bytes and the pieces that make the text likeliest, by EM (Kudo 2018).

    Of pieces that are exactly as useful, which is common in a tiny text only, the library keeps
    any: two trainings may then differ.
    """
    pipeline = unigram_pipeline()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary or _BPE_VOCABULARY,
        special_tokens=list(SPECIALS),
        initial_alphabet=list(BYTE_CHARACTERS),
        unk_token=UNK,
        show_progress=False,
    )
    seen = Counter[str]()

    def ended() -> Iterator[str]:
        for line in lines:
            seen["lines"] += 1
            yield from split_long_runs(line + "\n")

    pipeline.train_from_iterator(ended(), trainer)
    if not seen:
        raise UserError("there is no text to train a tokeniser on")
    trained = json.loads(pipeline.to_str())["model"]["vocab"]
    # The library adds up, and ranks bytes that are rare, in a different order each time.
    pieces = {token: round(score, 4) for token, score in trained if token not in SPECIALS}
    floor = min((score for token, score in pieces.items() if len(token) > 1), default=0.0)
    rare = [byte for byte in BYTE_CHARACTERS if pieces.get(byte, floor - 1) < floor]
    pieces |= dict.fromkeys(rare, floor - 1)
    return Tokeniser(unigram_pipeline(sorted(pieces.items(), key=lambda each: (-each[1], each[0]))))


_Trainer = Callable[[Iterable[str], int | None, int], Tokeniser]


def _train_pieces(by: Callable[[Iterable[str]], Tokenizer]) -> _Trainer:
    """All characters and the most frequent pairs of tokens, in the pipeline of `by`."""

    def trained(lines: Iterable[str], vocabulary: int | None, min_frequency: int) -> Tokeniser:
        return Tokeniser(
            by(train_wordpieces(lines, by(()), vocabulary or _BPE_VOCABULARY, min_frequency))
        )

    return trained


TOKENISERS: dict[str, _Trainer] = {
    "word": _train_word,
    "char": _train_char,
    "byte": _train_byte,
    "bpe": _train_bpe,
    "unigram": _train_unigram,
    "wordpiece": _train_pieces(wordpiece_pipeline),
    "wordpiece_cased": _train_pieces(cased_wordpiece_pipeline),
}
"""The kinds of tokenisers: functions of lines, vocabulary size and minimum frequency."""
