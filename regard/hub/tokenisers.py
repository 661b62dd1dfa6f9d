"""Tokenisers as Hugging Face folders have them, in and out.

A tokenizer.json is a whole pipeline. If tokenizer_config.json names a family's own class, or no
class, only its vocabulary counts, and the class makes the rest anew from its settings
(tokeniser_classes.py); any other class takes it as it is. Older folders have only the vocabulary:
WordPiece (vocab.txt) of BERT and DistilBERT, byte pairs (vocab.json, merges.txt) of GPT-2 and
RoBERTa, pairs of letters of OpenAI GPT. Marian's two SentencePiece models are in hub/spm_pair.py.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, Tokenizer, processors

from regard.core.atomic import write_json_file
from regard.core.errors import UserError, choose
from regard.core.folder import VOCABULARY_BYTES, read_json_object, read_text
from regard.data.text.normalise import RESERVED
from regard.data.text.special_tokens import SPECIAL_ROLES, special_tokens_in, template_of
from regard.data.text.tokeniser import Tokeniser, load_tokeniser
from regard.data.text.tokenizer_errors import first_use
from regard.hub.store import read_optional_json, short_json
from regard.hub.tokeniser_classes import (
    CLASSES,
    FRAMED,
    GENERAL,
    MAKERS,
    MODEL_INPUTS,
    MODEL_TYPES,
    TOKENISER_DEFAULTS,
    Settings,
    Vocabulary,
    frame,
    frame_by_flags,
    vocabulary_in,
)


class FolderTokeniser(NamedTuple):
    """The tokeniser of a folder, and what there is to tell of it."""

    tokeniser: Tokeniser
    notes: tuple[str, ...]


def add_tokens(pipeline: Tokenizer, held: object, path: Path) -> None:
    """Tokens beside the vocabulary, by their numbers, as `added_tokens_decoder` has them."""
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


TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

_LARGEST = 2**24
"""No vocabulary has so many tokens: a larger number is a mistake or an attack."""


def read_tokeniser(folder: Path, family: str, rows: int | None = None) -> Tokeniser:
    """The tokeniser of a folder, for a model of that family.

    `rows` is how many its embedding has: a vocabulary may have fewer, and then gets numbers that
    no text has, since models are often padded; one that has more is refused.
    """
    return read_folder_tokeniser(folder, family, rows).tokeniser


def read_folder_tokeniser(folder: Path, family: str, rows: int | None = None) -> FolderTokeniser:
    """The same, with what there is to tell of it."""
    path = folder / "tokenizer.json"
    said = read_optional_json(folder / TOKENIZER_CONFIG_FILE)
    kind, notes = _kind_of(folder, said, family)
    spelled = special_tokens_of(folder)
    if not path.exists():
        kind = kind or choose("family of tokenisers", family, {each: each for each in MAKERS})
    settings = {**(TOKENISER_DEFAULTS[kind] if kind else {}), **said, **spelled}
    whole = load_tokeniser(path, spelled) if path.exists() else None
    place = path if path.exists() else folder
    with first_use(str(place)):
        pipeline = _pipeline_of(folder, kind, settings, whole)
        _add_marks(pipeline, folder, said, settings)
        if kind in FRAMED:
            frame(pipeline, kind, settings)
        elif whole is None:
            frame_by_flags(pipeline, settings)
        names = said.get("model_input_names") or MODEL_INPUTS.get(kind or "", MODEL_INPUTS["gpt2"])
        if not isinstance(names, list | tuple) or "token_type_ids" not in names:
            one_part(pipeline)
    named = {key: str(settings[key]) for key in _NAMES if settings.get(key) is not None}
    tokeniser = Tokeniser(pipeline, str(place), named)
    _ = tokeniser.frames  # what cannot be around a text is refused now
    return FolderTokeniser(pad_vocabulary(tokeniser, rows, place), notes)


def _kind_of(folder: Path, said: Settings, family: str) -> tuple[str | None, tuple[str, ...]]:
    """The kind of a folder's tokeniser; None takes tokenizer.json as it is. And what to tell."""
    given = said.get("tokenizer_class")
    if not given:
        given = read_optional_json(folder / "config.json").get("tokenizer_class")
    named = str(given or "").removesuffix("Fast")
    if not named:
        return (family if family in MAKERS else None), ()
    if named in CLASSES or named in GENERAL:
        return CLASSES.get(named), ()
    note = (
        f"tokenizer_class={short_json(given)} is not known here: tokenizer.json is taken as it is"
    )
    return None, (note,)


def _pipeline_of(
    folder: Path, kind: str | None, settings: Settings, whole: Tokeniser | None
) -> Tokenizer:
    """The pipeline of tokenizer.json, or one around its vocabulary, or around that of files."""
    added = settings.get("added_tokens_decoder")
    place = folder / TOKENIZER_CONFIG_FILE
    if kind is None:
        assert whole is not None
        pipeline = Tokenizer.from_str(whole.json)
        add_tokens(pipeline, added or {}, place)
        return pipeline
    if whole is None:
        pipeline = MAKERS[kind](_vocabulary_of(folder, kind), settings)
        add_tokens(pipeline, added or {}, place)
        return pipeline
    held = json.loads(whole.json)
    pipeline = MAKERS[kind](vocabulary_in(held, kind, folder / "tokenizer.json"), settings)
    if kind not in FRAMED:
        pipeline.post_processor = Tokenizer.from_str(whole.json).post_processor
    if added is None:
        place = folder / "tokenizer.json"
        added = {str(each["id"]): each for each in held["added_tokens"]}
    add_tokens(pipeline, added, place)
    return pipeline


def _vocabulary_of(folder: Path, kind: str) -> Vocabulary:
    """The vocabulary in the files of a folder that has no tokenizer.json."""
    if MODEL_TYPES[kind] == "WordPiece":
        lines = _lines(required_file(folder, "vocab.txt"))
        return Vocabulary({token: number for number, token in enumerate(lines)})
    if MODEL_TYPES[kind] == "BPE":
        numbers, merges = _pairs(folder)
        return Vocabulary(numbers, merges=tuple(merges))
    raise UserError(
        f"{folder}: has no tokenizer.json; AutoTokenizer.from_pretrained(FOLDER) of transformers "
        "makes one of sentencepiece.bpe.model, and save_pretrained(FOLDER) writes it"
    )


def one_part(pipeline: Tokenizer) -> None:
    """Leave all tokens of a pair in the first part, for models that are not given parts."""
    frames = template_of(pipeline)
    if not any((*frames.parts, *(part for each in frames.marks or () for part in each))):
        return
    marks = dict.fromkeys((*frames.single.before, *frames.single.after))
    marks |= dict.fromkeys((*frames.before, *frames.between, *frames.after))
    spelled = {number: pipeline.id_to_token(number) for number in marks}

    def listed(*each: tuple[int, ...] | str) -> list[str]:
        held = [[part] if isinstance(part, str) else [spelled[n] for n in part] for part in each]
        return [f"{token}:0" for part in held for token in part]

    one = frames.single
    pipeline.post_processor = processors.TemplateProcessing(
        single=listed(one.before, "$A", one.after),
        pair=listed(frames.before, "$A", frames.between, "$B", frames.after),
        special_tokens=[(token, number) for number, token in spelled.items()],
    )


_MOST_UNUSED = 2**16
"""Rows of an embedding that may be without a token: each costs some 2,000 bytes."""


def pad_vocabulary(tokeniser: Tokeniser, rows: int | None, path: Path) -> Tokeniser:
    """A tokeniser with as many numbers as an embedding has rows."""
    if rows is None or tokeniser.vocabulary == rows:
        return tokeniser
    if tokeniser.vocabulary > rows:
        raise UserError(
            f"{path}: numbers tokens up to {tokeniser.vocabulary - 1}, but the model's embedding "
            f"has {rows} rows; this tokeniser belongs to another model"
        )
    if rows - tokeniser.vocabulary > _MOST_UNUSED:
        raise UserError(
            f"{path}: has {tokeniser.vocabulary:,} tokens, and the embedding {rows:,} rows; "
            f"at most {_MOST_UNUSED:,} rows may be without a token; this tokeniser belongs to "
            "another model"
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
    for token, number in read_json_object(path, VOCABULARY_BYTES).items():
        if type(number) is not int or not 0 <= number < _LARGEST:  # true is an int to isinstance
            raise UserError(
                f"{path}: {token!r} should have a number from 0 to {_LARGEST - 1}, not {number!r}"
            )
        found[token] = number
    if not found:
        raise UserError(f"{path}: an empty vocabulary")
    return found


def _add_marks(pipeline: Tokenizer, folder: Path, said: Settings, settings: Settings) -> None:
    """Special tokens, which are never found in texts; those that files add have their flags."""
    added = read_optional_json(folder / "added_tokens.json")
    later = sorted(added, key=lambda token: str(added[token]).zfill(12))
    pipeline.add_tokens([token for token in later if pipeline.token_to_id(token) is None])
    there = {each.content for each in pipeline.get_added_tokens_decoder().values()}
    spelled = {} if "added_tokens_decoder" in said else read_optional_json(folder / _MAP_FILE)
    for key in _NAMES:
        mark = settings.get(key)
        if mark is None or str(mark) in there or pipeline.token_to_id(str(mark)) is None:
            continue
        flags = spelled.get(key) or said.get(key)
        given = flags if isinstance(flags, Mapping) else {}
        token = AddedToken(
            str(mark),
            lstrip=bool(given.get("lstrip")),
            rstrip=bool(given.get("rstrip")),
            single_word=bool(given.get("single_word")),
            normalized=bool(given.get("normalized")),
            special=True,
        )
        pipeline.add_special_tokens([token])
        there.add(str(mark))


def write_tokeniser(tokeniser: Tokeniser, folder: Path, family: str, longest: int) -> None:
    """Leave tokenizer.json and what `transformers` wants to know besides."""
    pipeline = Tokenizer.from_str(tokeniser.json)
    spelled = {**_named_roles(tokeniser), **tokeniser.spelled}
    if pipeline.post_processor is None:
        edges = {"cls_token": "bos_token", "sep_token": "eos_token"} if family in FRAMED else {}
        spelled |= {ours: spelled[from_] for ours, from_ in edges.items() if from_ in spelled}
        frame(pipeline, family, {**TOKENISER_DEFAULTS[family], **spelled})
    write_json_file(folder / "tokenizer.json", json.loads(pipeline.to_str()))
    write_json_file(
        folder / TOKENIZER_CONFIG_FILE,
        {
            # Any pipeline at all, as it stands in the file; a family's own class would put its own
            # normaliser and its own splitting around the same vocabulary.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": longest,
            "model_input_names": list(MODEL_INPUTS[family]),
            "clean_up_tokenization_spaces": False,
            **spelled,
        },
    )
    write_json_file(folder / _MAP_FILE, spelled)


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
        **special_tokens_in(read_optional_json(folder / _MAP_FILE)),
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
    return read_text(path, VOCABULARY_BYTES).removesuffix("\n").split("\n")


_NAMES = tuple(name for names in SPECIAL_ROLES.values() for name in names)
"""What `transformers` calls special tokens."""

_MAP_FILE = "special_tokens_map.json"
