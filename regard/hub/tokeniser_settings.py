"""What tokenizer_config.json says of a tokeniser, where it counts more than the pipeline does.

A family's own class in `transformers` makes its normaliser and its splitting anew from these
settings, or from its defaults, whatever stands in tokenizer.json; the general class takes that as
it is.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from regard.core.errors import UserError
from regard.data.text.tokeniser import Tokeniser
from regard.data.text.tokenizer_errors import first_use
from regard.hub.store import short_json

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
