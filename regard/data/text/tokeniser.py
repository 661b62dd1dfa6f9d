"""Words, characters, bytes, byte pairs and word pieces: text to numbers and back.

Every tokeniser is a Hugging Face `tokenizers` pipeline, whole in its tokenizer.json, with the same
four special tokens in front, or BERT's five before word pieces. None of them is ever found in a
text by accident: `<eos>` in a text of bytes is five bytes. Only the word kind knows special tokens
by their spelling, because PTB writes `<unk>` as a word, and it turns the end of a line into
`<eos>`.

Byte pairs are those of Sennrich et al. 2016 over bytes, split as GPT-2 does (Radford et al. 2019).
Word pieces (Wu et al. 2016) are cut as BERT cuts them (Devlin et al. 2019).

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
from regard.data.text.wordpiece import cached_word_encoder, continuation_tokens, train_wordpieces

_BPE_VOCABULARY = 8192
"""How many byte pairs or word pieces are learnt unless the caller says otherwise."""


def _writable(text: str) -> None:
    """Refuse half a surrogate pair, which no file can hold and the library cannot take."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise UserError(
            f"character {problem.start + 1} of the text is half a surrogate pair, which is no text"
        ) from None


class Tokeniser:
    """A vocabulary, and the way from text to its numbers and back."""

    def __init__(
        self, pipeline: Tokenizer, name: str = "tokenizer", spelled: Mapping[str, str] | None = None
    ) -> None:
        with first_use(name):
            # A file from elsewhere may cut or pad what it encodes, which would spoil a corpus.
            pipeline.no_truncation()
            pipeline.no_padding()
            pipeline.encode_special_tokens = True
            self._numbers: dict[str, int] = pipeline.get_vocab(with_added_tokens=True)
            self.json: str = pipeline.to_str()
            """All of it, as tokenizer.json has it."""
            # Some broken files load and then panic at the first text; better now than later.
            pipeline.decode(pipeline.encode("a b\n", add_special_tokens=False).ids)
        if not self._numbers:
            raise UserError(f"{name}: has an empty vocabulary")
        self._pipeline = pipeline
        self._name = name
        self.vocabulary: int = self._numbers.get(RESERVED, max(self._numbers.values()) + 1)
        """How many numbers there are: the size of an embedding."""
        self.spelled: dict[str, str] = dict(spelled or {})
        """Special tokens that a file names, as `transformers` calls them: `pad_token`."""
        self.rules: Charsmap | None = None
        """How texts are cleaned first, if it cuts as SentencePiece does."""
        if RESERVED in self._numbers:
            with first_use(name):
                self.rules = Charsmap.of(self.json)
                pipeline.normalizer = None  # the same done exactly

    def special_token(self, role: str) -> str | None:
        """How the special token of a role is spelled, if there is one."""
        named = (self.spelled[name] for name in SPECIAL_ROLES[role] if name in self.spelled)
        return next(
            (each for each in (*named, *SPECIAL_SPELLINGS[role]) if each in self._numbers), None
        )

    def _special(self, role: str) -> int:
        spelling = self.special_token(role)
        if spelling is None:
            raise UserError(
                f"{self._name}: has no {role} token; looked for {', '.join(SPECIAL_SPELLINGS[role])}"
            )
        return self._numbers[spelling]

    @property
    def pad(self) -> int:
        """The number that fills up short rows."""
        return self._special(PAD)

    @property
    def unk(self) -> int:
        """The number of everything that is not in the vocabulary."""
        return self._special(UNK)

    @property
    def bos(self) -> int:
        """The number that stands before a sequence."""
        return self._special(BOS)

    @property
    def eos(self) -> int:
        """The number that ends a sequence."""
        return self._special(EOS)

    @property
    def mask(self) -> int:
        """The number that stands for a word which is to be guessed."""
        return self._special(MASK)

    @cached_property
    def special(self) -> Bool[Tensor, "V"]:
        """Which numbers are no text: marks, and those that no token has."""
        marks = torch.ones(self.vocabulary, dtype=torch.bool)
        marks[[number for number in self._numbers.values() if number < self.vocabulary]] = False
        added = self._pipeline.get_added_tokens_decoder()
        marks[[number for number, token in added.items() if token.special]] = True
        return marks

    @cached_property
    def continues(self) -> Bool[Tensor, "V"]:
        """Which tokens go on within a word, after one that is no mark."""
        return continuation_tokens(self.json, self._numbers, self.vocabulary)

    @cached_property
    def template(self) -> InputTemplate | None:
        """What its own pipeline puts around a text and between two; None if that is nothing."""
        with first_use(self._name):
            return template_of(self._pipeline)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of tokenizer.json."""
        return hashlib.sha256(self.json.encode()).hexdigest()

    @cached_property
    def kind(self) -> str | None:
        """The row of TOKENISERS that makes such pipelines; none for one from elsewhere."""
        bare = _bare(self.json)
        same = (kind for kind, pipeline in PIPELINES.items() if _bare(pipeline().to_str()) == bare)
        return next(same, None)

    @property
    def ends_lines(self) -> bool:
        """Does the end of a line become `<eos>`?"""
        return self.kind == "word"

    def encode(self, text: str) -> list[int]:
        """The numbers of a text; nothing is put before or after it."""
        numbers: list[int] = self.encode_all([text]).tolist()
        return numbers

    def encode_all(self, texts: Sequence[str], end: int | None = None) -> Int[Tensor, "T"]:
        """The numbers of many texts in a row, each followed by `end` if one is given."""
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
        """The text of some numbers: unknown words and characters are shown, other marks are not."""
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
        """How the vocabulary itself writes a number."""
        return self._pipeline.id_to_token(number) or ""

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where in the text each of its tokens begins and ends, in characters."""
        _writable(text)
        with library_errors(self._name):
            clean = None if self.rules is None else self._clean(self.rules, text)
            spans: list[tuple[int, int]] = self._pipeline.encode(
                text if clean is None else clean.text, add_special_tokens=False
            ).offsets
        return spans if clean is None else [clean.span(*each) for each in spans]

    def encode_each(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of many texts, each for itself."""
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
        """What one language cannot cut, or has no number for, may be a token of the other."""
        found = self._numbers.get(RESERVED + piece, unknown)
        return unknown if found >= self.vocabulary or self.special[found] else found

    def _clean(self, rules: Charsmap, text: str) -> NormalisedText:
        return rules.normalise(text.replace(RESERVED, "\ufffd"))

    def save(self, path: Path) -> None:
        """Write tokenizer.json, and beside it which special token does what, if it was told."""
        with replace_atomically(path) as file:
            file.write(self.json.encode())
        if self.spelled:
            with replace_atomically(special_tokens_file(path)) as file:
                file.write(json.dumps(self.spelled, ensure_ascii=False, indent=2).encode())


def load_tokeniser(path: Path, spelled: Mapping[str, str] | None = None) -> Tokeniser:
    """Read a tokenizer.json, ours or any other; special tokens as given, or as named beside it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise missing_file_error(path) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{path}: cannot be read: {problem}") from None
    with first_use(str(path)):
        pipeline = Tokenizer.from_str(text)
    return Tokeniser(pipeline, str(path), read_special_tokens(path) if spelled is None else spelled)


def train_tokeniser(
    kind: str, lines: Iterable[str], vocabulary: int | None = None, min_frequency: int = 1
) -> Tokeniser:
    """A tokeniser for some text, given line by line without the ends of the lines.

    `vocabulary` is the most tokens there may be, special ones included; without it there is no
    limit for words and characters, and 8192 for byte pairs and word pieces. What is rarer than
    `min_frequency` is left out.
    """
    trainer = choose("tokeniser", kind, TOKENISERS)
    floor = len(SPECIALS) + (256 if kind in ("byte", "bpe") else 1)
    if vocabulary is not None and positive("vocabulary", vocabulary) < floor:
        held = f"the special tokens {' '.join(SPECIALS)} and " + (
            "one more" if floor == len(SPECIALS) + 1 else "the 256 bytes"
        )
        raise UserError(f"vocabulary={vocabulary} is too small for {held}: at least {floor}")
    return trainer(lines, vocabulary, positive("min_frequency", min_frequency))


def _bare(text: str) -> dict[str, object]:
    """A tokenizer.json without what training puts into it."""
    whole: dict[str, object] = json.loads(text)
    model = whole["model"]
    if isinstance(model, dict):
        whole["model"] = {name: model[name] for name in model.keys() - {"vocab", "merges"}}
    return whole


def _ranked(counts: Counter[str], vocabulary: int | None, min_frequency: int) -> list[str]:
    """The tokens to keep, the most frequent first, equal ones in the order of the alphabet."""
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
    """The most frequent characters, the end of a line among them."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
        counts["\n"] += 1
    return Tokeniser(character_pipeline(_ranked(counts, vocabulary, min_frequency)))


def _train_byte(lines: Iterable[str], vocabulary: int | None, min_frequency: int) -> Tokeniser:
    """All 256 bytes, whatever the text."""
    return Tokeniser(byte_pipeline())


def _train_bpe(lines: Iterable[str], vocabulary: int | None, min_frequency: int) -> Tokeniser:
    """All 256 bytes and the most frequent pairs of what is already in the vocabulary."""
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


_Trainer = Callable[[Iterable[str], int | None, int], Tokeniser]


def _train_pieces(by: Callable[[Iterable[str]], Tokenizer]) -> _Trainer:
    """Every letter, and the most frequent pairs of what is already there, in such a pipeline."""

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
    "wordpiece": _train_pieces(wordpiece_pipeline),
    "wordpiece_cased": _train_pieces(cased_wordpiece_pipeline),
}
"""The kinds of tokeniser: how each is made from lines, a limit and the least frequency."""
