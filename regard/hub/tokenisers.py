"""Tokenisers as Hugging Face folders have them, in and out.

A tokenizer.json is a whole pipeline and is taken as it is, but for what tokenizer_config.json says
of lower case, accents and blanks (tokeniser_settings.py). Older folders have only the vocabulary,
and each family knows what to put around it: WordPiece (vocab.txt) of BERT and DistilBERT, byte
pairs (vocab.json, merges.txt) of GPT-2 and RoBERTa, pairs of letters of OpenAI GPT. Marian's two
SentencePiece models are in hub/spm_pair.py.

What tokenizer_config.json says of a tokeniser, where it counts more than the pipeline does.

A family's own class in `transformers` makes its normaliser and its splitting anew from these
settings, or from its defaults, whatever stands in tokenizer.json; the general class takes that as
it is.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from regard.core.atomic import write_json_file
from regard.core.errors import UserError, choose
from regard.data.text.normalise import RESERVED
from regard.data.text.special_tokens import SPECIAL_ROLES, special_tokens_in
from regard.data.text.tokeniser import Tokeniser, load_tokeniser
from regard.data.text.tokenizer_errors import first_use
from regard.hub.store import read_json_object, read_optional_json, short_json

_OWN = {"BertTokenizer", "DistilBertTokenizer", "RobertaTokenizer", "GPT2Tokenizer"}
"""Classes that do so; one is meant where none is named. Some names end in Fast."""

_PARTS: dict[tuple[str, str], dict[str, str]] = {
    ("normalizer", "BertNormalizer"): {
        "lowercase": "do_lower_case",
        "strip_accents": "strip_accents",
        "handle_chinese_chars": "tokenize_chinese_chars",
    },
    ("pre_tokenizer", "ByteLevel"): {"add_prefix_space": "add_prefix_space"},
}
"""What a part of a pipeline calls its settings, and what tokenizer_config.json calls them."""


def with_settings(
    tokeniser: Tokeniser, said: Mapping[str, object], otherwise: Mapping[str, object], path: Path
) -> Tokeniser:
    """A tokeniser with what a folder says of it, or its family where the folder does not."""
    named = str(said.get("tokenizer_class") or "BertTokenizer").removesuffix("Fast")
    if named not in _OWN:
        return tokeniser
    settings = {name: said.get(name, usual) for name, usual in otherwise.items()}
    whole = json.loads(tokeniser.json)
    for (part, kind), names in _PARTS.items():
        held = whole.get(part)
        if isinstance(held, dict) and held.get("type") == kind:
            wanted = {key: settings[name] for key, name in names.items() if name in settings}
            held |= {key: None if each is None else bool(each) for key, each in wanted.items()}
    if whole == json.loads(tokeniser.json):
        return tokeniser
    with first_use(str(path)):
        return Tokeniser(Tokenizer.from_str(json.dumps(whole)), str(path), tokeniser.spelled)


def add_tokens(pipeline: Tokenizer, said: Mapping[str, object], path: Path) -> None:
    """Tokens beside the vocabulary, by their numbers, as `added_tokens_decoder` has them."""
    held = said.get("added_tokens_decoder") or {}
    if not isinstance(held, Mapping):
        raise UserError(f"{path}: added_tokens_decoder={short_json(held)} must be tokens by number")
    for number in sorted(held, key=lambda each: str(each).zfill(12)):
        token = held[number]
        content = token.get("content") if isinstance(token, Mapping) else None
        if not isinstance(content, str) or not content:
            raise UserError(
                f"{path}: added_tokens_decoder has {short_json(token)} as {short_json(number)}; a "
                "token with its content was expected"
            )
        named = ("lstrip", "rstrip", "single_word", "normalized", "special")
        added = AddedToken(content, **{name: bool(token.get(name)) for name in named})
        (pipeline.add_special_tokens if added.special else pipeline.add_tokens)([added])
        if str(pipeline.token_to_id(content)) != str(number):
            raise UserError(
                f"{path}: added_tokens_decoder has {short_json(content)} as {short_json(number)}, "
                f"but it follows the vocabulary as {pipeline.token_to_id(content)}"
            )


_Settings = Mapping[str, object]
"""What tokenizer_config.json says."""

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

_LARGEST = 2**24
"""No vocabulary has so many tokens: a larger number is a mistake or an attack."""


def read_tokeniser(folder: Path, family: str, rows: int | None = None) -> Tokeniser:
    """The tokeniser of a folder, for a model of that family.

    `rows` is how many its embedding has: a vocabulary may have fewer, and then gets numbers that
    no text has, since models are often padded; one that has more is refused.
    """
    spelled = special_tokens_of(folder)
    path = folder / "tokenizer.json"
    said = read_optional_json(folder / TOKENIZER_CONFIG_FILE)
    if path.exists():
        whole = with_settings(
            load_tokeniser(path, spelled), said, TOKENISER_DEFAULTS.get(family, {}), path
        )
        return pad_vocabulary(whole, rows, path)
    make = choose("family of tokenisers", family, _MAKERS)
    settings = {**TOKENISER_DEFAULTS[family], **said, **spelled}
    with first_use(str(folder)):
        pipeline = make(folder, settings)
        add_tokens(pipeline, said, folder / TOKENIZER_CONFIG_FILE)
        _add_marks(pipeline, folder, settings)
    named = {key: str(value) for key, value in settings.items() if key in _NAMES}
    return pad_vocabulary(Tokeniser(pipeline, str(folder), named), rows, folder)


def pad_vocabulary(tokeniser: Tokeniser, rows: int | None, path: Path) -> Tokeniser:
    """A tokeniser with as many numbers as an embedding has rows."""
    if rows is None or tokeniser.vocabulary == rows:
        return tokeniser
    if tokeniser.vocabulary > rows:
        raise UserError(
            f"{path}: numbers tokens up to {tokeniser.vocabulary - 1}, but the model's embedding "
            f"has {rows} rows; this tokeniser belongs to another model"
        )
    pipeline = Tokenizer.from_str(tokeniser.json)
    missing = range(tokeniser.vocabulary, rows)
    marks = [AddedToken(unused_token(number), special=True, normalized=False) for number in missing]
    pipeline.add_special_tokens(marks)
    return Tokeniser(pipeline, str(path), tokeniser.spelled)


def unused_token(number: int) -> str:
    """The name of a number that the vocabulary leaves out."""
    return f"{RESERVED}{RESERVED}{number}"


def unused_ids(tokeniser: Tokeniser) -> int:
    """How many numbers of a vocabulary no token has, which a model is padded with."""
    every = range(tokeniser.vocabulary)
    return sum(tokeniser.token(number) in ("", unused_token(number)) for number in every)


def _word_pieces(folder: Path, settings: _Settings) -> Tokenizer:
    """BERT's: vocab.txt has a piece a line, its number that of the line."""
    vocabulary = {token: n for n, token in enumerate(_lines(required_file(folder, "vocab.txt")))}
    pipeline = Tokenizer(models.WordPiece(vocabulary, unk_token=str(settings["unk_token"])))
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


def _byte_pairs(folder: Path, settings: _Settings) -> Tokenizer:
    """GPT-2's: pairs of bytes, a blank being part of the word behind it."""
    pipeline = Tokenizer(models.BPE(*_pairs(folder)))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=bool(settings["add_prefix_space"])
    )
    pipeline.decoder = decoders.ByteLevel()
    return pipeline


def _letter_pairs(folder: Path, settings: _Settings) -> Tokenizer:
    """OpenAI GPT's: pairs of letters within words as BERT splits them, the last with </w>."""
    vocabulary, merges = _pairs(folder)
    pipeline = Tokenizer(
        models.BPE(
            vocabulary,
            merges,
            unk_token=str(settings["unk_token"]),
            end_of_word_suffix="</w>",
        )
    )
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.BPEDecoder(suffix="</w>")
    return pipeline


def _pairs(folder: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """vocab.json and merges.txt."""
    path = required_file(folder, "merges.txt")
    merges = []
    for number, line in enumerate(_lines(path), start=1):
        left, _, right = line.partition(" ")
        if line.startswith("#version") or not line.strip():
            continue
        if not left or not right or " " in right:
            raise UserError(f"{path}:{number}: a pair was expected, two tokens apart by a blank")
        merges.append((left, right))
    return read_vocabulary(required_file(folder, "vocab.json")), merges


def read_vocabulary(path: Path) -> dict[str, int]:
    """A vocabulary as JSON: the number of each token."""
    found: dict[str, int] = {}
    for token, number in read_json_object(path).items():
        if type(number) is not int or not 0 <= number < _LARGEST:  # true is an int to isinstance
            raise UserError(
                f"{path}: {token!r} should have a number from 0 to {_LARGEST - 1}, not {number!r}"
            )
        found[token] = number
    if not found:
        raise UserError(f"{path}: an empty vocabulary")
    return found


def _add_marks(pipeline: Tokenizer, folder: Path, settings: _Settings) -> None:
    """Special tokens that are never found in texts, and what stands around these."""
    added = read_optional_json(folder / "added_tokens.json")
    later = sorted(added, key=lambda token: str(added[token]).zfill(12))
    pipeline.add_tokens([token for token in later if pipeline.token_to_id(token) is None])
    marks = dict.fromkeys(str(settings[key]) for key in _NAMES if settings.get(key) is not None)
    known = [mark for mark in marks if pipeline.token_to_id(mark) is not None]
    pipeline.add_special_tokens(
        [AddedToken(mark, special=True, normalized=False) for mark in known]
    )
    _around(pipeline, settings)


def _around(pipeline: Tokenizer, settings: _Settings) -> None:
    """What this family puts before, between and after texts."""
    first, last = (settings.get(key) for key in ("cls_token", "sep_token"))
    if first is None or last is None:
        return
    begins, ends = pipeline.token_to_id(str(first)), pipeline.token_to_id(str(last))
    if begins is None or ends is None:
        return
    if "trim_offsets" in settings:  # RoBERTa's: two marks between texts, and only one segment
        pipeline.post_processor = processors.RobertaProcessing(
            (str(last), ends),
            (str(first), begins),
            trim_offsets=bool(settings["trim_offsets"]),
            add_prefix_space=bool(settings["add_prefix_space"]),
        )
        return
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(str(first), begins), (str(last), ends)],
    )


def write_tokeniser(tokeniser: Tokeniser, folder: Path, family: str, longest: int) -> None:
    """Leave tokenizer.json and what `transformers` wants to know besides."""
    pipeline = Tokenizer.from_str(tokeniser.json)
    spelled = {**_named_roles(tokeniser), **tokeniser.spelled}
    if pipeline.post_processor is None:
        edges = {"cls_token": "bos_token", "sep_token": "eos_token"} if family in _FRAMED else {}
        spelled |= {ours: spelled[from_] for ours, from_ in edges.items() if from_ in spelled}
        _around(pipeline, {**TOKENISER_DEFAULTS[family], **spelled} if edges else {})
    write_json_file(folder / "tokenizer.json", json.loads(pipeline.to_str()))
    write_json_file(
        folder / TOKENIZER_CONFIG_FILE,
        {
            # Any pipeline at all, as it stands in the file; a family's own class would put its own
            # normaliser and its own splitting around the same vocabulary.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": longest,
            "model_input_names": list(_INPUTS[family]),
            "clean_up_tokenization_spaces": False,
            **spelled,
        },
    )
    write_json_file(folder / "special_tokens_map.json", spelled)


def gpt_classifier_tokeniser(tokeniser: Tokeniser) -> Tokeniser:
    """The tokeniser of GPT's classifiers: `start a delimiter b extract`, numbered behind all."""
    pipeline = Tokenizer.from_str(tokeniser.json)
    count = tokeniser.vocabulary
    names = [
        name if pipeline.token_to_id(name) is None else unused_token(count + place)
        for place, name in enumerate(("<start>", "<delimiter>", "<extract>"))
    ]
    pipeline.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in names]
    )
    numbers = [pipeline.token_to_id(name) for name in names]
    if numbers != [count, count + 1, count + 2]:
        raise UserError(
            "the vocabulary of this run leaves numbers out, so the marks of its frame cannot be "
            "written where transformers would read them"
        )
    start, delimiter, extract = names
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"{start}:0 $A:0 {extract}:0",
        pair=f"{start}:0 $A:0 {delimiter}:0 $B:0 {extract}:0",
        special_tokens=list(zip(names, numbers, strict=True)),
    )
    return Tokeniser(pipeline, "tokenizer", tokeniser.spelled)


def _named_roles(tokeniser: Tokeniser) -> dict[str, str]:
    """The special tokens a tokeniser has, by the names that `transformers` calls them."""
    found = {}
    for role, names in SPECIAL_ROLES.items():
        spelling = tokeniser.special_token(role)
        if spelling is not None:
            found[names[0]] = spelling
    return found


def special_tokens_of(folder: Path) -> dict[str, str]:
    """The special tokens that a folder names."""
    return {
        **special_tokens_in(read_optional_json(folder / TOKENIZER_CONFIG_FILE)),
        **special_tokens_in(read_optional_json(folder / "special_tokens_map.json")),
    }


def required_file(folder: Path, name: str) -> Path:
    """A file without which there is no tokeniser."""
    if not (folder / name).exists():
        raise UserError(
            f"{folder}: has no tokenizer.json, and {name} is missing too; a tokeniser needs one of "
            "them"
        )
    return folder / name


def _lines(path: Path) -> list[str]:
    """The lines of a vocabulary, which end at line feeds and nowhere else."""
    try:
        text = path.read_text(encoding="utf-8")  # as Python does, \r\n is a line feed too
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{path}: cannot be read: {problem}") from None
    return text.removesuffix("\n").split("\n")


_NAMES = tuple(name for names in SPECIAL_ROLES.values() for name in names)
"""What `transformers` calls special tokens."""

_Maker = Callable[[Path, _Settings], Tokenizer]

_MAKERS: dict[str, _Maker] = {
    "bert": _word_pieces,
    "distilbert": _word_pieces,
    "roberta": _byte_pairs,
    "gpt2": _byte_pairs,
    "openai-gpt": _letter_pairs,
}
"""How each family makes a pipeline of its vocabulary."""

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

_END = "<|endoftext|>"

TOKENISER_DEFAULTS: dict[str, _Settings] = {
    "bert": _BRACKETS,
    "distilbert": _BRACKETS,
    "roberta": {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "sep_token": "</s>",
        "cls_token": "<s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
        "add_prefix_space": False,
        "trim_offsets": True,
    },
    "gpt2": {"unk_token": _END, "bos_token": _END, "eos_token": _END, "add_prefix_space": False},
    "openai-gpt": {"unk_token": "<unk>"},
    "marian": {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"},
}
"""What holds where tokenizer_config.json says nothing."""

_FRAMED = ("bert", "distilbert", "roberta")
"""Families whose texts stand between marks."""

_PLAIN = ("input_ids", "attention_mask")

_INPUTS: dict[str, tuple[str, ...]] = {
    "bert": ("input_ids", "token_type_ids", "attention_mask"),
    "distilbert": _PLAIN,
    "roberta": _PLAIN,
    "gpt2": _PLAIN,
    "openai-gpt": _PLAIN,
    "marian": _PLAIN,
}
"""What each family's models are given by their tokenisers."""
