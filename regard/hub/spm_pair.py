"""Marian's tokenisers: a SentencePiece model for each language, and vocab.json for both.

The models only cut: the number of a piece is what vocab.json says, and a piece it does not have is
unknown. So each side becomes a pipeline over the whole vocabulary, in which the pieces of the other
language and the special tokens are such that no text has them (`RESERVED`), followed by the pieces
that have no number. A language code in front (`>>fra<<`) is a word of its own.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from regard.core.atomic import replace_atomically, write_json_file
from regard.core.errors import UserError
from regard.data.text.normalise import RESERVED, SPACE_SYMBOL
from regard.data.text.pipeline import EOS
from regard.data.text.tokeniser import Tokeniser
from regard.data.text.tokenizer_errors import first_use
from regard.hub.sentencepiece import BPE, CONTROL, UNIGRAM, UNKNOWN, ScoredPiece, SentencePiece
from regard.hub.sentencepiece import read_sentencepiece as read_model
from regard.hub.sentencepiece import sentencepiece_bytes as written_model
from regard.hub.store import read_optional_json
from regard.hub.tokeniser_classes import TOKENISER_DEFAULTS
from regard.hub.tokenisers import (
    TOKENIZER_CONFIG_FILE,
    pad_vocabulary,
    read_tokeniser,
    read_vocabulary,
    required_file,
    special_tokens_of,
    unused_token,
    write_tokeniser,
)

_SIDES = ("source", "target")

_FAMILY = "marian"


@dataclass(frozen=True)
class TokeniserPair:
    """The tokenisers of both languages."""

    source: Tokeniser
    target: Tokeniser


def read_pair(
    folder: Path, source_rows: int | None = None, rows: int | None = None
) -> TokeniserPair:
    """The tokenisers of a Marian folder; embeddings have so many rows."""
    if not (folder / "source.spm").exists():
        both = read_tokeniser(folder, _FAMILY, rows)
        return TokeniserPair(both, both)
    settings = read_optional_json(folder / TOKENIZER_CONFIG_FILE)
    names = ("vocab.json", "target_vocab.json" if settings.get("separate_vocabs") else "vocab.json")
    spelled = {**TOKENISER_DEFAULTS[_FAMILY], **special_tokens_of(folder)}
    roles = {name: RESERVED + str(token) for name, token in spelled.items()}
    said = {
        **read_optional_json(folder / "config.json"),
        **read_optional_json(folder / "generation_config.json"),
    }
    first = said.get("decoder_start_token_id")
    made = []
    for side, name, count in zip(_SIDES, names, (source_rows, rows), strict=True):
        vocabulary = read_vocabulary(required_file(folder, name))
        path = folder / f"{side}.spm"
        model = read_model(path)
        if str(spelled["unk_token"]) not in vocabulary:
            raise UserError(f"{folder / name}: has no {spelled['unk_token']} for what is unknown")
        with first_use(str(path)):
            pipeline = _cut_by(model, vocabulary, str(spelled["unk_token"]), count)
            marks = (roles[key] for key in ("eos_token", "pad_token"))
            pipeline.add_special_tokens(
                [
                    AddedToken(mark, special=True, normalized=False)
                    for mark in dict.fromkeys(marks)
                    if pipeline.token_to_id(mark) is not None
                ]
            )
            _ended(pipeline, roles["eos_token"])
        begin = _begins_with(first, vocabulary, model.found) or roles["pad_token"]
        tokeniser = Tokeniser(pipeline, str(path), {**roles, "bos_token": begin})
        made.append(pad_vocabulary(tokeniser, count, folder / name))
    return TokeniserPair(*made)


def _begins_with(
    first: object, vocabulary: Mapping[str, int], scores: Mapping[str, float]
) -> str | None:
    """What outputs begin with if the config says: a token, or a number that no token has."""
    if type(first) is not int:
        return None
    token = next((token for token, number in vocabulary.items() if number == first), None)
    return unused_token(first) if token is None else _named(token, scores)


def _cut_by(
    model: SentencePiece, vocabulary: Mapping[str, int], unknown: str, rows: int | None
) -> Tokenizer:
    """A pipeline that cuts as the model does and numbers as the vocabulary does."""
    scores = model.found
    size = max(max(vocabulary.values()) + 1, rows or 0)
    names = [unused_token(number) for number in range(size)]
    for token, number in vocabulary.items():
        names[number] = _named(token, scores)
    after = [token for token in scores if token not in vocabulary]
    entries = [*names, RESERVED, *after]
    make = _unigram if model.kind == UNIGRAM else _pairs if model.kind == BPE else None
    if make is None:
        raise UserError("only SentencePiece models of kind unigram and bpe are known here")
    pipeline = Tokenizer(make(entries, scores, vocabulary[unknown]))
    if model.rules:
        pipeline.normalizer = normalizers.Precompiled(model.rules)
    inside = any(
        SPACE_SYMBOL in token[1:] for token in scores
    )  # pieces that go on into the next word
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace(SPACE_SYMBOL, split=not inside)
    pipeline.decoder = decoders.Sequence(
        [
            decoders.Replace(RESERVED, ""),
            decoders.Replace(SPACE_SYMBOL, " "),
            decoders.Fuse(),
            decoders.Replace(Regex("^ +| +$"), ""),
        ]
    )
    return pipeline


def _named(token: str, scores: Mapping[str, float]) -> str:
    """What a token of the vocabulary is called in the pipeline of one side.

    >>> _named("▁a", {"▁a": -1.0}), _named(">>fra<<", {}), _named("</s>", {}) == RESERVED + "</s>"
    ('▁a', '▁>>fra<<', True)
    """
    if token in scores:
        return token
    return SPACE_SYMBOL + token if _is_code(token) else RESERVED + token


def _is_code(token: str) -> bool:
    """Does it say which language to write?"""
    return token.startswith(">>") and token.endswith("<<")


def _unigram(entries: list[str], scores: Mapping[str, float], unknown: int) -> models.Unigram:
    """The likeliest way to cut (Kudo 2018); what no text has may score anything."""
    return models.Unigram([(entry, scores.get(entry, 0.0)) for entry in entries], unk_id=unknown)


def _pairs(entries: list[str], scores: Mapping[str, float], unknown: int) -> models.BPE:
    """Neighbours made one as long as that gives a piece, the best piece first."""
    codes = [entry for entry in entries if _is_code(entry.removeprefix(SPACE_SYMBOL))]
    if codes:
        raise UserError(f"a bpe model with language codes ({codes[0]}) is not known here")
    merges = sorted(
        (-score, cut, token[:cut], token[cut:])
        for token, score in scores.items()
        for cut in range(1, len(token))
        if token[:cut] in scores and token[cut:] in scores
    )
    return models.BPE(
        {entry: number for number, entry in enumerate(entries)},
        [(left, right) for _, _, left, right in merges],
        unk_token=entries[unknown],
        fuse_unk=True,
    )


def _ended(pipeline: Tokenizer, mark: str) -> None:
    """Texts end with a mark, for programs that read the tokenizer.json by itself."""
    number = pipeline.token_to_id(mark)
    if number is not None:
        pipeline.post_processor = processors.TemplateProcessing(
            single=f"$A:0 {mark}:0", pair=f"$A:0 $B:0 {mark}:0", special_tokens=[(mark, number)]
        )


def write_pair(pair: TokeniserPair, folder: Path, longest: int) -> None:
    """Leave what `transformers` reads: both models and the vocabulary.

    Tokenisers that are not SentencePiece's have no such files; one for both languages is left as
    tokenizer.json instead.
    """
    sides = (pair.source, pair.target)
    if any(each.rules is None for each in sides):
        _write_one(pair, folder, longest)
        return
    spelled = {name: token.removeprefix(RESERVED) for name, token in pair.target.spelled.items()}
    spelled.pop("bos_token", None)
    vocabularies = [_numbers(each) for each in sides]
    separate = vocabularies[0] != vocabularies[1]
    for side, each in zip(_SIDES, sides, strict=True):
        with replace_atomically(folder / f"{side}.spm") as file:
            file.write(written_model(_model_of(each)))
    write_json_file(folder / "vocab.json", vocabularies[0])
    if separate:
        write_json_file(folder / "target_vocab.json", vocabularies[1])
    write_json_file(
        folder / TOKENIZER_CONFIG_FILE,
        {
            "tokenizer_class": "MarianTokenizer",
            "model_max_length": longest,
            "separate_vocabs": separate,
            "source_lang": None,
            "target_lang": None,
            **spelled,
        },
    )


def _write_one(pair: TokeniserPair, folder: Path, longest: int) -> None:
    """Leave a tokeniser of another kind, which must be that of both languages."""
    if pair.source.digest != pair.target.digest:
        raise UserError(
            "Marian has one vocabulary for both languages unless it is SentencePiece's; these are "
            "two: train with data.joint=true to save such a model"
        )
    pipeline = Tokenizer.from_str(pair.target.json)
    end = pair.target.special_token(EOS)
    if end is not None:
        _ended(pipeline, end)
    for side in _SIDES:  # of an earlier export; with these the folder would be read as those
        (folder / f"{side}.spm").unlink(missing_ok=True)
    write_tokeniser(Tokeniser(pipeline, "tokenizer", pair.target.spelled), folder, _FAMILY, longest)


def _numbers(tokeniser: Tokeniser) -> dict[str, int]:
    """The vocabulary as vocab.json had it."""
    model = json.loads(tokeniser.json)["model"]
    entries = enumerate(token for token, _ in model["vocab"])
    held = model["vocab"].items() if model["type"] == "BPE" else ((t, n) for n, t in entries)
    return {
        _plain(token): number
        for token, number in held
        if number < tokeniser.vocabulary and token != unused_token(number)
    }


def _plain(entry: str) -> str:
    """A token as vocab.json spells it."""
    code = entry.removeprefix(SPACE_SYMBOL)
    return code if _is_code(code) else entry.removeprefix(RESERVED)


def _model_of(tokeniser: Tokeniser) -> SentencePiece:
    """The SentencePiece model that cuts as a tokeniser does."""
    assert tokeniser.rules is not None
    model = json.loads(tokeniser.json)["model"]
    ours = [
        ScoredPiece("<unk>", 0.0, UNKNOWN),
        ScoredPiece("<s>", 0.0, CONTROL),
        ScoredPiece("</s>", 0.0, CONTROL),
    ]
    if model["type"] == "Unigram":
        kind = UNIGRAM
        held = [(token, float(score)) for token, score in model["vocab"]]
    else:
        kind = BPE
        # Only the order of merged pieces counts; single letters come last.
        made = dict.fromkeys("".join(pair) for pair in model["merges"])
        held = [(token, -float(rank)) for rank, token in enumerate((*made, *model["vocab"]))]
    pieces = {
        token: ScoredPiece(token, score)
        for token, score in reversed(held)
        if not token.startswith(RESERVED) and not _is_code(token.removeprefix(SPACE_SYMBOL))
    }
    return SentencePiece((*ours, *reversed(pieces.values())), kind, tokeniser.rules.data)
