"""The tokeniser classes of transformers that make a pipeline of their own around a vocabulary.

Such a class takes the vocabulary of a tokenizer.json, or of older files, and nothing else: the
normaliser, the splitting and the special tokens around a text are its own, with the settings of
tokenizer_config.json. GPT-2's and OpenAI GPT's take what stands around a text from the file too.
Any other class takes tokenizer.json as it is.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from regard.core.errors import UserError

Settings = Mapping[str, object]
"""The settings of tokenizer_config.json, and the defaults of a class where it has none."""


@dataclass(frozen=True)
class Vocabulary:
    """What a class takes from a file."""

    numbers: Mapping[str, int]
    """The number of each token."""
    merges: tuple[tuple[str, str], ...] = ()
    """The pairs of byte pair encoding, in order."""
    scores: tuple[tuple[str, float], ...] = ()
    """The pieces of a unigram model, in order, with their log-probabilities."""
    charsmap: bytes | None = None
    """The rules of SentencePiece for characters."""


def vocabulary_in(whole: Mapping[str, object], kind: str, path: Path) -> Vocabulary:
    """The vocabulary of a tokenizer.json, for a class of this kind."""
    model = whole["model"]
    assert isinstance(model, Mapping)
    wanted = MODEL_TYPES[kind]
    if model.get("type") != wanted:
        raise UserError(
            f"{path}: holds a {model.get('type')}, but tokenizer_class, or without it the model's "
            f'type, means a {wanted}; with "tokenizer_class": "PreTrainedTokenizerFast" in '
            "tokenizer_config.json it is taken as it is"
        )
    if wanted == "Unigram":
        scores = tuple((str(piece), float(score)) for piece, score in model["vocab"])
        return Vocabulary({}, scores=scores, charsmap=_charsmap(whole.get("normalizer")))
    pairs = (each.split(" ") if isinstance(each, str) else each for each in model.get("merges", []))
    return Vocabulary(dict(model["vocab"]), merges=tuple((left, right) for left, right in pairs))


def _charsmap(normaliser: object) -> bytes | None:
    """The first table of SentencePiece's rules in a normaliser."""
    held = normaliser if isinstance(normaliser, Mapping) else {}
    every = held.get("normalizers") if held.get("type") == "Sequence" else [held]
    for each in every if isinstance(every, list) else []:
        if isinstance(each, Mapping) and each.get("type") == "Precompiled":
            return base64.b64decode(str(each["precompiled_charsmap"]))
    return None


def _word_pieces(held: Vocabulary, settings: Settings) -> Tokenizer:
    """BERT's: the longest known pieces of words and punctuation."""
    pipeline = Tokenizer(models.WordPiece(dict(held.numbers), unk_token=str(settings["unk_token"])))
    accents = settings["strip_accents"]
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(settings["tokenize_chinese_chars"]),
        strip_accents=None if accents is None else bool(accents),
        lowercase=bool(settings["do_lower_case"]),
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    return pipeline


def _byte_pairs(held: Vocabulary, settings: Settings) -> Tokenizer:
    """GPT-2's: pairs of bytes, a blank being part of the word behind it."""
    pipeline = Tokenizer(models.BPE(dict(held.numbers), list(held.merges)))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=bool(settings["add_prefix_space"])
    )
    pipeline.decoder = decoders.ByteLevel()
    return pipeline


def _letter_pairs(held: Vocabulary, settings: Settings) -> Tokenizer:
    """OpenAI GPT's: pairs of letters within words as BERT splits them, the last with </w>."""
    pipeline = Tokenizer(
        models.BPE(
            dict(held.numbers),
            list(held.merges),
            unk_token=str(settings["unk_token"]),
            end_of_word_suffix="</w>",
        )
    )
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.BPEDecoder(suffix="</w>")
    return pipeline


def _unigram(held: Vocabulary, settings: Settings, unknown: int) -> Tokenizer:
    """SentencePiece's unigram model, words at blanks."""
    pipeline = Tokenizer(models.Unigram(list(held.scores), unk_id=unknown, byte_fallback=False))
    if held.charsmap is not None:
        pipeline.normalizer = normalizers.Precompiled(held.charsmap)
    scheme = "always" if settings["add_prefix_space"] else "never"
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme),
        ]
    )
    pipeline.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    return pipeline


def _xlm_roberta(held: Vocabulary, settings: Settings) -> Tokenizer:
    """XLM-RoBERTa's, whose fourth piece is the unknown one."""
    if len(held.scores) <= _XLM_UNKNOWN:
        raise UserError(f"a vocabulary of {len(held.scores)} pieces is too small for XLM-RoBERTa")
    return _unigram(held, settings, _XLM_UNKNOWN)


def _camembert(held: Vocabulary, settings: Settings) -> Tokenizer:
    """CamemBERT's, whose unknown piece has a name."""
    named = [piece for piece, _ in held.scores]
    unknown = str(settings["unk_token"])
    return _unigram(held, settings, named.index(unknown) if unknown in named else 0)


_XLM_UNKNOWN = 3

MAKERS: dict[str, Callable[[Vocabulary, Settings], Tokenizer]] = {
    "bert": _word_pieces,
    "distilbert": _word_pieces,
    "roberta": _byte_pairs,
    "gpt2": _byte_pairs,
    "openai-gpt": _letter_pairs,
    "xlm-roberta": _xlm_roberta,
    "camembert": _camembert,
}
"""The pipeline of each kind around a vocabulary."""

MODEL_TYPES = {
    "bert": "WordPiece",
    "distilbert": "WordPiece",
    "roberta": "BPE",
    "gpt2": "BPE",
    "openai-gpt": "BPE",
    "xlm-roberta": "Unigram",
    "camembert": "Unigram",
}
"""What each kind takes from tokenizer.json."""

CLASSES = {
    "BertTokenizer": "bert",
    "DistilBertTokenizer": "distilbert",
    "ElectraTokenizer": "bert",
    "RobertaTokenizer": "roberta",
    "GPT2Tokenizer": "gpt2",
    "OpenAIGPTTokenizer": "openai-gpt",
    "XLMRobertaTokenizer": "xlm-roberta",
    "CamembertTokenizer": "camembert",
}
"""The kinds by the names of their classes, which may end in Fast too."""

GENERAL = ("PreTrainedTokenizer", "TokenizersBackend")
"""Classes that take tokenizer.json as it is; the first ends in Fast."""

_BRACKETS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "do_lower_case": True,
    "tokenize_chinese_chars": True,
    "strip_accents": None,
}

_ANGLES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}

_END = "<|endoftext|>"

TOKENISER_DEFAULTS: dict[str, Settings] = {
    "bert": _BRACKETS,
    "distilbert": _BRACKETS,
    "roberta": {**_ANGLES, "add_prefix_space": False, "trim_offsets": True},
    "gpt2": {"unk_token": _END, "bos_token": _END, "eos_token": _END, "add_prefix_space": False},
    "openai-gpt": {"unk_token": "<unk>"},
    "xlm-roberta": {**_ANGLES, "add_prefix_space": True},
    "camembert": {**_ANGLES, "add_prefix_space": True},
    "marian": {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"},
}
"""What holds where tokenizer_config.json says nothing."""

_PLAIN = ("input_ids", "attention_mask")

MODEL_INPUTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TOKENISER_DEFAULTS, _PLAIN),
    "bert": ("input_ids", "token_type_ids", "attention_mask"),
}
"""What each kind gives to models, unless model_input_names says otherwise; any other class is
plain."""

FRAMED = ("bert", "distilbert", "roberta", "xlm-roberta", "camembert")
"""Kinds whose texts stand between special tokens of their own."""


def frame(pipeline: Tokenizer, kind: str, settings: Settings) -> None:
    """Put the special tokens of a kind before, between and after texts."""
    edges = ("cls_token", "sep_token") if kind in FRAMED[:3] else ("bos_token", "eos_token")
    first, last = (settings.get(key) for key in edges)
    if kind not in FRAMED or first is None or last is None:
        return
    begins, ends = pipeline.token_to_id(str(first)), pipeline.token_to_id(str(last))
    if begins is None or ends is None:
        return
    if kind == "roberta":  # two marks between texts, and only one segment
        pipeline.post_processor = processors.RobertaProcessing(
            (str(last), ends),
            (str(first), begins),
            trim_offsets=bool(settings["trim_offsets"]),
            add_prefix_space=bool(settings["add_prefix_space"]),
        )
        return
    berts = f"{first}:0 $A:0 {last}:0 $B:1 {last}:1"
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=berts if kind in FRAMED[:2] else f"{first} $A {last} {last} $B {last}",
        special_tokens=[(str(first), begins), (str(last), ends)],
    )


def frame_by_flags(pipeline: Tokenizer, settings: Settings) -> None:
    """The begin and end tokens of `add_bos_token` and `add_eos_token`, around each of two texts."""
    marks: dict[str, int] = {}
    single = {"before": "", "after": ""}
    for flag, role, side in (
        ("add_bos_token", "bos_token", "before"),
        ("add_eos_token", "eos_token", "after"),
    ):
        token = settings.get(role)
        number = None if token is None else pipeline.token_to_id(str(token))
        if settings.get(flag) and number is not None:
            single[side], marks[str(token)] = str(token), number
    if not marks:
        return

    def around(text: str, part: int) -> str:
        begin, end = (f"{each}:{part}" if each else "" for each in single.values())
        return f"{begin} {text}:{part} {end}".strip()

    pipeline.post_processor = processors.TemplateProcessing(
        single=around("$A", 0),
        pair=f"{around('$A', 0)} {around('$B', 1)}",
        special_tokens=list(marks.items()),
    )
